"""Shared by the CPU benchmarks: targets with their formulas in NumPy and numba, the machine in words, medians of repeats, and the
literal layer in torch.
"""

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import pi
from pathlib import Path
from typing import Any

import numpy as np

import maxaffine as ma
from maxaffine.runtime import parallel
from maxaffine.target.target import Target

FRANKE = (
    "0.75*exp(-((9*x-2)**2+(9*y-2)**2)/4) + 0.75*exp(-(9*x+1)**2/49-(9*y+1)/10)"
    " + 0.5*exp(-((9*x-7)**2+(9*y-3)**2)/4) - 0.2*exp(-(9*x-4)**2-(9*y-7)**2)"
)


@dataclass(frozen=True)
class Case:
    """A target on its box, and the error that everything is compared at.

    `formula` is what a person would write in NumPy, of columns; numba compiles the same of numbers.
    """

    name: str
    text: str
    box: ma.Box
    error: float = 1e-6
    formula: Callable[..., Any] | None = None

    def values(self, x: np.ndarray) -> np.ndarray:
        """f(x)."""
        return np.asarray(Target.of(self.text, self.box).values(x)[:, 0, 0])


def franke(x: Any, y: Any) -> Any:
    """Franke's function."""
    u, v = 9.0 * x, 9.0 * y
    return (
        0.75 * np.exp(-((u - 2.0) ** 2 + (v - 2.0) ** 2) / 4.0) + 0.75 * np.exp(-((u + 1.0) ** 2) / 49.0 - (v + 1.0) / 10.0)
        + 0.5 * np.exp(-((u - 7.0) ** 2 + (v - 3.0) ** 2) / 4.0) - 0.2 * np.exp(-((u - 4.0) ** 2) - (v - 7.0) ** 2)
    )  # fmt: skip


TURN = ma.Box.named(("x", "y"), [-pi, -pi], [pi, pi])
CASES = (
    Case("Runge", "1/(1+25*x**2)", ma.Box.named(("x",), [-1.0], [1.0]), formula=lambda x: 1.0 / (1.0 + 25.0 * (x * x))),
    Case("sin x + cos y", "sin(x)+cos(y)", TURN, formula=lambda x, y: np.sin(x) + np.cos(y)),
    Case("sin x * cos y", "sin(x)*cos(y)", TURN, formula=lambda x, y: np.sin(x) * np.cos(y)),
    Case("Franke", FRANKE, ma.Box.named(("x", "y"), [0.0, 0.0], [1.0, 1.0]), formula=franke),
    Case(
        "exp(-r^2)", "exp(-x**2-y**2-z**2)", ma.Box.named(("x", "y", "z"), [-2.0] * 3, [2.0] * 3),
        formula=lambda x, y, z: np.exp(-x * x - y * y - z * z),
    ),
)  # fmt: skip


def in_numpy(case: Case) -> Callable[[np.ndarray], np.ndarray]:
    """The formula as NumPy runs it, on contiguous columns that are made beforehand: a layer takes rows."""
    assert case.formula is not None
    formula, known = case.formula, {}

    def run(x: np.ndarray) -> np.ndarray:
        if id(x) not in known:
            known[id(x)] = x, np.ascontiguousarray(x.T)
        return np.asarray(formula(*known[id(x)][1]))

    return run


def in_numba(case: Case) -> Callable[[np.ndarray], np.ndarray]:
    """The formula in a loop over rows that numba compiles, as exact as NumPy's."""
    import numba

    one = numba.njit(case.formula, inline="always")
    D = case.box.dimension

    if D == 1:

        @numba.njit
        def loop(x: np.ndarray, out: np.ndarray) -> None:
            for i in range(len(x)):
                out[i] = one(x[i, 0])
    elif D == 2:

        @numba.njit
        def loop(x: np.ndarray, out: np.ndarray) -> None:
            for i in range(len(x)):
                out[i] = one(x[i, 0], x[i, 1])
    else:

        @numba.njit
        def loop(x: np.ndarray, out: np.ndarray) -> None:
            for i in range(len(x)):
                out[i] = one(x[i, 0], x[i, 1], x[i, 2])

    def run(x: np.ndarray) -> np.ndarray:
        out = np.empty(len(x))
        loop(x, out)
        return out

    return run


def loaded() -> None:
    """All compiled kernels at hand, as large batches have them."""
    for name in ("collapsed", "windowed", "two_level", "direct", "pieced"):
        parallel.kernel(name, 10**12)


def machine() -> dict[str, Any]:
    """The machine in words."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), "")
    import scipy
    import torch

    return {
        "processor": model, "cores": os.cpu_count(), "threads": int(os.environ.get("OMP_NUM_THREADS", "0")) or None,
        "load_at_start": os.getloadavg()[0], "python": platform.python_version(), "numpy": np.__version__,
        "scipy": scipy.__version__, "torch": torch.__version__, "maxaffine": ma.__version__,
    }  # fmt: skip


ENOUGH = 0.25  # seconds of short runs together


def median(run: Callable[[], Any], repeats: int = 5, most: float = 4.0, wall: bool = False) -> float:
    """Median seconds of a run after one for warming up; fewer repeats where they take long, more where they are short.

    Processor time of this process, which a busy machine does not lengthen by waiting; `wall` where several threads run.
    """
    clock = time.perf_counter if wall else time.process_time
    run()
    taken: list[float] = []
    begun = time.perf_counter()
    while (len(taken) < repeats or sum(taken) < ENOUGH) and (len(taken) < 1 or time.perf_counter() - begun < most):
        start = clock()
        run()
        taken.append(clock() - start)
    return max(float(np.median(taken)), 1e-9)


def literal(layer: Any) -> Callable[[np.ndarray], np.ndarray]:
    """torch's scaled_dot_product_attention over all tokens, float64: one query column per group, their outputs added up."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    if not hasattr(layer, "groups"):
        slopes, offsets = (np.asarray(part, dtype=np.float64) for part in layer.keys.listed())
        keys = torch.from_numpy(layer.sharpness * np.concatenate([slopes, offsets[:, None]], axis=1))[None]
        values = torch.from_numpy(layer.values.reshape(layer.keys.count, -1).astype(np.float64))[None]

        def lookup(x: np.ndarray) -> np.ndarray:
            z = np.concatenate([layer.coordinates(x), np.ones((len(x), 1))], axis=1)
            return sdpa(torch.from_numpy(z)[None], keys, values, scale=1.0)[0].numpy()[:, 0]

        return lookup
    groups = layer.products()
    width, rows, values = sum(len(g.axes) + 2 for g in groups), [], []
    at = 0
    spans = []
    for group in groups:
        slopes, offsets = group.listed()
        E = len(group.axes)
        block = np.zeros((group.count, width))
        block[:, at : at + E], block[:, at + E], block[:, at + E + 1] = slopes, offsets, layer.bonus
        rows.append(block)
        held = np.zeros((group.count, width))
        held[:, at + E] = group.dense_values().reshape(-1)
        if group.slopes is not None:
            held[:, at : at + E] = group.slopes.reshape(group.count, E)
        values.append(held)
        spans.append((at, E))
        at += E + 2
    keys, stored = torch.from_numpy(np.concatenate(rows))[None], torch.from_numpy(np.concatenate(values))[None]

    def run(x: np.ndarray) -> np.ndarray:
        common = np.zeros((len(x), width))
        for group, (first, E) in zip(groups, spans, strict=True):
            common[:, first : first + E], common[:, first + E] = (x - layer.centre) @ group.matrix.T, 1.0
        total = np.zeros(len(x))
        for first, E in spans:
            query = common.copy()
            query[:, first + E + 1] = 1.0
            found = sdpa(torch.from_numpy(query)[None], keys, stored, scale=1.0)[0].numpy()
            total += (found * common).sum(axis=1)
        return total

    return run
