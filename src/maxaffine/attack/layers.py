"""Random layers of every head and dtype for the trial of routes: targets of attack/targets.py, and lookups and tables."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.attack import targets
from maxaffine.core.errors import BadInput
from maxaffine.layer.maxaffine import MaxAffine
from maxaffine.target.box import Box
from maxaffine.target.table import Table
from maxaffine.target.target import Target

DTYPES = ("float64", "float32", "bfloat16")
FINEST = {"float64": 0.0, "float32": 2e-4, "bfloat16": 0.05}


@dataclass(frozen=True)
class Ask:
    """What `compile` is asked: a target, its box, and the other arguments."""

    target: Any
    box: Any
    options: dict[str, Any]


def _from_case(name: str) -> Callable[[np.random.Generator, str], Ask]:
    def make(rng: np.random.Generator, dtype: str) -> Ask:
        case = targets.HEADS[name](rng)
        error = max(case.error, FINEST[dtype] * float(np.prod(case.box.width)) ** (0.0 if case.norm == "inf" else 1.0))
        return Ask(case.text, case.box, {"error": error, "method": case.method, "norm": case.norm, "gap": case.gap})

    return make


def _partition(rng: np.random.Generator, dtype: str) -> Ask:
    sites = MaxAffine.from_power_diagram(rng.uniform(-1, 1, (int(rng.integers(9, 40)), 2)))
    text = f"x + {rng.uniform(-1, 1):.3g}*y"
    return Ask(text, Box(x=(-1, 1), y=(-1, 1)), {"error": 2.0, "method": "lookup", "keys": sites})


def _centres(rng: np.random.Generator, dtype: str) -> Ask:
    t = np.linspace(0, 2 * math.pi, int(rng.integers(20, 90)))
    centres = np.c_[np.cos(t), float(rng.uniform(0.6, 1.4)) * np.sin(t)]
    text, error = f"sin({rng.uniform(0.5, 2):.3g}*x) + y/2", float(rng.uniform(0.4, 1.0))
    return Ask(text, Box(x=(-2, 2), y=(-2, 2)), {"error": error, "method": "lookup", "keys": centres})


def _matrix(rng: np.random.Generator, dtype: str) -> Ask:
    texts = ", ".join(targets.cheap(rng) for _ in range(4))
    target = Target.of(texts, Box(x=(-1, 1)), output_shape=(2, 2))
    return Ask(target, None, {"error": float(rng.uniform(0.2, 0.5)), "method": "lookup"})


def sequence_answer(X: Any) -> Any:
    """The largest and the mean entry of a sequence, as (B, 1, 2)."""
    return np.stack([X.max(axis=(1, 2)), X.mean(axis=(1, 2))], axis=1)[:, None, :]


def _sequence(rng: np.random.Generator, dtype: str) -> Ask:
    box = Box.sequence(d=2, n=2, low=-1.0, high=float(rng.uniform(0.0, 1.0)))
    options = {"error": float(rng.uniform(0.5, 0.9)), "method": "lookup", "lipschitz": [1, 1, 1, 1]}
    return Ask(sequence_answer, box, options)


def _table(rng: np.random.Generator, dtype: str) -> Ask:
    a, b = np.linspace(0, 1, int(rng.integers(5, 20))), np.linspace(-1, 1, int(rng.integers(4, 12)))
    values = np.sin(rng.uniform(0.5, 3) * a)[:, None] * np.cos(rng.uniform(0.5, 2) * b)
    error = float(10.0 ** -rng.uniform(1.0, 4.0 if dtype == "float64" else 2.5)) if dtype != "bfloat16" else 0.1
    return Ask(Table([a, b], values), None, {"error": error})


def _hard(rng: np.random.Generator, dtype: str) -> Ask:
    axes = [np.sort(rng.uniform(0.0, 1.0, int(rng.integers(3, 14)))) for _ in range(int(rng.integers(1, 3)))]
    if rng.random() < 0.5:
        axes = [np.cumsum(rng.integers(1, 4, len(one))).astype(np.float64) for one in axes]
    return Ask(Table(axes, rng.normal(size=tuple(len(one) for one in axes))), None, {"method": "nearest"})


HEADS: dict[str, Callable[[np.random.Generator, str], Ask]] = {
    **{name: _from_case(name) for name in targets.HEADS},
    "partition": _partition,
    "centres": _centres,
    "matrix": _matrix,
    "sequence": _sequence,
    "table": _table,
    "hard table": _hard,
}


def chosen(heads: Sequence[str] | None, known: Collection[str] = HEADS) -> list[str]:
    """The heads of that name, all that are known where none are named."""
    names = list(known if heads is None else heads)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise BadInput(f"the head {unknown[:1]} is not known; choose among {', '.join(known)}.")
    return names
