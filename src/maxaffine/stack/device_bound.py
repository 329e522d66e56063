"""What the kernel of a stack is off its formula by, in float64 or float32: the theorem of stacks for what the kernel runs.

A node may be computed by anything that is within eps_k of phi_k where it is asked, so that

    |kernel - f|  <=  sum W_k eps_k  +  rounding of the output map  +  W_i u |x_i|
    eps_k  =  beta_k + kappa_k + sup |G_k| (rho_k + mu_k)       a head: its error, and the distance of the kernel's form from it
    eps_k  =  rounding of phi_k itself + sup |G_k| (rho_k + mu_k)
                                                                a square, product, absolute value, positive part, root or norm

rho_k is the rounding of the affine map, mu_k how far an argument of a head or root may be moved to lie in its box, in numbers of
the dtype; a rough node (ranges.py) errs by omega_k of all that its argument may be off by.  Ranges are followed with these eps_k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import FLOAT64, dtype_of
from maxaffine.runtime.gpu.stack_program import HEAD, LENGTH, PRODUCT, ROOT, SQUARE, Row, Step
from maxaffine.runtime.gpu.stacked import rounding
from maxaffine.stack.cutting import Cutting
from maxaffine.stack.modulus import modulus
from maxaffine.stack.ranges import UP, Unbounded, adjoints, argument, exact_ranges, image
from maxaffine.target.box import Box

SQUARES = {"float32": 2.0**60, "float64": 2.0**500}  # what is squared without an overflow


@dataclass(frozen=True)
class Off:
    """Of a node's head, in the units of the node: beta, and how far the kernel's form is from it."""

    head: float = 0.0
    form: float = 0.0


class _Walk:
    """Ranges of what the kernel computes, node by node."""

    def __init__(self, cutting: Cutting, box: Box, steps: Sequence[Step], dtype: str) -> None:
        self.cutting, self.box, self.steps, self.dtype = cutting, box, steps, dtype
        D, m = len(box.low), len(cutting.names)
        self.inputs = D
        self.lo, self.hi = np.concatenate([box.low, np.zeros(m)]), np.concatenate([box.high, np.zeros(m)])
        self.away = np.maximum(np.abs(self.lo), np.abs(self.hi)) * FLOAT64.unit  # from the exact formula: inputs are rounded
        self.lost = np.zeros(m)

    @property
    def size(self) -> Array:
        """The most that values are."""
        return np.asarray(np.maximum(np.abs(self.lo), np.abs(self.hi)))

    def node(self, k: int, off: Off) -> Interval:
        """Slopes of node k; its range and what it may err by are kept."""
        step, rows = self.steps[k], self.cutting.maps[k]
        sides = [argument(row, Interval(self.lo, self.hi)) for row in rows]
        rho = np.array([rounding(row, own, self.size, self.dtype) for row, own in zip(rows, step.rows, strict=True)])
        wide = Interval.stack(sides) + Interval(-rho, rho)
        if step.kind == LENGTH:
            value = (wide[0].square() + wide[1].square()).sqrt()
            slopes = Interval(np.where(wide.lo < 0.0, -1.0, 0.0), np.where(wide.hi > 0.0, 1.0, 0.0))
        else:
            wide, moved = self._kept(step, wide)
            rho = (rho + moved) * UP
            value, slopes = image(self.cutting.functions[k], wide)
        if not (np.isfinite(value.magnitude) and np.isfinite(slopes.magnitude).all()):
            return self._rough(k, off, rho)
        self._reached(k, value, self._rounded(step.kind, wide, value) + off.head + off.form, slopes.magnitude, rho)
        return slopes

    def _kept(self, step: Step, wide: Interval) -> tuple[Interval, Array]:
        """Arguments with where a head moves them to, and by how much that is at most."""
        if step.kind not in (HEAD, ROOT):
            return wide, np.zeros(len(wide))
        low, high = (_scaled(side, step.scales) for side in (step.low, step.high))
        moved = np.maximum(np.maximum(wide.hi - high, low - wide.lo), 0.0) * UP
        ends = [np.clip(side, low, high) for side in (wide.lo, wide.hi)]
        return Interval(np.minimum(wide.lo, ends[0]), np.maximum(wide.hi, ends[1])), moved

    def _rounded(self, kind: int, wide: Interval, value: Interval) -> float:
        """What computing the function itself loses."""
        unit, tiny = dtype_of(self.dtype).unit, float(np.finfo(self.dtype).tiny)
        if kind == ROOT:  # of numbers below the normal ones as well
            return (unit * float(value.magnitude) + math.sqrt(tiny)) * UP
        if kind not in (PRODUCT, SQUARE, LENGTH):
            return 0.0
        if float(np.max(wide.magnitude)) > SQUARES[self.dtype]:
            raise Refused(f"its values go beyond {self.dtype}")
        if kind == LENGTH:  # two roundings below the root are one beside it
            return (2.5 * unit * float(value.magnitude) + 2.0 * math.sqrt(tiny)) * UP
        return (unit * float(value.magnitude) + tiny) * UP

    def _rough(self, k: int, off: Off, rho: Array) -> Interval:
        """A node of unbounded slope: no weight passes through it."""
        function = self.cutting.functions[k]
        whole = argument(self.cutting.maps[k][0], exact_ranges(self.cutting, tuple(self.box.low), tuple(self.box.high)))
        if len(rho) != 1 or self.steps[k].kind not in (HEAD, ROOT) or not np.isfinite(whole.magnitude):
            raise Unbounded(k, f"`{function.text}` is not shown to be of bounded slope")
        d = (self._apart(k, 0) + float(rho[0])) * UP
        value, _ = image(function, Interval(whole.lo[None], whole.hi[None]))
        lost = modulus(function, function.gradient(), float(whole.lo), float(whole.hi), d)
        if not (np.isfinite(value.magnitude) and math.isfinite(lost)):
            raise Unbounded(k, f"`{function.text}` is not shown to be continuous")
        own = self._rounded(self.steps[k].kind, whole, value) + off.head + off.form
        self._reached(k, value, own + lost, np.zeros(1), rho)
        return Interval(np.zeros(1), np.zeros(1))

    def _apart(self, k: int, e: int) -> float:
        """How far an argument may be from the exact formula's, by all that it reads."""
        row = self.cutting.maps[k][e]
        return float(np.sum(row.exact_weights.magnitude * self.away[np.array(row.indices, dtype=np.intp)])) * UP

    def _reached(self, k: int, value: Interval, own: float, slopes: Array, rho: Array) -> None:
        """Keep the range of a node, what it errs by, and how far it may be from the exact formula's."""
        eps = (own + float(np.sum(slopes * rho))) * UP
        handed = math.fsum(float(s) * self._apart(k, e) for e, s in enumerate(slopes))
        at, self.lost[k] = self.inputs + k, eps
        self.lo[at], self.hi[at] = np.nextafter(value.lo - eps, -np.inf), np.nextafter(value.hi + eps, np.inf)
        self.away[at] = (eps + handed) * UP


def _scaled(side: Sequence[float], scales: Sequence[int]) -> Array:
    return np.array([math.ldexp(one, s) for one, s in zip(side, scales, strict=True)])


def device_bound(
    cutting: Cutting, box: Box, steps: Sequence[Step], result: Row, off: Sequence[Off], dtype: str
) -> dict[str, float]:
    """The bound in parts; Unbounded where a node is not shown to be finite, Refused where numbers go beyond the dtype."""
    walk, D = _Walk(cutting, box, steps, dtype), len(box.low)
    slopes = [walk.node(k, one) for k, one in enumerate(off)]
    every = adjoints(cutting, slopes, D)
    weights = every[D:]
    heads = math.fsum(w * one.head for w, one in zip(weights, off, strict=True)) * UP
    forms = math.fsum(w * one.form for w, one in zip(weights, off, strict=True)) * UP
    rest = math.fsum(w * max(lost - one.head - one.form, 0.0) for w, lost, one in zip(weights, walk.lost, off, strict=True))
    rest += math.fsum(every[:D] * walk.size[:D] * FLOAT64.unit) + rounding(cutting.result, result, walk.size, dtype)
    return {"heads": heads, "kernel's forms": forms, "rounding": rest * (1.0 + 2.0**-40)}
