"""The requests that the contract of heads is tested with: every head of HEADS, in every dtype that it serves, in every shape.

A case is compiled once per process; its tests share an xdist group, so that they run in one process.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.attack.layers import sequence_answer
from maxaffine.heads import HEADS
from maxaffine.target.target import Target

DTYPES = ("float64", "float32", "bfloat16")
LINE, SQUARE, WIDE = ma.Box(x=(-1, 1)), ma.Box(x=(-1, 1), y=(-1, 1)), ma.Box(x=(-2, 2), y=(-2, 2))
CUBE, LATE = ma.Box(x=(-1, 1), y=(-1, 1), z=(-1, 1)), ma.Box(x=(1000, 1003))
STEP = "where(x**2 + y**2 < 1, 1, 0) - .7*where(x + .3*y > .4, 1, 0)"


@dataclass(frozen=True)
class Case:
    """A target, its box, the error for each dtype that it compiles in, options; None asks for no error."""

    target: Any
    box: Any
    errors: Mapping[str, float | None]
    options: Mapping[str, Any] = field(default_factory=dict)
    forged: int = 0  # random forgeries of its file
    walked: bool = False  # whether every route is walked

    @property
    def entries(self) -> Any:
        """The table or samples that a file does not hold."""
        return self.target if isinstance(self.target, ma.Table | ma.Samples) else None


def _table() -> ma.Table:
    a, b = np.linspace(0, 1, 9), np.linspace(-1, 1, 7)
    return ma.Table([a, b], np.sin(2 * a)[:, None] * np.cos(b))


def _irregular() -> ma.Table:
    rng = np.random.default_rng(0)
    rough = np.sort(rng.uniform(0, 1, 5)).astype(np.float32).astype(np.float64)  # numbers that float32 queries can be
    return ma.Table([np.array([0.0, 1.0, 2.5, 3.0]), rough], rng.normal(size=(4, 5)))


def _samples() -> ma.Samples:
    points = np.random.default_rng(3).uniform(-1, 1, (60, 2))
    return ma.Samples(points, np.sin(points[:, 0]) + points[:, 1])


def _sites() -> ma.MaxAffine:
    return ma.MaxAffine.from_power_diagram(np.random.default_rng(0).uniform(-1, 1, (25, 2)))


def _ring(count: int) -> np.ndarray:
    t = np.linspace(0, 2 * math.pi, count)
    return np.c_[np.cos(t), np.sin(t)]


def _pair() -> Target:
    boxes = ma.Box.sequence(d=1, n=2, low=-1, high=1), ma.Box.sequence(d=2, n=1, low=-1, high=1)
    return Target.of("sin(q_x1 + k_x11), q_x2*k_x21", boxes, output_shape=(1, 2))


def _sequence() -> Target:
    return Target.of("x11*x22, sin(x12), x21, x11", ma.Box.sequence(d=2, n=2, low=-1, high=1), output_shape=(2, 2))


def _tokens() -> Target:
    text = "max(x1, x2) + cos(x1), x1*x2; cos(x1) - max(x1, x2), x2"  # tokens with terms in common
    return Target.of(text, ma.Box.sequence(d=1, n=2, low=-1, high=1))


def _walked(target: Any, box: Any, errors: tuple[float | None, ...], forged: int = 0, **options: Any) -> Case:
    return Case(target, box, dict(zip(DTYPES, errors, strict=False)), options, forged, True)


def _kind(target: Any, box: Any, error: float, dtype: str = "float64", **options: Any) -> Case:
    return Case(target, box, {dtype: error}, options)


MATRIX = Target.of("sin(x), x, cos(x), x*x", LINE, output_shape=(2, 2))
WALKED = {  # through every route
    "axis": _walked("abs(sin(3*x))", LINE, (1e-6, 1e-3, 0.1), 60),
    "axis, smooth": _walked("exp(x)", LINE, (1e-4, 1e-3, 0.05), method="axis"),
    "axis, gap": _walked("sign(x - .3) + x", LINE, (1e-3, 1e-2, 0.1), 60, gap=1e-3),
    "axis, L_1": _walked("sign(x - .3) + sin(x)", LINE, (1e-2, 1e-2, 0.1), 60, norm=1),
    "sums": _walked("abs(x - .2) + sin(2*y)", SQUARE, (1e-4, 1e-2, 0.1), 60),
    "products": _walked("abs(x - .1)*cos(y)", SQUARE, (2e-2, 2e-2, 0.1), 60, method="products"),
    "regions": _walked("abs(x + 2*y - .3)*cos(x)", SQUARE, (1e-2, 1e-1), 50, method="regions"),
    "regions, L_2": _walked("where(x + y > .1, cos(x), y)", SQUARE, (1e-1,), 50, norm=2, method="regions"),
    "curved kink": _walked("max(x**2 + y**2, .5)", SQUARE, (1e-1, 1e-1), 40, method="curved"),
    "curved maximum": _walked("max(sin(3*x), y)", SQUARE, (1e-1, 1e-1), 40, method="curved"),
    "tree": _walked("exp(-9*((x - .2)**2 + y**2))", SQUARE, (1e-1, 1e-1), 15, method="tree"),
    "piecewise": _walked("max(x, y, .3)", SQUARE, (1e-4, 1e-4, 1e-2), 80),
    "level, L_1": _walked("where(x**2 + y**2 < .5, 1, 0)", SQUARE, (4e-1, 4e-1), 15, norm=1, method="level"),
    "ramp": _walked("abs(sin(3*x) - .3)", LINE, (1e-1, 2e-1), 4, method="ramp"),
    "spectral, listed": _walked("sin(x*y)", SQUARE, (1e-2, 1e-2), 50, method="spectral"),
    "spectral, factored": _walked("sin(x)*cos(2*y)", SQUARE, (1e-3, 1e-2, 0.1), 50, method="spectral"),
    "spectral, affine": _walked("sin(x)", LINE, (1e-3, 1e-3, 0.1), 60, method="spectral"),
    "spectral, single": _walked("cos(4*x)", LINE, (5e-2, 5e-2, 0.1), method="spectral"),
    "spectral, a sum": _walked("sin(x) + cos(y)", SQUARE, (1e-6, 1e-3, 0.1), 60, method="spectral"),
    "outputs": _walked("abs(x - .3), sin(x*y), abs(x + .2)", SQUARE, (1e-3, 1e-2), 30, method="outputs"),
    "outputs, tokens": _walked(_tokens(), None, (1e-3, 1e-2), 20, method="outputs"),
    "outputs, gap": _walked("sign(x - .3) + x, cos(y)", SQUARE, (1e-2,), 20, gap=1e-2, method="outputs"),
    "outputs, L_1": _walked("sign(x - .3) + x, sin(x + y)", SQUARE, (1e-1,), 20, norm=1, method="outputs"),
    "lookup": _walked("sin(3*x) + y", SQUARE, (0.5, 0.5), 30, method="lookup"),
    "lookup, L_1": _walked("sign(x - .3) + x", LINE, (0.2, 0.2), 50, norm=1, method="lookup"),
    "partition": _walked("x + y/2", SQUARE, (1.2, 1.2), 60, method="lookup", keys=_sites()),
    "centres": _walked("sin(2*x) + y/2", WIDE, (0.8, 0.8), 60, method="lookup", keys=_ring(60)),
    "matrix": _walked(MATRIX, None, (0.3, 0.3), 40, method="lookup"),
    "sequence": _walked(sequence_answer, ma.Box.sequence(2, 2), (0.9, 0.9), method="lookup", lipschitz=[1, 1, 1, 1], trace=False),
    "table": _walked(_table(), None, (1e-2, 1e-2, 0.1), 60),
    "hard table": _walked(_irregular(), None, (None, None, None), method="nearest"),
}
KINDS = {  # other shapes of the same heads
    "axis, a direction": _kind("exp(-abs(3*(x + y))) + y", SQUARE, 1e-3),
    "axis, a root": _kind("sqrt(x + 1)", LINE, 1e-2),
    "piecewise, three variables": _kind("max(x, y) + min(x - y, z)", CUBE, 1e-3),
    "regions, gap": _kind("sign(x + y - .1)*cos(x)", SQUARE, 1e-3, method="regions", gap=1e-2),
    "curved, below": _kind("min(2*x**2 + 2*y**2, x + 1.5)", SQUARE, 5e-2, method="curved"),
    "curved, both sides": _kind("abs(x**2 + y**2 - .5)", SQUARE, 5e-2, "float32", method="curved"),
    "level, L_2": _kind("sign(.4 - x**2 - y**2)", SQUARE, 0.5, method="level", norm=2),
    "tree, a wave": _kind("sin(3*x*y)", SQUARE, 5e-2, "float32", method="tree"),
    "spectral, one direction": _kind("sin(x)/1000", LINE, 0.01, method="spectral"),
    "spectral, product and more": _kind("sin(x)*cos(y) + sin(x*y)", SQUARE, 1e-5, method="spectral"),
    "spectral, four factors": _kind("exp(-x**2-y**2-z**2-u**2)", dict.fromkeys("xyzu", (-1, 1)), 1e-2, method="spectral"),
    "spectral, oblique": _kind("sin(x+y)/1000", SQUARE, 0.05, "float32", method="spectral"),
    "spectral, three outputs": _kind("sin(x)*cos(y), x - y, exp(x)", SQUARE, 1e-3, method="spectral"),
    "spectral, shared directions": _kind("sin(x) + cos(y), sin(x) - cos(y)", SQUARE, 1e-3, "float32", method="spectral"),
    "spectral, far away": _kind("sin(x - 1000)", LATE, 1e-6, method="spectral"),
    "products, waves": _kind("abs(sin(7*x))*exp(y)", SQUARE, 1e-2, method="products"),
    "products, roots": _kind("sqrt(x*y)", {"x": (0, 1), "y": (0, 2)}, 1e-2, method="products"),
    "products, three": _kind("abs(x)*abs(y)*abs(z)", CUBE, 1e-2, method="products"),
    "products, leaning": _kind("abs(x)*sin(3*y)+2*x/3-y-1", SQUARE, 1e-4, method="products"),
    "products, float32": _kind("abs(x)*sin(3*y)+2*x/3-1", SQUARE, 1e-3, "float32", method="products"),
    "products, vanishing": _kind("(x+y)*abs(x-y)+100+x/3", SQUARE, 1e-5, method="products"),
    "lookup, declared": _kind("sin(3*x) + y", SQUARE, 0.2, method="lookup", lipschitz=[3, 1]),
    "lookup, E2": _kind("sin(x + y)", SQUARE, 0.3, method="lookup"),
    "lookup, E2 declared": _kind("sin(x + y)", SQUARE, 0.3, method="lookup", lipschitz=1.4143),
    "lookup, G4": Case("sqrt(x)", ma.Box(x=(0, 1)), {"float64": 0.1}, {"method": "lookup"}, 6),
    "lookup, many centres": _kind("sin(2*x) + y/2", WIDE, 0.4, method="lookup", keys=_ring(300)),
    "lookup, many centres in float32": _kind("sin(2*x) + y/2", WIDE, 0.4, "float32", method="lookup", keys=_ring(300)),
    "lookup, steps in L_1": _kind(STEP, WIDE, 0.8, method="lookup", norm=1),
    "lookup, steps in L_2": _kind(STEP, WIDE, 0.8, method="lookup", norm=2),
    "lookup, L_3": _kind("sign(x - .3) + x", LINE, 0.2, method="lookup", norm=3),
    "lookup, kink": _kind("sin(3*x) + abs(x)", LINE, 0.1, "float32", method="lookup"),
    "lookup, three outputs": _kind("sin(x), cos(x), x*abs(x)", ma.Box(x=(-1, 2)), 0.1, method="lookup"),
    "lookup, sequences": _kind(_sequence(), None, 1.0, method="lookup"),
    "lookup, a pair": _kind(_pair(), None, 1.0, method="lookup"),
    "lookup, far away": _kind("sin(x - 1000)", LATE, 0.05, "float32", method="lookup"),
    "lookup, constant": _kind("1.5 + 0*x", ma.Box(x=(0, 1)), 1e-9, method="lookup"),
    "samples": _kind(_samples(), None, 1e-2),
}
EXAMPLES = {  # what the heads themselves name
    f"example {i + 1} of {name}": Case(
        one.target, ma.Box(**one.box), {"float64": one.error}, {"method": name, **one.options}
    )
    for name, head in HEADS.items()
    for i, one in enumerate(head.examples)
}
CASES = {**WALKED, **KINDS, **EXAMPLES}


def grouped(names: Any) -> list[Any]:
    """Parameters of a test: the names of cases, those of a case in one process."""
    return [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in names]


def in_dtypes(names: Any) -> list[Any]:
    """The same with every dtype that a case compiles in."""
    pairs = [(name, dtype) for name in names for dtype in CASES[name].errors]
    return [pytest.param(name, dtype, marks=pytest.mark.xdist_group(name)) for name, dtype in pairs]


@cache
def compiled(name: str, dtype: str = "float64") -> ma.Compiled:
    """The layer of a case."""
    case = CASES[name]
    error = case.errors[dtype]
    return ma.compile(case.target, case.box, dtype=dtype, **({} if error is None else {"error": error}), **case.options)


def stored(name: str, dtype: str = "float64") -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors and record as its file has them, to be changed."""
    tensors, record = compiled(name, dtype)._record()
    return {key: np.array(tensor) for key, tensor in tensors.items()}, copy.deepcopy(record)
