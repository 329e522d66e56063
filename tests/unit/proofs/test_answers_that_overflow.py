"""Answers and sums that overflow a dtype are no answers: nothing is proved of layers that may give them."""

import json

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.checker import check
from maxaffine.heads.lookup import prove_grid as lookup
from maxaffine.layer.file import from_tensors
from maxaffine.proofs import combine, two_level
from maxaffine.proofs.rounding import rounding_of
from maxaffine.runtime import chooser

BOX = ma.Box(x=(-1, 1), y=(-1, 1))


def raised(text, method, error, power, box=BOX):
    """A compiled layer with all its values times 2^power, and a record that promises the same of 2^power times the target."""
    tensors, record = ma.compile(text, box, error=error, method=method, dtype="float32")._record()
    scale, made = 2.0**power, {}
    for name, tensor in tensors.items():
        grows = name == "tilt" or name.endswith(("values", "value_slopes"))
        made[name] = (np.asarray(tensor, dtype=np.float64) * (scale if grows else 1.0)).astype(tensor.dtype)
    record = json.loads(json.dumps(record))
    record["target"]["text"] = f"({text})*" + "*".join(["2**50"] * (power // 50) + [f"2**{power % 50}"])
    record["error"] = error * scale
    for row in record["plan"].get("groups", ()):
        row["share"] = row.get("share", 0.0) * scale
    record["certificate"]["bound"] *= scale
    record["certificate"]["parts"] = {name: part * scale for name, part in record["certificate"]["parts"].items()}
    record["literal"] = None
    record["certificate"]["details"] = {
        key: value * scale if key == "collapse" else value for key, value in record["certificate"]["details"].items()
    }
    return made, record


@pytest.mark.parametrize(("text", "method"), [(".9*abs(x)+.9*abs(y)", "sums"), (".9*abs(x)+.9*y", "axis")])
def test_a_file_whose_answers_overflow_is_not_confirmed(text, method):
    tensors, record = raised(text, method, 1e-2, 128)
    assert all(np.isfinite(tensor).all() for tensor in tensors.values())
    layer = from_tensors(tensors, record["layer"])
    with np.errstate(over="ignore"):
        assert not np.isfinite(chooser.evaluate(layer, np.ones((1, 2)))).all()
    verdict = check(tensors, record)
    assert not verdict.passed and "too large for its dtype" in verdict.reason
    assert combine.underflow(layer) == np.inf
    tensors, record = raised(text, method, 1e-2, 116)
    assert check(tensors, record).passed and combine.underflow(from_tensors(tensors, record["layer"])) < 1e-30


def test_lookups_whose_sums_overflow_before_they_are_divided_are_not_proved():
    """The streaming runtime adds up many values before it divides by the normaliser."""
    made = ma.compile("1.6e30*cos(x*y)", BOX, error=2e29, method="lookup", dtype="float32")
    tensors, record = made._record()
    assert check(tensors, record).passed
    tensors = dict(tensors) | {"values": (np.asarray(tensors["values"], dtype=np.float64) * 1e8).astype(np.float32)}
    record = json.loads(json.dumps(record))
    record["target"]["text"], record["error"] = "1.6e30*cos(x*y)*1e8", 2.2e37
    layer = from_tensors(tensors, record["layer"])
    x = np.random.default_rng(0).uniform(-1, 1, (2000, 2))
    with np.errstate(all="ignore"):
        assert not np.isfinite(chooser.evaluate(layer, x, "blocked")).all()
    assert lookup.runtime_rounding(layer, rounding_of(layer)) == np.inf
    verdict = check(tensors, record)
    assert not verdict.passed and "overflow" in verdict.reason
    with pytest.raises(ma.Refused):
        ma.compile("1.6e38*cos(x*y)", BOX, error=4e37, method="lookup", dtype="float32")


def test_local_coordinates_that_overflow_are_not_confirmed():
    """Keys of zero times an infinite coordinate are no number."""
    made = ma.compile("where(x*x+y*y<.5,1,0)", BOX, error=0.3, method="level", norm=1, dtype="float32")
    tensors, record = made._record()
    assert check(tensors, record).passed
    tensors = dict(tensors) | {"group.0.radii": np.full_like(tensors["group.0.radii"], 1e-39)}
    layer = from_tensors(tensors, record["layer"])
    verdict = check(tensors, record)
    assert not verdict.passed and "too large" in verdict.reason
    whole = two_level.whole_reach(layer, layer.groups[0])
    assert two_level.cluster_errors(layer, layer.groups[0], 0, whole[0]).score == np.inf
