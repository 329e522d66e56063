"""Functions of two inputs: cross-attention whose keys and values are made of the context, whatever the head."""

import math

import numpy as np
import pytest

import maxaffine as ma
from maxaffine import reference
from maxaffine.checker import check
from maxaffine.cli.app import main
from maxaffine.layer.query import leans_on_query
from maxaffine.proofs import literal
from maxaffine.proofs.exact_layer import exact_value

PAIR = ma.Box(q=(-1, 1)), ma.Box(k=(-1, 1))
THREE = ma.Box(q1=(-1, 1), q2=(-1, 1), q3=(-1, 1)), ma.Box(k1=(-1, 1), k2=(-1, 1), k3=(-1, 1))
BILINEAR = "q1*(k1 + 2*k2) + q2*(k2 - 0.5*k3) + q3*(k1 + k3)"
FAR = ma.Box(q=(-1001, -999)), ma.Box(k=(5000, 5001))
CASES = [
    ("sin(q*k)", PAIR, 1e-6, "spectral", 40), ("exp(-(q-k)**2)", PAIR, 1e-6, "spectral", 20),
    (BILINEAR, THREE, 1e-6, "spectral", 24), ("max(q, k)", PAIR, 1e-4, "sums", 12), ("abs(q - k)", PAIR, 1e-4, "axis", 6),
    ("abs(sin(3*q))*exp(k)", PAIR, 1e-2, "products", 40),
    ("q*abs(k)", PAIR, 1e-3, "regions", 8), ("max(0, k)*3 + k", PAIR, 1e-4, "piecewise", 2), ("q + k", PAIR, 0.3, "lookup", 200),
    ("sin(q + 1000)*k", FAR, 1e-2, "spectral", 12),
]  # fmt: skip


def _layer(case):
    target, boxes, error, method, _ = case
    return ma.compile(target, boxes, error=error, method="lookup" if method == "lookup" else "auto")


@pytest.fixture(scope="module", params=CASES, ids=[f"{case[0]}" for case in CASES])
def case(request):
    return request.param, _layer(request.param)


def test_its_literal_matrices_keep_their_statement_on_the_definition(case):
    (_, _, error, method, most), layer = case
    assert layer.method == method and layer.tokens <= most and layer.bound <= error and layer.attention_kind == "cross"
    made, said = layer.matrices("cross"), layer.statement("matrices").bound
    assert not leans_on_query(layer.weights) and made.form.startswith("two inputs") and said < math.inf
    x = np.concatenate([layer.box.sample(60, np.random.default_rng(1)), layer.box.corners()[:16], np.array([layer.observed.at])])
    for row, exact in zip(x, layer.target.values(x), strict=True):
        q, k = (part[0].reshape(-1, 1) for part in layer.target.split(row[None]))
        Z_Q, Z_K = (reference.linear(X, one.P, one.Q, one.R_0) for X, one in ((q, made.query), (k, made.context)))
        assert np.array_equal(Z_Q, made.query(q)) and Z_Q.shape[1] == made.W_O.shape[0]
        found = reference.cross_attention(Z_K, Z_Q, made.W_Q, made.W_K, made.W_V, made.W_O)
        assert np.abs(found - exact).max() <= said


def test_it_is_checked_from_its_file_which_knows_that_it_is_a_pair(case, tmp_path):
    _, layer = case
    layer.save(tmp_path / "f.safetensors")
    loaded = ma.load(tmp_path / "f.safetensors", check=True)
    assert loaded.target.inputs == "pair" and loaded.matrices("cross").form == layer.matrices("cross").form
    tensors, record = layer._record()
    for wrong in ({"attention": "self"}, {"layer": {**record["layer"], "inputs": [[layer.box.dimension, 1]]}}):
        verdict = check(tensors, {**record, **wrong})
        assert not verdict.passed and ("two inputs" in verdict.reason or "different inputs" in verdict.reason)


def test_values_that_lean_on_the_query_are_not_confirmed():
    layer = ma.compile(BILINEAR, THREE, error=1e-6)
    tensors, record = layer._record()
    slopes = tensors["group.0.value_slopes"].copy()
    assert np.any(slopes) and check(tensors, record).passed
    slopes[..., int(np.flatnonzero(np.any(layer.weights.groups[0].matrix[:, :3], axis=1))[0])] = 1e-12
    verdict = check({**tensors, "group.0.value_slopes": slopes}, record)
    assert not verdict.passed and "affine in the query" in verdict.reason


def test_what_keys_made_of_the_context_lose_is_needed_in_the_bound(monkeypatch):
    """Far from the origin the scores of keys, multiplied out uncentred, are off by more than all other roundings together."""
    flint = pytest.importorskip("flint")
    layer = ma.compile("abs(q - k)", (ma.Box(q=(1000, 1001)), ma.Box(k=(1000, 1001))), error=1e-3)
    made, away = layer.matrices("cross"), 0.0
    with flint.ctx.workprec(200):
        for x in layer.box.sample(60, np.random.default_rng(1)):
            (exact,) = exact_value(layer.weights, [flint.arb(float(one)) for one in x])
            away = max(away, abs(float(flint.arb(made(x[:1, None], x[1:, None])[0, 0]) - exact)))
    blends = layer.certificate.blends
    counted = literal.literal(layer.weights, blends).total
    tensors, record = layer._record()
    verdict = check(tensors, record)
    assert away <= counted and away <= verdict.claims[0].checked - verdict.bound
    monkeypatch.setattr(literal, "with_crossed_keys", lambda layer, group, column, form: column)
    assert away > 10.0 * literal.literal(layer.weights, blends).total


@pytest.mark.parametrize("case", CASES[:3], ids=["product", "gaussian", "bilinear"])
def test_it_leaves_for_torch_and_onnx(case, tmp_path):
    torch = pytest.importorskip("torch")
    layer = _layer(case)
    x = layer.box.sample(40, np.random.default_rng(2))
    parts = layer.target.split(x)
    for form in ("fast", "literal"):
        module = layer.to_torch(form=form)
        assert form == "fast" or module.cross
        answers = module(*(torch.from_numpy(np.ascontiguousarray(one)) for one in parts)).numpy()
        away = np.abs(answers - layer.target.values(x)[:, 0, 0])
        assert float(away.max()) <= module.statement.bound <= case[2]
    pytest.importorskip("onnxruntime")
    for form in ("fast", "literal"):
        assert layer.to_onnx(tmp_path / "f.onnx", form=form)[0].statement.bound <= case[2]


def test_the_other_form_has_a_constant_context():
    made = ma.compile("sin(x)", ma.Box(x=(-1, 1)), error=0.1, method="lookup").matrices("cross")
    assert made.form.startswith("constant context") and not any(np.any(P) for P in made.context.P)
    assert made.describe().startswith(f"cross-attention, {made.form}")


def test_the_command_line_and_what_it_refuses(capsys, tmp_path):
    path, points = tmp_path / "f.safetensors", tmp_path / "p.csv"
    pair = ["--query", "q=-1:1", "--context", "k=-1:1"]
    assert main(["compile", "sin(q*k)", *pair, "--error", "1e-3", "--out", str(path)]) == 0
    assert "inputs     two: the query q, and the context k, which keys and values are made of" in capsys.readouterr().out
    points.write_text("k,q\n0.5,1\n")
    assert main(["check", str(path)]) == main(["eval", str(path), "--points", str(points)]) == 0
    assert abs(float(capsys.readouterr().out.splitlines()[-1].split(",")[-1]) - math.sin(0.5)) < 1e-3
    for wrong, words in (
        (pair[:2], "--query is given without --context"), (pair[2:], "--context is given without --query"),
        ([*pair, "--box", "x=0:1"], "--box is for one input"), (["--query", "q", *pair[2:]], "--query: `q` is not of the form"),
    ):  # fmt: skip
        assert main(["compile", "sin(q*k)", *wrong, "--error", "1e-3"]) == 2 and words in capsys.readouterr().err
    with pytest.raises(ma.BadInput, match="has no self-attention matrices"):
        ma.load(path).matrices("self")
