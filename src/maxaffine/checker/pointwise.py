"""Errors relative to |f(x)| at every x: |layer - f| <= b where |f| >= m gives (b / m) |f|, and m is shown by boxes cut in three.

A file states m as `least`, and everything that is divided by it rests on that.  It is shown box by box, never taken.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from maxaffine.checker.boxes import Bounds, supremum
from maxaffine.checker.proved import Form, NotProved, Proved
from maxaffine.core.arrays import Array
from maxaffine.target.target import Target

NAME = "pointwise"  # the norm of records whose bounds are relative
BUDGET = 60_000  # pieces of the box
ROUNDED = 1.0 + 2.0**-50


def is_pointwise(record: Mapping[str, Any]) -> bool:
    """Whether the bounds of a record are relative to |f(x)|; NotProved where its certificate says otherwise."""
    certificate = record["certificate"]
    stated = [record["norm"] == NAME, certificate.get("norm") == NAME, certificate.get("least") is not None]
    if len(set(stated)) > 1:
        raise NotProved("what its record and its certificate measure the error by are not the same.")
    return bool(stated[0])


def shown_least(record: Mapping[str, Any], target: Target) -> float:
    """The lower bound of |f| on the box that a certificate states, shown; NotProved where it is not."""
    least = record["certificate"]["least"]
    if type(least) not in (int, float) or not 1e-300 < least < 1e300:
        raise NotProved("the lower bound of its target that it states is not a positive number.")
    if target.expression is None:
        raise NotProved("only of expressions it is shown that they have no zero.")
    box = target.box

    def measure(lows: Array, highs: Array, _: object) -> Bounds:
        with np.errstate(all="ignore"):
            found = target.enclose(lows, highs)
            apart = np.maximum(found.lo, -found.hi).reshape(len(lows), -1)  # from 0, where it is positive
            over = np.where(apart > 0.0, least / apart, np.inf)
        return Bounds(over.max(axis=1) * ROUNDED, None, _longest(lows, highs, box.width))

    worst = supremum(measure, box.low[None], box.high[None], budget=BUDGET, goal=1.0).worst
    if not worst <= 1.0:
        raise NotProved(f"its target is not shown to stay {least:.6g} away from 0 on the box.")
    return float(least)


def _longest(lows: Array, highs: Array, width: Array) -> Any:
    return ((highs - lows) / width).argmax(axis=1)


def absolutely(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record as rules of absolute errors read it; what it claims is not theirs to judge."""
    certificate = {name: value for name, value in record["certificate"].items() if name != "least"}
    return {**record, "norm": "inf", "certificate": {**certificate, "norm": "inf"}}


def relatively(prove: Callable[[float], Proved], least: float) -> Callable[[float], Proved]:
    """A proof of absolute errors as one of errors relative to |f| >= least."""

    def proved(error: float) -> Proved:
        found = prove(error * least / ROUNDED)
        literal = found.literal

        def claimed(form: Form, goal: float) -> float:
            assert literal is not None
            return literal(form, goal * least) / least * ROUNDED

        bound = found.bound / least * ROUNDED if math.isfinite(found.bound) else math.inf
        return Proved(bound, f"{found.how}; |f| above {least:.6g} by boxes cut in three", claimed if literal else None)

    return proved
