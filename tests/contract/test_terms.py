"""Every named term of a bound is needed: for each there is a layer whose true error exceeds the bound without it.

A certificate is the sum of its parts.  A layer is extremal for a part where (bound - part) < true error <= bound: some are so as
compiled, most have their stored numbers moved by hand until that part carries nearly all of the error.  The checker, which names
no parts, must bound the same layers from above.
"""

import copy
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.attack.domain import Domain
from maxaffine.attack.search import worst_point
from maxaffine.checker import check
from maxaffine.layer.file import from_tensors
from maxaffine.proofs.certificate import Certificate
from maxaffine.runtime import chooser

Tensors = dict[str, Any]
Move = Callable[[Tensors, dict[str, Any]], None]
LINE, SQUARE = {"x": (-1, 1)}, {"x": (-1, 1), "y": (-1, 1)}


# ---------------------------------------------------------------------- what is moved


def as_compiled(tensors: Tensors, record: dict[str, Any]) -> None:
    """Nothing is moved."""


def values(by: float) -> Move:
    """Every value, or the first factor of every product, is off by that much."""

    def move(tensors: Tensors, record: dict[str, Any]) -> None:
        for name in tensors:
            if name.endswith("values"):
                tensors[name] = (tensors[name] + by).astype(tensors[name].dtype)
            if name.endswith("0.factor"):
                tensors[name] = (tensors[name] * (1.0 + by)).astype(tensors[name].dtype)

    return move


def steepness(times: float) -> Move:
    """Scores of clusters are so many times steeper, and the record says so."""

    def move(tensors: Tensors, record: dict[str, Any]) -> None:
        for name in tensors:
            if "sites" in name:
                tensors[name] = (tensors[name] * times).astype(tensors[name].dtype)
        for word in {"steepness", "sharpness"} & set(record["plan"]):
            before = record["plan"][word]
            record["plan"][word] = [times * one for one in before] if isinstance(before, list) else times * before

    return move


def group_bias(to: float) -> Move:
    """The bias that keeps groups apart is smaller."""

    def move(tensors: Tensors, record: dict[str, Any]) -> None:
        (word,) = {"bonus", "group_bias"} & set(record["layer"])
        record["layer"][word] = to

    return move


def told(bound: float, move: Move) -> Move:
    """That bound is stated of every part, and another move."""

    def both(tensors: Tensors, record: dict[str, Any]) -> None:
        for one in record["certificate"]["within"]:
            one["bound"] = bound
        move(tensors, record)

    return both


@dataclass(frozen=True)
class Extreme:
    """A layer, what is moved in it, the part of the bound that this is about, and how the layer is run."""

    text: str
    box: Mapping[str, tuple[float, float]]
    error: float
    options: Mapping[str, Any]
    part: str
    move: Move = as_compiled
    runtime: str | None = None  # the first that the layer has
    promised: float = 30.0  # errors: what the moved record promises


SPECTRAL, BF16 = {"method": "spectral"}, {"method": "spectral", "dtype": "bfloat16"}
PLANE, PLANES = "abs(x + 2*y - .3)*cos(x)", {"method": "regions"}
EXTREMES = {
    "spectral, heads differ": Extreme("sin(x) + cos(y)", SQUARE, 1e-4, SPECTRAL, "approximation", runtime="factorised"),
    "spectral, moved values": Extreme("sin(x) + cos(y)", SQUARE, 1e-4, SPECTRAL, "approximation", values(3e-4)),
    "spectral, groups leak": Extreme("sin(x) + cos(y)", SQUARE, 1e-4, SPECTRAL, "leakage", group_bias(8.0), "dense"),
    "spectral, rounded queries": Extreme("sin(x) + cos(y)", SQUARE, 0.1, BF16, "rounding", runtime="factorised", promised=0.03),
    "spectral, listed values": Extreme("sin(x*y)", SQUARE, 1e-2, SPECTRAL, "approximation", values(3e-2), "factorised"),
    "spectral, factored values": Extreme("sin(x)*cos(2*y)", SQUARE, 1e-2, SPECTRAL, "approximation", values(3e-2), "factorised"),
    "axis, heads differ": Extreme("abs(sin(3*x))", LINE, 1e-3, {"method": "axis"}, "approximation"),
    "axis, moved values": Extreme("abs(sin(3*x))", LINE, 1e-3, {"method": "axis"}, "approximation", values(3e-3)),
    "axis, blunt kinks": Extreme("abs(sin(3*x))", LINE, 1e-3, {"method": "axis"}, "approximation", steepness(0.03)),
    "axis, bfloat16": Extreme("abs(sin(3*x))", LINE, 0.1, {"method": "axis", "dtype": "bfloat16"}, "approximation"),
    "piecewise, tokens that meet": Extreme("max(x, y, .3)", SQUARE, 1e-2, {"method": "piecewise"}, "leakage"),
    "piecewise, float32": Extreme("max(x, y, .3)", SQUARE, 1e-2, {"method": "piecewise", "dtype": "float32"}, "leakage"),
    "piecewise, moved values": Extreme("max(x, y, .3)", SQUARE, 1e-2, {"method": "piecewise"}, "rounding", values(3e-2)),
    "piecewise, blunt scores": Extreme("max(x, y, .3)", SQUARE, 1e-2, {"method": "piecewise"}, "rounding", steepness(0.3)),
    "sums, heads differ": Extreme("abs(x - .2) + sin(2*y)", SQUARE, 1e-2, {"method": "sums"}, "approximation"),
    "sums, moved values": Extreme("abs(x - .2) + sin(2*y)", SQUARE, 1e-2, {"method": "sums"}, "approximation", values(3e-2)),
    "sums, blunt kinks": Extreme("abs(x - .2) + sin(2*y)", SQUARE, 1e-2, {"method": "sums"}, "approximation", steepness(0.1)),
    "products, factors differ": Extreme("abs(x - .1)*cos(y)", SQUARE, 2e-2, {"method": "products"}, "approximation"),
    "regions, heads differ": Extreme(PLANE, SQUARE, 1e-2, PLANES, "approximation", values(3e-2)),
    "regions, blunt scores": Extreme(PLANE, SQUARE, 1e-2, PLANES, "leakage", steepness(0.1)),
    "regions, bfloat16": Extreme(PLANE, SQUARE, 0.1, {**PLANES, "dtype": "bfloat16"}, "leakage", promised=1.0),
    "curved, the soft kink": Extreme("max(x**2 + y**2, .5)", SQUARE, 1e-1, {"method": "curved"}, "leakage"),
    "curved, a blunt kink": Extreme("max(x**2 + y**2, .5)", SQUARE, 1e-1, {"method": "curved"}, "leakage", steepness(0.3)),
    "curved maximum, polygons": Extreme("max(sin(3*x), y)", SQUARE, 1e-1, {"method": "curved"}, "approximation"),
    "ramp, ramps and chords": Extreme("sin(3*x)", LINE, 0.2, {"method": "ramp"}, "approximation"),
    "ramp, moved values": Extreme("sin(3*x)", LINE, 0.2, {"method": "ramp"}, "approximation", values(0.3)),
    "ramp, groups leak": Extreme("sin(3*x)", LINE, 0.2, {"method": "ramp"}, "leakage", group_bias(8.0), "dense", promised=1e12),
    "outputs, terms err together": Extreme(
        "abs(x) + cos(y), abs(x) - cos(y)", SQUARE, 1e-2, {"method": "outputs"}, "approximation", told(0.1, values(3e-2))
    ),
    "outputs, one blends": Extreme("abs(x) + cos(y), abs(x) - cos(y)", SQUARE, 1e-2, {"method": "outputs"}, "leakage"),
    "tree, pieces differ": Extreme("sqrt(.4 + x**2 + y**2)", SQUARE, 1e-1, {"method": "tree"}, "approximation"),
    "tree, moved values": Extreme("sqrt(.4 + x**2 + y**2)", SQUARE, 1e-1, {"method": "tree"}, "approximation", values(0.3)),
}


# ---------------------------------------------------------------------- what is said of it, and what is true


@functools.cache
def made(name: str) -> tuple[Any, Tensors, dict[str, Any], Any, float]:
    """The compiled layer; tensors, record and layer after the move; the largest error found."""
    case = EXTREMES[name]
    compiled = ma.compile(case.text, ma.Box(**case.box), error=case.error, **case.options)
    tensors, record = compiled._record()
    tensors, record = {key: np.array(one) for key, one in tensors.items()}, copy.deepcopy(record)
    case.move(tensors, record)
    record["error"] = case.promised * case.error
    layer = from_tensors(tensors, record["layer"])
    runtime = case.runtime or chooser.available(layer)[0]
    found = worst_point(layer, compiled.target, np.random.default_rng(0), runtime, Domain())
    return compiled, tensors, record, layer, found.error


def certified(compiled: Any, layer: Any, error: float, runtime: str) -> Certificate:
    """What the certificate of the method says of another layer."""
    prove = compiled.prove
    assert isinstance(prove, partial)

    def other(arg: Any) -> Any:
        if arg is compiled.weights:
            return layer
        if isinstance(arg, float) and arg == compiled.error:
            return error
        if is_dataclass(arg) and not isinstance(arg, type) and getattr(arg, "error", None) == compiled.error:
            return replace(arg, error=error)
        return arg

    said: Certificate = prove.func(*map(other, prove.args), runtime)
    return said


@pytest.mark.parametrize("name", EXTREMES)
def test_without_this_part_the_bound_would_be_false(name: str) -> None:
    compiled, _, record, layer, true = made(name)
    case = EXTREMES[name]
    said = certified(compiled, layer, record["error"], case.runtime or chooser.available(layer)[0])
    assert said.bound is not None and true <= said.bound
    assert true > said.bound - said.parts[case.part], (true, said.bound, said.parts)


@pytest.mark.parametrize("name", EXTREMES)
def test_the_checker_bounds_the_same_layer(name: str) -> None:
    _, tensors, record, _, true = made(name)
    verdict = check(tensors, record)
    assert verdict.bound is not None and true <= verdict.bound


def test_every_part_that_can_be_large_has_an_extremal_layer() -> None:
    assert {case.part for case in EXTREMES.values()} == {"approximation", "leakage", "rounding"}
    methods = {case.options["method"] for case in EXTREMES.values()}
    assert methods == {"spectral", "axis", "piecewise", "sums", "products", "regions", "curved", "tree", "ramp", "outputs"}
