"""Random targets of every head: kinks, jumps, singular ends, planes, curves, level sets, trees, products and ridges.

Sums and products of functions of straight and oblique directions (attack/patterns.toml), poles close to the box, oscillation,
large offsets, boxes far from the origin and boxes of very different sides; nests of max, min, abs and where with affine functions
inside.  Coefficients, boxes, errors, dtypes and gaps are drawn anew; what a head cannot serve is refused by it and costs nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from maxaffine.attack.case import PATTERNS, Case, Rng, Sides, number
from maxaffine.attack.separable_targets import separated
from maxaffine.target.box import Box

SMOOTH, FACTORS = PATTERNS["smooth"], PATTERNS["factors"]
KINKED, SINGULAR = PATTERNS["kinked"], PATTERNS["singular"]
SIDES: Sides = ((-1.0, 1.0), (-1.0, 1.0), (-1.0, 1.0), (0.0, 1.0), (-3.0, 2.0), (1000.0, 1001.0), (-1e-3, 2e-3))
FAR_SIDES: Sides = (
    (-1.0, 1.0), (-1.0, 1.0), (0.0, 1.0), (-3.0, 2.0), (0.25, 0.75), (1000.0, 1001.0), (-1e5, -99998.0), (-1e-3, 2e-3)
)  # fmt: skip
NAMES = ("x", "y", "z", "w", "v")


def normal(name: str, low: float, high: float) -> str:
    """A variable that runs over [-1, 1] on its side."""
    middle, half = (low + high) / 2.0, (high - low) / 2.0
    if (middle, half) == (0.0, 1.0):
        return name
    return f"({name}-{middle!r})/{half!r}" if middle >= 0 else f"({name}+{-middle!r})/{half!r}"


def direction(rng: Rng, variables: list[str]) -> str:
    """One variable, or an oblique direction of several; |u| <= 1 on the box."""
    if len(variables) == 1 or rng.random() < 0.5:
        return str(rng.choice(variables))
    picked = [str(v) for v in rng.permutation(variables)[: rng.integers(2, len(variables) + 1)]]
    weights = [number(rng.choice([1.0, -1.0]) * rng.choice([1.0, 1.0, 0.5, rng.uniform(0.2, 1.0)])) for _ in picked]
    return f"{number(1.0 / len(picked) - 0.0005)}*({_weighted(weights, picked)})"


def kinked(rng: Rng, variables: list[str], depth: int) -> str:
    """A continuous piecewise affine function: nested switches over affine ones."""
    if depth == 0 or rng.random() < 0.15:
        return f"({number(rng.uniform(-2.0, 2.0))}*({direction(rng, variables)}) + {number(rng.uniform(-0.6, 0.6))})"
    a, b = (kinked(rng, variables, depth - 1) for _ in range(2))
    c, h = number(rng.uniform(-1.5, 1.5)), direction(rng, variables)
    patterns = (
        f"max({a}, {b})", f"min({a}, {b})", f"abs({a})", f"relu({a})", f"clip({a}, -0.4, 0.3)", f"({a} + {c}*{b})",
        f"where({h} < 0.1, {a}, {a} + {c}*(({h}) - 0.1))", f"max({a}, {b}, {c})",
    )  # fmt: skip
    return str(rng.choice(patterns))


def cheap(rng: Rng) -> str:
    """A smooth function of x that few cells follow."""
    terms = [f"sin({rng.uniform(0.5, 3):.3g}*x)", f"{rng.uniform(-1, 1):.3g}*x", f"exp(-{rng.uniform(0.2, 2):.3g}*x**2)"]
    return str(rng.choice(terms))


def _weighted(weights: Sequence[str], variables: Sequence[str]) -> str:
    return " + ".join(f"{w}*({v})" for w, v in zip(weights, variables, strict=True))


def _affine(rng: Rng, variables: list[str]) -> str:
    return _weighted([number(rng.uniform(-2.0, 2.0)) for _ in variables], variables)


def _plane(rng: Rng, variables: list[str]) -> str:
    weights = [number(rng.choice([1.0, -1.0, 2.0, 0.5, 0.3, rng.uniform(-1.5, 1.5)])) for _ in variables]
    if len(variables) > 1 and rng.random() < 0.35:
        weights[int(rng.integers(len(weights)))] = "0"
    if all(w == "0" for w in weights):
        weights[0] = "1"
    total = " + ".join(f"{w}*({v})" for w, v in zip(weights, variables, strict=True) if w != "0")
    return f"({total} - {number(rng.uniform(-0.5, 0.5))})"


def _filled(rng: Rng, pattern: str, variables: list[str], u: str | None = None) -> str:
    """The pattern with random numbers and directions."""
    ranges = {"k": (1.0, 7.0), "m": (1.0, 5.0), "c": (0.05, 0.6), "a": (0.15, 0.6), "b": (0.7, 1.6), "d": (0.3, 2.0)}
    numbers = {name: number(rng.uniform(*ends)) for name, ends in ranges.items()}
    numbers["p"] = number(1.0 + 10.0 ** rng.uniform(-2.0, 0.3))
    numbers["e"] = number(10.0 ** rng.uniform(-2.0, 0.0))
    numbers["q"] = number(rng.uniform(10.0, 300.0))
    h, g = (_plane(rng, variables) for _ in range(2))
    x, y = variables[0], variables[min(1, len(variables) - 1)]
    return pattern.format(u=u or direction(rng, variables), x=x, y=y, h=h, g=g, **numbers)


def _some(rng: Rng, patterns: Sequence[str], variables: list[str], u: str | None = None) -> str:
    """One of the patterns, filled."""
    return _filled(rng, str(rng.choice(patterns)), variables, u)


def _box(rng: Rng, count: int, plain: bool, among: Sides = SIDES) -> tuple[Box, list[str]]:
    sides = [among[0] if plain else among[i] for i in rng.integers(0, len(among), count)]
    names = NAMES[:count]
    box = Box.named(names, [low for low, _ in sides], [high for _, high in sides])
    return box, [normal(name, *side) for name, side in zip(names, sides, strict=True)]


def _error(rng: Rng, coarse: float, fine: float, dtype: str) -> float:
    least = {"float64": fine, "float32": 4.0, "bfloat16": 1.5}[dtype]
    return float(10.0 ** -rng.uniform(coarse, max(coarse + 0.1, min(fine, least))))


def _dtype(rng: Rng, narrow: float = 0.3) -> str:
    return str(rng.choice(["float64", "float32"], p=[1.0 - narrow, narrow]))


def _any_dtype(rng: Rng) -> str:
    return str(rng.choice(["float64", "float32", "bfloat16"], p=[0.6, 0.25, 0.15]))


def _function(rng: Rng, variables: list[str], simple: bool) -> str:
    k = number(rng.choice([rng.uniform(0.5, 3.0), rng.uniform(2.0, 12.0)]))
    p = number(1.0 + 10.0 ** rng.uniform(-0.9, 0.5))
    u, v = direction(rng, variables), direction(rng, variables)
    kind = "one" if simple or len(variables) == 1 or rng.random() < 0.6 else "two"
    return str(rng.choice(PATTERNS[kind])).format(u=u, v=v, k=k, p=p)


def _text(rng: Rng, variables: list[str]) -> str:
    terms = []
    for _ in range(rng.integers(1, 4)):
        factors = [_function(rng, variables, simple=len(variables) > 2)]
        if rng.random() < 0.35:
            factors.append(_function(rng, [str(rng.choice(variables))], simple=True))
        terms.append(f"{number(rng.uniform(-2.0, 2.0))}*" + "*".join(f"({factor})" for factor in factors))
    if rng.random() < 0.15:
        terms.append(number(rng.choice([1e3, -50.0, 1e6])))
    return " + ".join(terms)


def random_case(rng: Rng) -> Case:
    """A target with its box, error, dtype and method: what is hard to approximate, enclose or round."""
    count = int(rng.choice([1, 2, 3], p=[0.45, 0.4, 0.15]))
    box, variables = _box(rng, count, False, FAR_SIDES)
    dtype, text = _any_dtype(rng), _text(rng, variables)
    # The finest errors go to the simplest targets: elsewhere they end in long searches and refusals, which attack nothing.
    simple = len(text) < 60 and count < 3
    finest = {"float64": 10.0 if simple else 7.0 if count < 3 else 5.0, "float32": 4.0, "bfloat16": 1.3}[dtype]
    error = float(10.0 ** -rng.uniform(1.0 if dtype != "bfloat16" else 0.5, finest))
    if rng.random() < 0.2:
        return Case(kinked(rng, variables, int(rng.integers(1, 4))), box, error, dtype, "piecewise")
    if rng.random() < 0.12 and count < 3:
        norm: float | str = "inf" if rng.random() < 0.7 else float(rng.choice([1.0, 2.0]))
        return Case(text, box, max(error, 0.05), "float64" if dtype == "bfloat16" else dtype, "lookup", norm)
    return Case(text, box, error, dtype, "spectral")


# ---------------------------------------------------------------------- a case per head


def _spectral(rng: Rng) -> Case:
    found = random_case(rng)
    return found if found.method == "spectral" else _spectral(rng)


def _piecewise(rng: Rng) -> Case:
    count, dtype = int(rng.integers(1, 4)), _any_dtype(rng)
    box, variables = _box(rng, count, rng.random() < 0.5)
    return Case(kinked(rng, variables, int(rng.integers(1, 4))), box, _error(rng, 1.0, 9.0, dtype), dtype, "piecewise")


def _along(patterns: str, fine: float, rng: Rng) -> Case:
    """A function of one variable or direction, with an affine function beside it in some."""
    count, dtype = int(rng.choice([1, 1, 1, 2, 3])), _dtype(rng)
    box, variables = _box(rng, count, rng.random() < 0.6)
    u = direction(rng, variables) if count > 1 else variables[0]
    text = f"{number(rng.uniform(0.4, 2.0))}*({_some(rng, PATTERNS[patterns], variables, u)})"
    if rng.random() < 0.3:
        text += f" + {_some(rng, SMOOTH, variables, u)}"
    if rng.random() < 0.4:
        text += f" + {_affine(rng, variables)}"
    return Case(text, box, _error(rng, 1.0, fine, dtype), dtype, "axis")


def _ramp(rng: Rng) -> Case:
    """A function of one variable or direction, at errors that chords reach."""
    made = _along("kinked" if rng.random() < 0.7 else "singular", 2.0, rng)
    return replace(made, error=float(10.0 ** -rng.uniform(0.2, 1.2)), method="ramp")


def _gapped(make: Callable[[Rng], Case], finest: float) -> Callable[[Rng], Case]:
    return lambda rng: replace(make(rng), gap=float(10.0 ** -rng.uniform(1.0, finest)))


def _integrated(make: Callable[[Rng], Case]) -> Callable[[Rng], Case]:
    return lambda rng: replace(make(rng), norm=float(rng.choice([1.0, 2.0])))


def _regions(rng: Rng, jumping: bool = False) -> Case:
    count, dtype = int(rng.choice([1, 2, 2, 3])), _dtype(rng)
    box, variables = _box(rng, count, rng.random() < 0.6)
    terms = []
    for i in range(int(rng.choice([1, 1, 2]))):
        switch = "sign({h})" if jumping and i == 0 else str(rng.choice(PATTERNS["switches"]))
        terms.append(f"({_filled(rng, switch, variables)})*{_some(rng, SMOOTH, variables)}")
    if rng.random() < 0.3:
        terms.append(_some(rng, SMOOTH, variables))
    return Case(" + ".join(terms), box, _error(rng, 1.0, 5.0 if count < 3 else 2.5, dtype), dtype, "regions")


def _regions_integrated(rng: Rng) -> Case:
    case, norm = _regions(rng, rng.random() < 0.8), float(rng.choice([1.0, 2.0, 1.5]))
    return replace(case, error=case.error * float(np.prod(case.box.width)) ** (1.0 / norm), norm=norm)


def _listed(patterns: str, method: str, coarse: float, fine: float, rng: Rng) -> Case:
    """One of the patterns alone, of two variables or, of maxima, three in some."""
    box, variables = _box(rng, int(rng.choice([2, 2, 3])) if patterns == "maxima" else 2, rng.random() < 0.7)
    dtype = _dtype(rng)
    return Case(_some(rng, PATTERNS[patterns], variables), box, _error(rng, coarse, fine, dtype), dtype, method)


def _level(rng: Rng) -> Case:
    box, variables = _box(rng, 2, rng.random() < 0.7)
    norm = float(rng.choice([1.0, 1.0, 2.0]))
    error = 10.0 ** -rng.uniform(0.4, 1.2) * float(np.prod(box.width)) ** (1.0 / norm)
    return Case(_some(rng, PATTERNS["levels"], variables), box, float(error), _dtype(rng), "level", norm)


def _products(rng: Rng) -> Case:
    """Factors of one direction each, the first of which switches or is singular; in some cases beside other terms."""
    count, dtype = int(rng.choice([2, 2, 2, 3])), _dtype(rng, 0.2)
    box, variables = _box(rng, count, rng.random() < 0.6)
    rows = []
    for i, v in enumerate(variables):
        u = direction(rng, variables) if rng.random() < 0.2 else v
        hard = SINGULAR if rng.random() < 0.25 else KINKED
        rows.append(f"({_some(rng, hard if i == 0 or rng.random() < 0.3 else SMOOTH + FACTORS, [v], u)})")
    text = f"{number(rng.uniform(-2.0, 2.0))}*{'*'.join(rows)}"
    if rng.random() < 0.3:
        text += f" + ({_some(rng, KINKED + SMOOTH, [variables[0]], variables[0])})"
    if rng.random() < 0.15:
        text += f" + abs({variables[0]}-{number(rng.uniform(-0.5, 0.5))})*cos({number(rng.uniform(0.5, 4.0))}*{variables[1]})"
    if rng.random() < 0.4:
        text += f" + {_affine(rng, variables)}"
    return Case(text, box, _error(rng, 1.0, 5.0 if count == 2 else 2.0, dtype), dtype, "products")


def _product_keys(rng: Rng) -> Case:
    count, dtype = int(rng.integers(2, 6)), _dtype(rng, 0.25)
    box, variables = _box(rng, count, rng.random() < 0.7)
    rows = ["*".join(f"({_some(rng, FACTORS, [v], v)})" for v in variables) for _ in range(int(rng.choice([1, 1, 2])))]
    return Case(" + ".join(rows), box, _error(rng, 1.0, 6.0, dtype), dtype, "spectral")


def _ridges(rng: Rng) -> Case:
    count, dtype = int(rng.integers(2, 4)), _dtype(rng)
    box, variables = _box(rng, count, rng.random() < 0.6)
    rows = []
    for _ in range(int(rng.choice([1, 2]))):
        weights = [number(rng.choice([1.0, -1.0, 0.5, 2.0, rng.uniform(0.2, 1.0)])) for _ in variables]
        u = f"{number(1.0 / (2.0 * count))}*({_weighted(weights, variables)})"
        rows.append(_some(rng, PATTERNS["ridges"], variables, u))
    return Case(" + ".join(rows), box, _error(rng, 1.0, 7.0, dtype), dtype, "spectral")


def _sums(rng: Rng) -> Case:
    count, dtype = int(rng.integers(2, 4)), _dtype(rng)
    box, variables = _box(rng, count, rng.random() < 0.6)
    rows = []
    for i, v in enumerate(variables):
        u = direction(rng, variables) if rng.random() < 0.25 else v
        patterns = KINKED if i == 0 or rng.random() < 0.4 else SINGULAR if rng.random() < 0.15 else SMOOTH + FACTORS
        rows.append(f"{number(rng.uniform(-2.0, 2.0))}*({_some(rng, patterns, [v], u)})")
    if rng.random() < 0.3:
        rows.append(f"({variables[0]})*({variables[1]})")
    if rng.random() < 0.4:
        rows.append(_affine(rng, variables))
    if rng.random() < 0.2:
        rows.append(f"max({_plane(rng, variables)}, {_plane(rng, variables)})")
    return Case(" + ".join(rows), box, _error(rng, 1.0, 6.0, dtype), dtype, "sums")


def _outputs(rng: Rng) -> Case:
    """Several outputs of different nature, of the one or the other variable or of both."""
    box, dtype = Box(x=(-1, 1), y=(-1, 1)), _dtype(rng, 0.25)
    rows = []
    for _ in range(int(rng.integers(2, 5))):
        v, kind = str(rng.choice(["x", "y"])), rng.random()
        if kind < 0.3:
            rows.append(f"max({_plane(rng, ['x', 'y'])}, {_plane(rng, ['x', 'y'])})")
        elif kind < 0.8:
            rows.append(_some(rng, KINKED if kind < 0.5 else SMOOTH, [v], v))
        else:
            rows.append(f"({_some(rng, FACTORS, ['x'], 'x')})*({_some(rng, FACTORS, ['y'], 'y')})")
    return Case(", ".join(rows), box, _error(rng, 1.0, 6.0, dtype), dtype, "outputs")


def _outputs_gapped(rng: Rng) -> Case:
    """One output that jumps along a direction, and others that do not."""
    case = HEADS["axis, gap"](rng)
    v = case.box.names[0]
    return replace(case, text=f"{case.text}, {_some(rng, SMOOTH, [v], v)}", method="outputs")


def _outputs_integrated(rng: Rng) -> Case:
    """The same in L_p."""
    case = HEADS["axis, L_p"](rng)
    v = case.box.names[0]
    return replace(case, text=f"{case.text}, {_some(rng, SMOOTH, [v], v)}", method="outputs")


def _lookup(rng: Rng) -> Case:
    if rng.random() < 0.4:
        text = f"sqrt(x+{rng.uniform(0, 0.1):.2g})*{rng.uniform(0.3, 1):.3g}"
        return Case(text, Box(x=(0, 1)), float(rng.uniform(0.05, 0.2)), _dtype(rng), "lookup")
    shift = float(rng.choice([0.0, 0.0, 0.3, 100.0]))
    box = Box(x=(shift - 1.0, shift + 1.0), y=(-1.0, float(rng.uniform(0.5, 2.0))))
    text = f"{cheap(rng)} + {rng.uniform(-1, 1):.3g}*y + cos(x*y)"
    return Case(text, box, float(rng.uniform(0.4, 0.8)), _dtype(rng), "lookup")


def _lookup_integrated(rng: Rng) -> Case:
    text = f"sign(x - {rng.uniform(-0.5, 0.5):.3g}) + {cheap(rng)}"
    norm = float(rng.choice([1.0, 2.0]))
    return Case(text, Box(x=(-1, 1)), float(rng.uniform(0.2, 0.6)), _dtype(rng), "lookup", norm)


HEADS: dict[str, Callable[[Rng], Case]] = {
    "piecewise": _piecewise,
    "axis": partial(_along, "kinked", 7.0),
    "axis, singular": partial(_along, "singular", 4.0),
    "axis, gap": _gapped(partial(_along, "jumping", 6.0), 7.0),
    "axis, L_p": _integrated(partial(_along, "jumping", 4.0)),
    "sums": _sums,
    "regions": _regions,
    "regions, gap": _gapped(partial(_regions, jumping=True), 6.0),
    "regions, L_p": _regions_integrated,
    "curved": partial(_listed, "curves", "curved", 0.6, 1.7),
    "curved, maximum": partial(_listed, "maxima", "curved", 0.6, 4.5),
    "level": _level,
    "ramp": _ramp,
    "tree": partial(_listed, "local", "tree", 0.5, 1.7),
    "products": _products,
    "spectral": _spectral,
    "spectral, products": _product_keys,
    "ridges": _ridges,
    "separated": separated,
    "outputs": _outputs,
    "outputs, gap": _outputs_gapped,
    "outputs, L_p": _outputs_integrated,
    "lookup": _lookup,
    "lookup, L_p": _lookup_integrated,
}
