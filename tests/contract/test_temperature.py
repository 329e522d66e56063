"""Every head at another temperature: the same keys and values, every logit times r, proved anew, checked and loaded."""

from functools import cache

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.attack.walk import walk
from maxaffine.cli.app import main
from maxaffine.heads import HEADS

LINE, SQUARE = ma.Box(x=(-1, 1)), ma.Box(x=(-1, 1), y=(-1, 1))
SUMMED = ("dense", "matrices", "attention")


@cache
def _compiled(name: str) -> ma.Compiled:
    example = HEADS[name].examples[0]
    return ma.compile(example.target, ma.Box(**example.box), error=example.error, method=name, **example.options)


CHECKED = ["piecewise", "regions", "level", "separated", "lookup"]  # whose plans follow, or whose values cancel


ALIKE = ("axis", "sums", "curved", "tree")  # whose kinds of groups the others have


@pytest.fixture(params=[name for name in HEADS if name not in ALIKE])
def layer(request):
    return _compiled(request.param)


def _logits(layer):
    """Of the literal matrices, for every query column: (N, columns)."""
    made = layer.matrices("self", layout="Q")
    x = layer.box.sample(1, np.random.default_rng(3))[0].reshape(layer.box.n, layer.box.d).T
    Z = made.linear(x)
    own = 0.0 if layer.weights.grouped else np.log(2.0)  # the bonus of the one output column, which is no logit of a lookup
    return (made.W_K @ Z).T @ (made.W_Q @ Z) - own


def test_every_logit_is_multiplied_and_no_value_moves(layer):
    made = layer.with_sharpness(0.5)
    if layer.tokens < 3000:
        assert np.allclose(_logits(made), 0.5 * _logits(layer), rtol=1e-13, atol=1e-12)  # biases between groups included
    values = {name: tensor for name, tensor in layer._record()[0].items() if "value" in name or "factor" in name}
    again = made._record()[0]
    assert all(np.array_equal(tensor, again[name]) for name, tensor in values.items() if not name.endswith(("slopes", "offsets")))
    assert layer.with_sharpness(1.0) is layer


@pytest.mark.parametrize("layer", CHECKED, indirect=True)
def test_what_is_proved_of_it_is_checked_from_its_file_and_said_again_by_a_loaded_layer(layer, tmp_path):
    made = layer.with_sharpness(1.25)
    if made.bound is None:  # values of products cancel, and nothing is left of that at another temperature
        assert layer.method == "separated" and "does not confirm" in made.certificate.theorem
        return
    assert made.observed.surely <= made.bound <= made.error
    made.save(tmp_path / "f.safetensors")
    loaded = ma.load(tmp_path / "f.safetensors")
    assert ma.check(tmp_path / "f.safetensors").passed
    x = layer.box.sample(20, np.random.default_rng(0))
    assert np.array_equal(made(x), loaded(x)) and loaded.to_json()["sharpened"] == {"by": [1.25], "asked": layer.error}
    mine, other = ([one.certificate_for(name) for name in one.runtimes()] for one in (made, loaded))
    assert mine == other
    assert np.array_equal(loaded.with_sharpness(0.8)(x), made.with_sharpness(0.8)(x))


@pytest.mark.parametrize("target, box, options", [
    ("sin(3*x)", LINE, {"error": 0.1, "method": "lookup"}),
    ("abs(sin(5*x)) + cos(y)**2", SQUARE, {"error": 1e-2}),
])  # fmt: skip
def test_no_route_is_off_by_more_than_its_statement(target, box, options):
    made = ma.compile(target, box, **options).with_sharpness(0.3)
    rows = list(walk(made, np.random.default_rng(0), kept=lambda route: route in ("arrays", *SUMMED)))
    assert any(row.judged for row in rows) and not [row for row in rows if row.violated]


def test_the_error_follows_its_theorem():
    layer = ma.compile("max(x, y)", SQUARE, error=1e-3)
    for r in (0.125, 8.0):  # W0((N-1)/e)/R, attained where the pieces meet
        assert layer.with_sharpness(r).bound == pytest.approx(layer.bound / r, rel=1e-6)


def test_a_sweep_of_affine_pieces_is_proved_at_every_temperature():
    """Flat scores, where all pieces blend, and steep ones, where a part of a sum is rounding alone."""
    kink, sort = ma.compile("max(x, y)", SQUARE, error=0.05), ma.compile(ma.gallery["sort_3"].target, error=1e-3)
    for layer, factors in ((kink, (1 / 64, 1 / 32, 1 / 16)), (sort, (16.0, 64.0))):
        for r in factors:
            made = layer.with_sharpness(r)
            assert made.bound is not None and made.bound == pytest.approx(layer.bound / r, rel=1e-6) and made.check().passed


def test_no_claim_of_the_literal_form_stands_that_the_checker_does_not_confirm():
    made = ma.compile("abs(x), sin(y), max(x, y)", SQUARE, error=1e-2).with_sharpness(0.035)  # groups lean on one another
    assert made.bound is not None and made.check().passed
    assert made.statement("matrices").bound is None and "does not confirm" in made.statement("matrices").why


def test_a_bound_that_says_nothing_is_not_stated():
    made = _compiled("ramp").with_sharpness(2.6)
    assert made.bound is None and "which says nothing beside" in made.certificate.theorem


def test_relative_errors_are_observed_as_relative_ones():
    made = ma.compile("exp(x)", LINE, error=1e-3, relative="pointwise").with_sharpness(2.0)
    at = np.array([made.observed.at])
    assert made.observed.error == pytest.approx(abs(float(made(at)[0]) / np.exp(at[0, 0]) - 1.0), rel=1e-9)


def test_what_no_temperature_makes_sense_of_is_said():
    layer = ma.compile("max(x, y)", SQUARE, error=1e-3)
    for r in (0, -1, "warm", float("nan"), float("inf"), True, None):
        with pytest.raises(ma.BadInput, match="multiplies every logit: give a positive number"):
            layer.with_sharpness(r)
    with pytest.raises(ma.BadInput, match="must lie between"):
        layer.with_sharpness(1e30)
    table = ma.Table([np.linspace(0, 1, 5)], np.arange(5.0) ** 2)
    with pytest.raises(ma.Refused, match="its sharpness is infinite already"):
        ma.compile(table, method="nearest").with_sharpness(2.0)
    for entries in (ma.compile(table, error=0.5), ma.compile(ma.Table([np.arange(3.0)], np.arange(3.0) ** 2), error=0.3)):
        other = entries.with_sharpness(0.5)
        assert other.certificate.scope.over == "entries" and other.observed.error <= other.bound
    seen = ma.compile(lambda x: np.sin(x[:, 0]), LINE, error=1e-2, trace=False).with_sharpness(2.0)
    assert seen.certificate.kind == "none" and seen.observed.error > 1e-2
    with pytest.raises(ma.Refused, match="the error is only observed"):
        ma.compile(lambda x: np.sin(x[:, 0]), LINE, error=1e-2, trace=False).with_sharpness(2.0, require="proved")
    narrow = ma.compile("sin(3*x)", LINE, error=0.1, dtype="float32", method="lookup")
    for _ in range(2):
        narrow = narrow.with_sharpness(2.0**59)
    with pytest.raises(ma.Refused, match="is too large for float32"):
        narrow.with_sharpness(2.0**40)


def test_the_command_takes_it(capsys, tmp_path):
    path = tmp_path / "f.safetensors"
    asked = ["compile", "max(x,y)", "--box", "x=-1:1,y=-1:1", "--error", "1e-3"]
    assert main([*asked, "--sharpness", "0.1", "--out", str(path)]) == 0
    assert "sharpened  every logit times 0.1; it was compiled for an error of 0.001 at 1" in capsys.readouterr().out
    assert main(["check", str(path)]) == 0
    assert main([*asked, "--sharpness", "0"]) == 2
    assert "`sharpness` (=0.0) multiplies every logit" in capsys.readouterr().err
