"""A refusal says the reason, the nearest error within reach and what to try; what was tried stands in its details."""

import math
import pickle
from dataclasses import replace

import pytest

import maxaffine as ma
from maxaffine import search
from maxaffine.core.errors import rounded_up
from maxaffine.heads import HEADS

LINE = ma.Box(x=(-1, 1))


@pytest.fixture
def worse(monkeypatch):
    """Piecewise heads whose bound is a thousand times larger, and no others."""
    piecewise = HEADS["piecewise"]
    prove = type(piecewise).prove

    def weak(self, *arguments):
        found = prove(self, *arguments)
        return replace(found, bound=1e3 * found.bound)

    monkeypatch.setattr(type(piecewise), "prove", weak)
    monkeypatch.setattr(search, "HEADS", {name: HEADS[name] for name in ("piecewise", "lookup")})


def test_a_bound_that_was_missed_is_the_nearest_error(worse):
    with pytest.raises(ma.Refused, match=r"^no piecewise head was proved: 2 tokens: proved only to 0\.\d+ in float64") as caught:
        ma.compile("abs(x-.25)", LINE, error=1e-3, method="piecewise")
    refusal = caught.value
    assert 1e-3 < refusal.nearest_error < 1.0
    assert set(refusal.remedy) == {"error"} and refusal.remedy["error"] >= refusal.nearest_error
    assert str(refusal).endswith(f"Try `error={refusal.remedy['error']:g}` (--error {refusal.remedy['error']:g}).")


def test_where_all_heads_fail_the_closest_is_named_and_lookups_are_in_the_details(worse):
    with pytest.raises(ma.Refused, match="no head was proved to 1e-09: the closest is piecewise, 2 tokens") as caught:
        ma.compile("abs(x-.25)", LINE, error=1e-9, run=ma.Run(max_bytes=1 << 20))
    assert [line.partition(":")[0] for line in caught.value.tried] == ["piecewise", "lookup"]
    assert caught.value.details == "\n".join(caught.value.tried)


def test_where_one_constant_beats_every_miss_its_error_is_the_nearest(worse):
    with pytest.raises(ma.Refused, match="max_bytes") as caught:
        ma.compile("1e-3*abs(x-.25)", LINE, error=3e-4, run=ma.Run(max_bytes=100))
    assert caught.value.nearest_error == pytest.approx(0.625e-3, rel=0.02)  # of the constant


def test_refusals_survive_other_processes():
    refusal = ma.Refused("too small.", nearest_error=0.123, tried=["one", "two"])
    again = pickle.loads(pickle.dumps(refusal))  # noqa: S301, what it wrote itself
    assert (str(again), again.reason, again.nearest_error, again.tried) == (str(refusal), "too small.", 0.123, ("one", "two"))
    assert str(refusal) == "too small. The nearest error within reach is about 0.12. Try `error=0.13` (--error 0.13)."


@pytest.mark.parametrize("value", [1e-300, 2.2e-16, 0.099999, 0.1, 1.0, 12.0, 9.99e5])
def test_what_is_proposed_is_never_smaller(value):
    assert value <= rounded_up(value) <= 1.2 * value and math.isclose(rounded_up(value), float(f"{rounded_up(value):.2g}"))


def test_an_error_too_small_for_a_dtype_is_refused_as_that():
    box = {"x": (1, 2), "y": (1, 2)}
    with pytest.raises(ma.Refused, match=r"`error` \(=1e-63\) underflows float32"):
        ma.compile("1e-60*x*y", box, error=1e-63, dtype="float32")
    assert ma.compile("1e-60*x*y", box, error=1e-63).bound <= 1e-63
