"""A refusal says the reason, the nearest error within reach and what to try; what was tried stands in its details."""

import math
import pickle
from dataclasses import replace

import pytest

import maxaffine as ma
from maxaffine import search
from maxaffine.core.deadline import OutOfTime
from maxaffine.core.errors import rounded_up
from maxaffine.core.promise import kept
from maxaffine.heads import HEADS
from maxaffine.request import request_of

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


def test_a_bound_that_was_missed_is_the_nearest_error_and_is_not_named_where_it_would_be_missed_again(worse):
    missed = r"^no piecewise head was proved: 2 tokens: proved only to 0\.\d+ in float64"
    with pytest.raises(ma.Refused, match=missed) as never:
        ma.compile("abs(x-.25)", LINE, error=1e-3, method="piecewise")
    assert never.value.nearest_error is None and never.value.remedy == {}
    with pytest.raises(ma.Refused, match=missed) as caught:
        search.search(request_of("abs(x-.25)", LINE, error=1e-3), "piecewise")
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
    assert caught.value.nearest_error == rounded_up(1.01 * 0.625e-3)  # of the constant


def test_refusals_survive_other_processes():
    refusal = ma.Refused("too small.", nearest_error=0.123, tried=["one", "two"])
    again = pickle.loads(pickle.dumps(refusal))  # noqa: S301, what it wrote itself
    assert (str(again), again.reason, again.nearest_error, again.tried) == (str(refusal), "too small.", 0.13, ("one", "two"))
    assert str(refusal) == "too small. The nearest error within reach is about 0.13. Try `error=0.13` (--error 0.13)."


@pytest.mark.parametrize("value", [1e-300, 2.2e-16, 0.099999, 0.1, 1.0, 12.0, 9.99e5])
def test_what_is_proposed_is_never_smaller(value):
    assert value <= rounded_up(value) <= 1.2 * value and math.isclose(rounded_up(value), float(f"{rounded_up(value):.2g}"))
    assert rounded_up(rounded_up(value)) == rounded_up(value)


@pytest.mark.parametrize(
    ("target", "box", "asked"),
    [
        ("abs(x)", {"x": (-1, 1)}, {"error": 1e-15}),
        ("sin(x)", {"x": (-1, 1)}, {"error": 1e-9, "dtype": "float32"}),
        ("max(x, y)", {"x": (-1, 1), "y": (-1, 1)}, {"error": 1e-16}),
        ("exp(x)", {"x": (-5, 5)}, {"error": 1e-7, "relative": True, "dtype": "float32"}),
        ("exp(x)", {"x": (-5, 5)}, {"error": 1e-15, "relative": "pointwise"}),
        ("sin(x), cos(y)", {"x": (-1, 1), "y": (-1, 1)}, {"error": 1e-15}),
        ("sin(x) + y", {"x": (-1, 1), "y": (-1, 1)}, {"error": 1e-6, "method": "lookup", "run": ma.Run(max_bytes=1 << 22)}),
        ("exp(x)", {"x": (0, 1)}, {"error": 1e-10, "norm": 32}),
    ],
)
def test_the_nearest_error_is_met_when_it_is_asked_for(target, box, asked):
    with pytest.raises(ma.Refused) as refused:
        ma.compile(target, box, **asked)
    named = refused.value.nearest_error
    assert named > asked["error"] and f"within reach is about {named:.2g}." in str(refused.value)
    met = ma.compile(target, box, **{**asked, "error": float(f"{named:.2g}")})
    assert met.certificate.kind == "proved"


def served_from(least, says=None, sure=None):
    """A compile that is refused below an error, with another error named, and the errors it was asked for."""
    asked = []

    def again(error):
        asked.append(error)
        if error < least:
            raise ma.Refused("no.", nearest_error=says, sure=sure)

    return again, asked


def test_an_error_that_is_refused_when_asked_again_is_not_named():
    again, asked = served_from(0.03, says=0.011)
    told = kept(ma.Refused("no.", nearest_error=0.01), again, 1e-6)
    assert asked[0] == 0.01 and 0.03 <= told.nearest_error <= 0.12 and told.nearest_error in asked


def test_an_error_that_follows_from_a_plan_is_named_where_no_smaller_one_is_served():
    again, asked = served_from(1e3, sure=0.5)
    told = kept(ma.Refused("no.", nearest_error=0.01, sure=0.5), again, 1e-6)
    assert told.nearest_error == 0.5 and all(error < 0.5 for error in asked)


def test_no_error_is_named_where_none_is_served():
    def never(error):
        raise OutOfTime

    assert kept(ma.Refused("no.", nearest_error=0.01), never, 1e-6).nearest_error is None


def test_an_error_too_small_for_a_dtype_is_refused_as_that():
    box = {"x": (1, 2), "y": (1, 2)}
    with pytest.raises(ma.Refused, match=r"`error` \(=1e-63\) underflows float32"):
        ma.compile("1e-60*x*y", box, error=1e-63, dtype="float32")
    assert ma.compile("1e-60*x*y", box, error=1e-63).bound <= 1e-63
