"""A loaded layer answers everything that a compiled one does, with the same words and numbers."""

from dataclasses import replace

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.heads import HEADS
from maxaffine.runtime import parallel

EXAMPLES = [(name, k) for name, head in HEADS.items() for k in range(len(head.examples))]


@pytest.fixture(scope="module", params=EXAMPLES, ids=[f"{name}-{k}" for name, k in EXAMPLES])
def pair(request, tmp_path_factory):
    """A compiled layer and the same from its file."""
    for kernel in ("collapsed", "two_level", "windowed"):  # or one of the two is asked before, the other after that
        parallel.kernel(kernel, 10**12)
    name, k = request.param
    example = HEADS[name].examples[k]
    path = tmp_path_factory.mktemp(name) / "f.safetensors"
    layer = ma.compile(example.target, ma.Box(**example.box), error=example.error, method=name, **example.options)
    layer.save(path)
    loaded, checked = ma.load(path), ma.load(path)
    assert checked.standing == "stated" and checked.check().passed and checked.standing == "checked"
    assert layer.bound <= checked.bound <= 1.2 * layer.bound  # nowhere below what the checker proved
    return layer, replace(loaded, standing="proved")


def _answers(layer) -> dict[str, object]:
    """What a layer says about itself, apart from when and where it was made."""
    json = {key: value for key, value in layer.to_json().items() if key not in ("seconds", "file")}
    statements = [str(one) for one in layer.statements()]
    return {
        "json": json, "repr": repr(layer), "html": layer._repr_html_(), "explain": layer.explain(batch=1000),
        "cite": layer.cite(), "statements": statements, "one": str(layer.statement("matrices")),
        "semantics": layer.semantics(), "runtimes": layer.runtimes(), "runtime": layer.runtime(10), "bytes": layer.to_bytes(),
        "bound": float(layer.bound), "literal": dict(layer.literal), "sharpness": layer.sharpness, "cost": layer.cost,
    }  # fmt: skip


def test_it_says_the_same(pair):
    layer, loaded = pair
    mine, other = _answers(layer), _answers(loaded)
    for question, answer in mine.items():
        assert other[question] == answer, question


def test_it_gives_the_same_numbers(pair):
    layer, loaded = pair
    x = layer.box.sample(50, np.random.default_rng(0))
    assert np.array_equal(layer(x), loaded(x))
    for runtime in layer.runtimes():
        assert np.array_equal(layer(x, runtime=runtime), loaded(x, runtime=runtime)), runtime
    assert np.array_equal(layer.attention(x), loaded.attention(x))
    for kind in ("self", "cross"):
        try:
            mine = layer.matrices(kind)
        except ma.Refused as refusal:
            with pytest.raises(ma.Refused, match="^" + str(refusal)[:20].replace("(", r"\(")):
                loaded.matrices(kind)
            continue
        assert mine.describe() == loaded.matrices(kind).describe()
        assert mine.said == loaded.matrices(kind).said


def test_it_is_proved_anew_for_every_runtime(pair):
    layer, loaded = pair
    for runtime in layer.runtimes():
        assert loaded.certificate_for(runtime).to_json() == layer.certificate_for(runtime).to_json(), runtime


def test_it_draws_and_leaves_as_the_same(pair, tmp_path):
    layer, loaded = pair
    for name, one in (("mine", layer), ("other", loaded)):
        one.draw(tmp_path / f"{name}.png")
        one.export("safetensors", tmp_path / f"{name}.safetensors")
        one.save(tmp_path / f"{name}-again.safetensors")
    for ending in (".safetensors", "-again.safetensors"):
        assert (tmp_path / f"mine{ending}").read_bytes() == (tmp_path / f"other{ending}").read_bytes()


def test_what_it_was_asked_for_is_found_again(tmp_path):
    path = tmp_path / "f.safetensors"
    for target, asked in (("exp(x)", {"error": 1e-3, "literal": True}), ("sqrt(x+1)**2", {"error": 0.3, "lipschitz": [1.5]})):
        layer = ma.compile(target, ma.Box(x=(-1, 1)), **asked)
        layer.save(path)
        loaded = ma.load(path)
        for runtime in layer.runtimes():
            assert loaded.certificate_for(runtime) == layer.certificate_for(runtime)


def test_what_its_file_does_not_hold_is_said_in_a_sentence(tmp_path):
    path, box = tmp_path / "f.safetensors", ma.Box(x=(-1, 1))
    ma.compile(lambda x: np.sin(x[:, 0]), box, error=0.2, trace=False, lipschitz=[1.0], method="lookup").save(path)
    with pytest.raises(ma.Refused, match="a file does not hold the function"):
        ma.load(path).certificate_for("dense")
    ma.compile("sin(x)", box, error=0.2, keys=np.linspace(-1, 1, 50)[:, None], method="lookup").save(path)
    with pytest.raises(ma.Refused, match="gives another layer"):
        ma.load(path).certificate_for("dense")
