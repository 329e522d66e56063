"""Certificates at entries: numbers near the ends of their range lose no part of the bound."""

import json
from dataclasses import replace

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.checker import check
from maxaffine.core.errors import MaxaffineError
from maxaffine.heads.entries.prove import certify_entries
from maxaffine.layer.file import from_tensors, to_tensors
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.runtime import chooser

NODES = np.linspace(-1, 1, 60)


@pytest.mark.parametrize("power", [400, 530, 900])
def test_the_account_of_rounding_survives_values_whose_squares_overflow(power):
    """Beyond 1e154 the fine account of rounding is inf - inf; it was lost, and a bound without rounding was stated."""
    made = ma.compile(ma.Table([NODES], np.cos(2 * NODES)), error=1e-10)
    plain, scale, group = made.certificate, 2.0**power, made.weights.groups[0]
    slopes = None if group.slopes is None else group.slopes * scale
    layer = replace(made.weights, groups=(replace(group, values=group.values * scale, slopes=slopes),))
    with np.errstate(all="ignore"):
        raised, _ = certify_entries(layer, ma.Table([NODES], scale * np.cos(2 * NODES)), 1e-10 * scale)
    assert plain.parts["rounding"] > 1e-12 and raised.parts["rounding"] >= 0.999 * plain.parts["rounding"] * scale


def test_lookups_of_tables_whose_sums_overflow_are_not_proved():
    """The streaming runtime divides by the normaliser last."""
    rng = np.random.default_rng(0)
    values = 1.0 + 0.05 * rng.normal(size=(12, 12))
    table = ma.Table([np.arange(12.0), np.arange(12.0)], values)
    made = ma.compile(table, error=0.1, method="lookup", dtype="float32")
    tensors, record = made._record()
    assert check(tensors, record, table).passed
    scale, name = 2.0**126.9, "values" if "values" in tensors else "group.0.values"
    large = ma.Table(table.axes, values * scale)
    tensors = dict(tensors) | {name: (np.asarray(tensors[name], dtype=np.float64) * scale).astype(np.float32)}
    record = json.loads(json.dumps(record))
    record["error"], record["target"] = 0.2 * scale, json.loads(json.dumps(large.target.to_json()))
    record["certificate"]["scope"]["sha256"] = large.entries.sha256[:16]
    layer, points = from_tensors(tensors, record["layer"]), next(large.blocks())[0]
    with np.errstate(all="ignore"):
        finite = [np.isfinite(chooser.evaluate(layer, points, name)).all() for name in chooser.available(layer)]
        assert not all(finite) and "overflow" in check(tensors, record, large).reason
        with pytest.raises(MaxaffineError):
            ma.compile(large, error=0.1 * scale, method="lookup", dtype="float32")


@pytest.mark.parametrize("hard", [True, False])
def test_variables_box_and_outputs_of_a_record_are_those_of_the_table(hard):
    """The hash is one of numbers: names exchanged in a record would make of the answer at (T, p) the one at (p, T)."""
    nodes = np.linspace(0, 1, 9)
    table = ma.Table([nodes, nodes], np.sin(3 * nodes)[:, None] + nodes[None] ** 2, names=["T", "p"])
    tensors, record = ma.compile(table, error=None if hard else 1e-2, method="nearest" if hard else "auto")._record()

    def edited(**changes):
        made = json.loads(json.dumps(record))
        made["target"]["box"].update({k: v for k, v in changes.items() if k != "output_shape"})
        made["target"].update({k: v for k, v in changes.items() if k == "output_shape"})
        box = {f"box.{side}": np.array(made["target"]["box"][side]) for side in ("low", "high")}
        return check(dict(tensors) | box, made, table)

    assert edited().passed and edited(names=["a", "b"]).passed
    for changes in ({"names": ["p", "T"]}, {"names": ["p", "q"]}, {"high": [1.0, 2.0]}, {"output_shape": [1]}):
        verdict = edited(**changes)
        assert not verdict.passed and "not those of the table" in verdict.reason


@pytest.mark.parametrize(("dtype", "first"), [("bfloat16", 1e-7), ("float64", 3e-323)])
def test_nodes_that_no_key_tells_apart_are_refused_in_words(dtype, first):
    """Equations between keys that are the same number have no solution."""
    rng = np.random.default_rng(0)
    axes = [np.array([0.0, first, 0.2, 0.21, 0.41, 0.47, 0.48, 0.53]), np.array([0.0, first, 0.58, 0.7, 0.85])]
    table = ma.Table(axes, rng.normal(size=(8, 5)))
    with np.errstate(all="ignore"), pytest.raises(ma.Refused):
        ma.compile(table, error=1e-3 if dtype == "float64" else 0.1, dtype=dtype, method="lookup")
    if first > 1e-300:
        assert ma.compile(table, method="nearest").certificate.bound == 0.0


def test_the_short_form_of_a_layer_of_a_table_says_where_it_is_proved():
    table = ma.Table([NODES], np.cos(2 * NODES))
    for made in (ma.compile(table, error=1e-2), ma.compile(table, method="nearest")):
        where = f"at {len(NODES)} entries; nothing between them"
        assert f"proved {where}" in repr(made) and repr(made.bound).endswith(f"({where})") and where in str(made.certificate)
        assert "at the entries; nothing between them" in str(made.statement()) and where in made.explain()
    assert "entries" not in repr(ma.compile("x", ma.Box(x=(0, 1)), error=0.1))


def test_a_coarse_account_of_rounding_is_counted_where_the_error_is_large():
    """Two keys that tie at every entry to within their rounding in float32: what is left of the error is that rounding."""
    axes = [np.linspace(-1, 1, 40)]
    keys = AxisKeys(np.array([3000.0, 3000.5]), np.array([3.3, 3.7]))
    group = Group(np.eye(1), (keys,), np.array([[1.0], [-1.0]]), None, None)
    layer = GroupedLayer(np.zeros(1), (group,), 0.0, -np.ones(1), np.ones(1), ((1, 1),), "float32")
    points = axes[0][:, None]
    z = points.astype(np.float32).astype(np.longdouble)
    stored = layer.groups[0].axes[0]
    scores = z * stored.slopes.astype(np.longdouble) + stored.offsets.astype(np.longdouble)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    table = ma.Table(axes, ((weights[:, 0] - weights[:, 1]) / weights.sum(axis=1)).astype(np.float64))
    error = max(
        float(np.abs(chooser.evaluate(layer, points, name).ravel().astype(np.float64) - table.values.ravel()).max())
        for name in ("factorised", "dense")
    )
    for promised in (1e-6, 10.0):  # a fine account, and a coarse one
        certificate, _ = certify_entries(layer, table, promised)
        tensors, description = to_tensors(layer)
        record = {
            "layer": description, "target": table.target.to_json(), "error": promised, "norm": "entries",
            "certificate": certificate.to_json(), "plan": {},
        }  # fmt: skip
        record["certificate"]["details"].pop("collapse", None)
        assert 2e-5 < error <= certificate.bound < 1.0 and error <= check(tensors, record, table).bound < 1.0
