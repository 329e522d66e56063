"""Random targets for the attack on the proofs: what is hard to approximate, enclose or round.

Sums and products of functions of straight and oblique directions, poles close to the box, oscillation, large offsets, boxes
far from the origin and boxes of very different sides; nests of max, min, abs and where with affine functions inside; one to
three variables.
"""

from dataclasses import dataclass

import numpy as np

from maxaffine.target.box import Box

ONE = (
    "sin({k}*{u})", "cos({k}*{u})", "exp(-{k}*({u})**2)", "tanh({k}*{u})", "1/(1+{k}*({u})**2)", "1/({p}-({u}))",
    "log({p}+({u}))", "sqrt({p}+({u}))", "atan({k}*{u})", "({u})**3-({u})", "sigmoid({k}*{u})", "erf({u})", "exp({u})",
    "({u})**2", "cosh({u})", "asinh({k}*{u})", "log1p(({u})**2)", "({p}+({u}))**1.5", "sin({k}*({u})**2)", "expm1({u}/2)",
)  # fmt: skip
TWO = (
    "sin(({u})*({v}))", "exp(({u})*({v})/2)", "1/(3+({u})+({v})*({u}))", "sqrt(2+sin({u})*cos({v}))",
    "cos({u})/(2+sin({v}))", "tanh(({u})*({v}))", "exp(-({u}-({v}))**2)", "({u})*({v})", "atan2({v}, {p}+1+({u}))",
    "log(3+({u})*({v}))", "({u})**2*({v})-({v})**3", "1/(1+({u})**2+({v})**2)", "abs({v}+3)*sin({u})", "max({u}, {v}-9)",
)  # fmt: skip
SIDES = ((-1.0, 1.0), (-1.0, 1.0), (0.0, 1.0), (-3.0, 2.0), (0.25, 0.75), (1000.0, 1001.0), (-1e5, -99998.0), (-1e-3, 2e-3))
NAMES = ("x", "y", "z")


@dataclass(frozen=True)
class Case:
    """A target, its box, and what is asked of the layer."""

    text: str
    box: Box
    error: float
    dtype: str
    method: str
    norm: float | str
    gap: float | None = None  # about jumps, within which nothing is asked


def number(value: float) -> str:
    """A number of three digits as text."""
    return f"{value:.3g}"


def normal(name: str, low: float, high: float) -> str:
    """A variable that runs over [-1, 1] on its side."""
    middle, half = (low + high) / 2.0, (high - low) / 2.0
    if (middle, half) == (0.0, 1.0):
        return name
    return f"({name}-{middle!r})/{half!r}" if middle >= 0 else f"({name}+{-middle!r})/{half!r}"


def direction(rng: np.random.Generator, variables: list[str]) -> str:
    """One variable, or an oblique direction of several; |u| <= 1 on the box."""
    if len(variables) == 1 or rng.random() < 0.5:
        return str(rng.choice(variables))
    picked = [str(v) for v in rng.permutation(variables)[: rng.integers(2, len(variables) + 1)]]
    weights = [number(rng.choice([1.0, -1.0]) * rng.choice([1.0, 1.0, 0.5, rng.uniform(0.2, 1.0)])) for _ in picked]
    scale = number(1.0 / len(picked) - 0.0005)
    return f"{scale}*({' + '.join(f'{w}*({v})' for w, v in zip(weights, picked, strict=True))})"


def _function(rng: np.random.Generator, variables: list[str], simple: bool) -> str:
    k = number(rng.choice([rng.uniform(0.5, 3.0), rng.uniform(2.0, 12.0)]))
    p = number(1.0 + 10.0 ** rng.uniform(-0.9, 0.5))
    u, v = direction(rng, variables), direction(rng, variables)
    pattern = str(rng.choice(ONE if simple or len(variables) == 1 or rng.random() < 0.6 else TWO))
    return pattern.format(u=u, v=v, k=k, p=p)


def _text(rng: np.random.Generator, variables: list[str]) -> str:
    terms = []
    for _ in range(rng.integers(1, 4)):
        factors = [_function(rng, variables, simple=len(variables) > 2)]
        if rng.random() < 0.35:
            factors.append(_function(rng, [str(rng.choice(variables))], simple=True))
        terms.append(f"{number(rng.uniform(-2.0, 2.0))}*" + "*".join(f"({factor})" for factor in factors))
    if rng.random() < 0.15:
        terms.append(number(rng.choice([1e3, -50.0, 1e6])))
    return " + ".join(terms)


def kinked(rng: np.random.Generator, variables: list[str], depth: int) -> str:
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


def random_case(rng: np.random.Generator) -> Case:
    """A target with its box, error, dtype and method."""
    count = int(rng.choice([1, 2, 3], p=[0.45, 0.4, 0.15]))
    sides = [SIDES[i] for i in rng.integers(0, len(SIDES), count)]
    names = NAMES[:count]
    variables = [normal(name, *side) for name, side in zip(names, sides, strict=True)]
    box = Box.named(names, [low for low, _ in sides], [high for _, high in sides])
    dtype = str(rng.choice(["float64", "float32", "bfloat16"], p=[0.6, 0.25, 0.15]))
    text = _text(rng, variables)
    # The finest errors go to the simplest targets: elsewhere they end in long searches and refusals, which attack nothing.
    simple = len(text) < 60 and count < 3
    finest = {"float64": 10.0 if simple else 7.0 if count < 3 else 5.0, "float32": 4.0, "bfloat16": 1.3}[dtype]
    error = 10.0 ** -rng.uniform(1.0 if dtype != "bfloat16" else 0.5, finest)
    if rng.random() < 0.2:
        return Case(kinked(rng, variables, int(rng.integers(1, 4))), box, float(error), dtype, "piecewise", "inf")
    if rng.random() < 0.12 and count < 3:
        norm: float | str = "inf" if rng.random() < 0.7 else float(rng.choice([1.0, 2.0]))
        return Case(text, box, max(float(error), 0.05), "float64" if dtype == "bfloat16" else dtype, "lookup", norm)
    return Case(text, box, float(error), dtype, "spectral", "inf")
