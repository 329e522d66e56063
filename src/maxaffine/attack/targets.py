"""Random targets of every head: kinks, jumps, singular ends, planes, curves, level sets, trees, products and ridges.

Coefficients, boxes, errors, dtypes and gaps are drawn anew; what a head cannot serve is refused by it and costs nothing.
"""

from collections.abc import Callable

import numpy as np

from maxaffine.attack.smooth_targets import Case, direction, kinked, normal, number, random_case
from maxaffine.target.box import Box

SIDES = ((-1.0, 1.0), (-1.0, 1.0), (-1.0, 1.0), (0.0, 1.0), (-3.0, 2.0), (1000.0, 1001.0), (-1e-3, 2e-3))
NAMES = ("x", "y", "z", "w", "v")

KINKED = (
    "abs(sin({k}*{u}))", "max(sin({k}*{u}), cos({m}*{u}))", "abs({u}-{c})", "exp(-abs({k}*({u}-{c})))", "relu({u}-{c})**2",
    "abs(tanh({k}*({u}-{c})))", "min(({u})**2, {a})", "max(0, sin({k}*{u}))**2", "abs(({u})**2-{a})", "({u}-{c})*abs({u}-{c})",
    "cos({u})*abs({u}-{c})", "max({u}, sin({k}*{u}), {c})", "log(1+abs({k}*{u}))", "abs({u}-{c})+abs({u}+{c})",
)  # fmt: skip
SINGULAR = (
    "sqrt({u}+1)", "sqrt(abs({u}-{c}))", "cbrt({u}-{c})", "log({u}+{p})", "1/({p}-({u}))", "(({u})+1)**1.5", "sqrt(1-({u})**2)",
    "asin({u})", "acos({u})", "sqrt(1-({u}))*cos({u})", "(1-({u})**2)**.7", "sqrt(1-({u})**4)", "sqrt(2-2*cos({u}-{c}))",
)  # fmt: skip
JUMPING = (
    "sign({u}-{c})*exp({u})+abs({u}+{a})", "floor({m}*{u})", "sign(sin({k}*{u}))", "where({u}<{c}, sin({k}*{u}), cos({u}))",
    "floor(2.3*({u}))*({u})", "sign({u}-{c})", "where({u}<{c}, {u}, 1-abs({u}))",
)  # fmt: skip
SWITCHES = ("abs({h})", "relu({h})", "max({h}, {a})", "min({h}, {g})", "max({h}, {g})", "clip({h}, -{a}, {a})")
SMOOTH = ("cos({u})", "exp({u}/2)", "(1+({u})**2)", "sin({k}*{u})", "1", "1/({p}+({u}))", "tanh({u})")
CURVES = (
    "max(({x})**2+({y})**2, {a})", "abs(({x})**2+{b}*({y})**2-{a})", "relu(({x})**2+({y})**2-{a})", "min(({x})**2+({y})**2, {a})",
    "max({a}-({x})**2-({y})**2, 0)*{d}", "max(({x})**2+{b}*({y})**2, {a}+{d}*({x}))",
)  # fmt: skip
MAXIMA = (
    "max(sin({k}*({u})), {h})", "abs({h}-cos({k}*({u})))", "min(exp({u}), {h})*{d}", "{a}*max(1/({p}+({u})), {h})-({u})**2",
    "relu({h}-({u})**2)+{x}*{y}", "cos({u})-{b}*abs(tanh({k}*({u}))-({h}))", "max(({u})**3, {h})", "min(sqrt({u}+{p}), {g})",
    "max(sin({k}*({u})), {h}, {a})", "{d}*min(({u})**2, {h}, cos({k}*({u})))",
)  # fmt: skip
LEVELS = (
    "where(({x})**2+({y})**2<{a}, 1, 0)", "where(({x})**2+{b}*({y})**2<{a}, {d}, -{d})", "sign({a}-({x})**2-({y})**2)",
    "where(({x})**4+({y})**2<{a}, 1, 0)",
)  # fmt: skip
LOCAL = (
    "sqrt({e}+({x})**2+({y})**2)", "exp(-{q}*(({x}-{c})**2+({y}+{a})**2))", "max(sin(3*{x}), {y})", "sqrt(({x})**2+({y})**2)",
    "atan({q}/9*(({x})**2+({y})**2-.5))", "abs(({x})*({y}))+{x}", "tanh({k}*({x}-({y})**2))", "1/({e}+.2+({x})**2+({y}-{c})**2)",
)  # fmt: skip
FACTORS = ("sin({k}*{u})", "cos({u})", "exp(-({u})**2)", "(1+{u}/3)", "tanh(2*{u})", "1/({p}+{u})", "exp({u}/3)")


def _filled(rng: np.random.Generator, pattern: str, variables: list[str], u: str | None = None) -> str:
    """The pattern with random numbers and directions."""
    x, y = (variables[0], variables[min(1, len(variables) - 1)])
    numbers = {
        "k": number(rng.uniform(1.0, 7.0)), "m": number(rng.uniform(1.0, 5.0)), "c": number(rng.uniform(0.05, 0.6)),
        "a": number(rng.uniform(0.15, 0.6)), "b": number(rng.uniform(0.7, 1.6)), "d": number(rng.uniform(0.3, 2.0)),
        "p": number(1.0 + 10.0 ** rng.uniform(-2.0, 0.3)), "e": number(10.0 ** rng.uniform(-2.0, 0.0)),
        "q": number(rng.uniform(10.0, 300.0)),
    }  # fmt: skip
    h, g = (_plane(rng, variables) for _ in range(2))
    return pattern.format(u=u or direction(rng, variables), x=x, y=y, h=h, g=g, **numbers)


def _plane(rng: np.random.Generator, variables: list[str]) -> str:
    weights = [number(rng.choice([1.0, -1.0, 2.0, 0.5, 0.3, rng.uniform(-1.5, 1.5)])) for _ in variables]
    if len(variables) > 1 and rng.random() < 0.35:
        weights[int(rng.integers(len(weights)))] = "0"
    if all(w == "0" for w in weights):
        weights[0] = "1"
    total = " + ".join(f"{w}*({v})" for w, v in zip(weights, variables, strict=True) if w != "0")
    return f"({total} - {number(rng.uniform(-0.5, 0.5))})"


def _box(rng: np.random.Generator, count: int, plain: bool) -> tuple[Box, list[str]]:
    sides = [SIDES[0] if plain else SIDES[i] for i in rng.integers(0, len(SIDES), count)]
    names = NAMES[:count]
    box = Box.named(names, [low for low, _ in sides], [high for _, high in sides])
    return box, [normal(name, *side) for name, side in zip(names, sides, strict=True)]


def _error(rng: np.random.Generator, coarse: float, fine: float, dtype: str) -> float:
    least = {"float64": fine, "float32": 4.0, "bfloat16": 1.5}[dtype]
    return float(10.0 ** -rng.uniform(coarse, max(coarse + 0.1, min(fine, least))))


def _dtype(rng: np.random.Generator) -> str:
    return str(rng.choice(["float64", "float32"], p=[0.7, 0.3]))


def _piecewise(rng: np.random.Generator) -> Case:
    count, dtype = int(rng.integers(1, 4)), str(rng.choice(["float64", "float32", "bfloat16"], p=[0.6, 0.25, 0.15]))
    box, variables = _box(rng, count, rng.random() < 0.5)
    return Case(kinked(rng, variables, int(rng.integers(1, 4))), box, _error(rng, 1.0, 9.0, dtype), dtype, "piecewise", "inf")


def _along(rng: np.random.Generator, patterns: tuple[str, ...], fine: float) -> tuple[str, Box, float, str]:
    """A function of one variable or direction, with an affine function beside it in some."""
    count, dtype = int(rng.choice([1, 1, 1, 2, 3])), _dtype(rng)
    box, variables = _box(rng, count, rng.random() < 0.6)
    u = direction(rng, variables) if count > 1 else variables[0]
    text = f"{number(rng.uniform(0.4, 2.0))}*({_filled(rng, str(rng.choice(patterns)), variables, u)})"
    if rng.random() < 0.3:
        text += f" + {_filled(rng, str(rng.choice(SMOOTH)), variables, u)}"
    if rng.random() < 0.4:
        text += " + " + " + ".join(f"{number(rng.uniform(-2.0, 2.0))}*({v})" for v in variables)
    return text, box, _error(rng, 1.0, fine, dtype), dtype


def _axis(rng: np.random.Generator) -> Case:
    return Case(*_along(rng, KINKED, 7.0), "axis", "inf")


def _singular(rng: np.random.Generator) -> Case:
    return Case(*_along(rng, SINGULAR, 4.0), "axis", "inf")


def _gapped(rng: np.random.Generator) -> Case:
    return Case(*_along(rng, JUMPING, 6.0), "axis", "inf", float(10.0 ** -rng.uniform(1.0, 7.0)))


def _jumps_integrated(rng: np.random.Generator) -> Case:
    return Case(*_along(rng, JUMPING, 4.0), "axis", float(rng.choice([1.0, 2.0])))


def _on_planes(rng: np.random.Generator, jumping: bool) -> tuple[str, Box, float, str]:
    count, dtype = int(rng.choice([1, 2, 2, 3])), _dtype(rng)
    box, variables = _box(rng, count, rng.random() < 0.6)
    terms = []
    for i in range(int(rng.choice([1, 1, 2]))):
        switch = "sign({h})" if jumping and i == 0 else str(rng.choice(SWITCHES))
        terms.append(f"({_filled(rng, switch, variables)})*{_filled(rng, str(rng.choice(SMOOTH)), variables)}")
    if rng.random() < 0.3:
        terms.append(_filled(rng, str(rng.choice(SMOOTH)), variables))
    return " + ".join(terms), box, _error(rng, 1.0, 5.0 if count < 3 else 2.5, dtype), dtype


def _regions(rng: np.random.Generator) -> Case:
    return Case(*_on_planes(rng, False), "regions", "inf")


def _regions_gapped(rng: np.random.Generator) -> Case:
    return Case(*_on_planes(rng, True), "regions", "inf", float(10.0 ** -rng.uniform(1.0, 6.0)))


def _regions_integrated(rng: np.random.Generator) -> Case:
    text, box, error, dtype = _on_planes(rng, rng.random() < 0.8)
    norm = float(rng.choice([1.0, 2.0, 1.5]))
    return Case(text, box, error * float(np.prod(box.width)) ** (1.0 / norm), dtype, "regions", norm)


def _curved(rng: np.random.Generator) -> Case:
    box, variables = _box(rng, 2, rng.random() < 0.7)
    dtype = _dtype(rng)
    return Case(_filled(rng, str(rng.choice(CURVES)), variables), box, _error(rng, 0.6, 1.7, dtype), dtype, "curved", "inf")


def _maximum(rng: np.random.Generator) -> Case:
    box, variables = _box(rng, int(rng.choice([2, 2, 3])), rng.random() < 0.7)
    dtype = _dtype(rng)
    return Case(_filled(rng, str(rng.choice(MAXIMA)), variables), box, _error(rng, 0.6, 4.5, dtype), dtype, "curved", "inf")


def _level(rng: np.random.Generator) -> Case:
    box, variables = _box(rng, 2, rng.random() < 0.7)
    norm = float(rng.choice([1.0, 1.0, 2.0]))
    error = 10.0 ** -rng.uniform(0.4, 1.2) * float(np.prod(box.width)) ** (1.0 / norm)
    return Case(_filled(rng, str(rng.choice(LEVELS)), variables), box, float(error), _dtype(rng), "level", norm)


def _tree(rng: np.random.Generator) -> Case:
    box, variables = _box(rng, 2, rng.random() < 0.7)
    dtype = _dtype(rng)
    return Case(_filled(rng, str(rng.choice(LOCAL)), variables), box, _error(rng, 0.5, 1.7, dtype), dtype, "tree", "inf")


def _spectral(rng: np.random.Generator) -> Case:
    found = random_case(rng)
    while found.method != "spectral":
        found = random_case(rng)
    return found


def _products(rng: np.random.Generator) -> Case:
    """Factors of one direction each, the first of which switches or is singular; in some cases beside other terms."""
    count, dtype = int(rng.choice([2, 2, 2, 3])), str(rng.choice(["float64", "float32"], p=[0.8, 0.2]))
    box, variables = _box(rng, count, rng.random() < 0.6)
    rows = []
    for i, v in enumerate(variables):
        u = direction(rng, variables) if rng.random() < 0.2 else v
        hard = SINGULAR if rng.random() < 0.25 else KINKED
        patterns = hard if i == 0 or rng.random() < 0.3 else (*SMOOTH, *FACTORS)
        rows.append(f"({_filled(rng, str(rng.choice(patterns)), [v], u)})")
    text = f"{number(rng.uniform(-2.0, 2.0))}*{'*'.join(rows)}"
    if rng.random() < 0.3:
        text += f" + ({_filled(rng, str(rng.choice((*KINKED, *SMOOTH))), [variables[0]], variables[0])})"
    if rng.random() < 0.15:
        text += f" + abs({variables[0]}-{number(rng.uniform(-0.5, 0.5))})*cos({number(rng.uniform(0.5, 4.0))}*{variables[1]})"
    if rng.random() < 0.4:
        text += " + " + " + ".join(f"{number(rng.uniform(-2.0, 2.0))}*({v})" for v in variables)
    return Case(text, box, _error(rng, 1.0, 5.0 if count == 2 else 2.0, dtype), dtype, "products", "inf")


def _product_keys(rng: np.random.Generator) -> Case:
    count, dtype = int(rng.integers(2, 6)), str(rng.choice(["float64", "float32"], p=[0.75, 0.25]))
    box, variables = _box(rng, count, rng.random() < 0.7)
    rows = []
    for _ in range(int(rng.choice([1, 1, 2]))):
        rows.append("*".join(f"({_filled(rng, str(rng.choice(FACTORS)), [v], v)})" for v in variables))
    return Case(" + ".join(rows), box, _error(rng, 1.0, 6.0, dtype), dtype, "spectral", "inf")


def _ridges(rng: np.random.Generator) -> Case:
    count, dtype = int(rng.integers(2, 4)), _dtype(rng)
    box, variables = _box(rng, count, rng.random() < 0.6)
    rows = []
    for _ in range(int(rng.choice([1, 2]))):
        weights = [number(rng.choice([1.0, -1.0, 0.5, 2.0, rng.uniform(0.2, 1.0)])) for _ in variables]
        u = f"{number(1.0 / (2.0 * count))}*({' + '.join(f'{w}*({v})' for w, v in zip(weights, variables, strict=True))})"
        rows.append(_filled(rng, str(rng.choice(("tanh({k}*{u})", "exp(-{k}*({u})**2)", "1/({p}-({u}))", "sin({k}*{u})",
                                                 "sqrt({e}+({u})**2)"))), variables, u))  # fmt: skip
    return Case(" + ".join(rows), box, _error(rng, 1.0, 7.0, dtype), dtype, "spectral", "inf")


def _sums(rng: np.random.Generator) -> Case:
    count, dtype = int(rng.integers(2, 4)), _dtype(rng)
    box, variables = _box(rng, count, rng.random() < 0.6)
    rows = []
    for i, v in enumerate(variables):
        u = direction(rng, variables) if rng.random() < 0.25 else v
        patterns = KINKED if i == 0 or rng.random() < 0.4 else SINGULAR if rng.random() < 0.15 else (*SMOOTH, *FACTORS)
        rows.append(f"{number(rng.uniform(-2.0, 2.0))}*({_filled(rng, str(rng.choice(patterns)), [v], u)})")
    if rng.random() < 0.3:
        rows.append(f"({variables[0]})*({variables[1]})")
    if rng.random() < 0.4:
        rows += [f"{number(rng.uniform(-2.0, 2.0))}*({v})" for v in variables]
    if rng.random() < 0.2:
        rows.append(f"max({_plane(rng, variables)}, {_plane(rng, variables)})")
    return Case(" + ".join(rows), box, _error(rng, 1.0, 6.0, dtype), dtype, "sums", "inf")


def _lookup(rng: np.random.Generator) -> Case:
    if rng.random() < 0.4:
        text = f"sqrt(x+{rng.uniform(0, 0.1):.2g})*{rng.uniform(0.3, 1):.3g}"
        return Case(text, Box(x=(0, 1)), float(rng.uniform(0.05, 0.2)), _dtype(rng), "lookup", "inf")
    shift = float(rng.choice([0.0, 0.0, 0.3, 100.0]))
    box = Box(x=(shift - 1.0, shift + 1.0), y=(-1.0, float(rng.uniform(0.5, 2.0))))
    text = f"{cheap(rng)} + {rng.uniform(-1, 1):.3g}*y + cos(x*y)"
    return Case(text, box, float(rng.uniform(0.4, 0.8)), _dtype(rng), "lookup", "inf")


def _lookup_integrated(rng: np.random.Generator) -> Case:
    text = f"sign(x - {rng.uniform(-0.5, 0.5):.3g}) + {cheap(rng)}"
    norm = float(rng.choice([1.0, 2.0]))
    return Case(text, Box(x=(-1, 1)), float(rng.uniform(0.2, 0.6)), _dtype(rng), "lookup", norm)


def cheap(rng: np.random.Generator) -> str:
    """A smooth function of x that few cells follow."""
    terms = [f"sin({rng.uniform(0.5, 3):.3g}*x)", f"{rng.uniform(-1, 1):.3g}*x", f"exp(-{rng.uniform(0.2, 2):.3g}*x**2)"]
    return str(rng.choice(terms))


HEADS: dict[str, Callable[[np.random.Generator], Case]] = {
    "piecewise": _piecewise,
    "axis": _axis,
    "axis, singular": _singular,
    "axis, gap": _gapped,
    "axis, L_p": _jumps_integrated,
    "sums": _sums,
    "regions": _regions,
    "regions, gap": _regions_gapped,
    "regions, L_p": _regions_integrated,
    "curved": _curved,
    "curved, maximum": _maximum,
    "level": _level,
    "tree": _tree,
    "products": _products,
    "spectral": _spectral,
    "spectral, products": _product_keys,
    "ridges": _ridges,
    "lookup": _lookup,
    "lookup, L_p": _lookup_integrated,
}
