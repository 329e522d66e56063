"""Spectral layers re-proved: the checker's own cells, ellipses, degrees and rounding.

The target's groups are read off its expression again, and their sum is compared with the target at random points.  On every
cell (boxes cut in three until an ellipse serves) the error f - g is within a remainder of a polynomial, and a polynomial of
degree m is at most 1/cos(pi m / 2n) times its maximum over n Chebyshev points (Ehlich and Zeller).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.literal_groups import RESOLVED, Column, Coordinates, Frame, literal_bound
from maxaffine.checker.proved import Form, Proved, rounded
from maxaffine.checker.slopes import lipschitz
from maxaffine.checker.stored import NotProved
from maxaffine.core import balls
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import DTYPES, compute_format
from maxaffine.structure.groups import Group, groups_of, rotated_group, whole_group
from maxaffine.target.target import Target

Array = NDArray[np.float64]
Extended = NDArray[np.longdouble]

DOUBLE = 2.0**-53
LONG = float(np.finfo(np.longdouble).eps)
CELLS = 600
ALL_POINTS = 40_000_000
COVER = 500  # pieces of an ellipse
TOKENS = 2_000_000  # listed values that a check is willing to hold
RADII = (1.15, 1.3, 1.6, 2.2, 3.3, 4.5, 6.0, 9.0, 13.0, 18.0)
DENSE = {1: 8, 2: 6, 3: 4, 4: 4}
LIMITS = {1: 5_000, 2: 90_000, 3: 5_000_000, 4: 12_000_000}
EXTENT = {1: 200, 2: 20, 3: 7, 4: 4}  # pieces per direction, for the size of a function
ROOM = 1.0 + 2.0**-8
TREE = 8
LITERAL = 1 << 16  # tokens up to which a layer is also run by the literal softmax


@dataclass(frozen=True)
class Axis:
    """Stored slopes and offsets of one direction, in float64."""

    a: Array
    b: Array

    @property
    def spread(self) -> float:
        """Range of the slopes."""
        return float(self.a.max() - self.a.min())

    def weights(self, z: Any, kind: Any = np.float64) -> Any:
        """Softmax weights (M, N)."""
        scores = np.multiply.outer(np.asarray(z, dtype=kind), self.a.astype(kind)) + self.b.astype(kind)
        scores = np.exp(scores - scores.max(axis=1)[:, None])
        return scores / scores.sum(axis=1)[:, None]


def check_spectral(tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """Sum over the groups of sup |F_g - f_g|, the leak between groups, and rounding."""
    description = record["layer"]
    dtype = str(description["dtype"])
    if dtype not in DTYPES or target.expression is None or target.n_out != 1:
        raise NotProved("its dtype or target is not one that spectral layers are proved for.")
    low, high = (np.asarray(tensors[f"box.{side}"], dtype=np.float64) for side in ("low", "high"))
    centre = np.asarray(tensors["coordinates.centre"], dtype=np.float64)
    if not (np.array_equal(low, target.box.low) and np.array_equal(high, target.box.high)):
        raise NotProved("the layer and the target speak about different boxes.")
    if not np.all((centre >= low) & (centre <= high)):
        raise NotProved("its centre lies outside the box.")
    groups = _match(target, record["plan"]["groups"], centre)
    _agree(tensors, description, groups, dtype)
    bonus, goal, parts = float(description["bonus"]), error / len(groups), []
    if not 0.0 <= bonus < math.inf:
        raise NotProved("its bonus is negative, or no number.")
    total, largest, levels, count = 0.0, [], [], 0
    for g, group in enumerate(groups):
        part = _Part.read(tensors, g, group, centre, low, high, dtype, bonus if len(groups) > 1 else 0.0, target.d_out)
        bound, top = part.prove(goal)
        total += bound
        parts.append(replace(part, extent=top))
        largest.append(top)
        levels.append(part.normaliser())
        count += part.tokens
    for g, own in enumerate(levels):
        for other, level in enumerate(levels):
            if other != g:
                total += math.exp(min(level[1] - own[0] - bonus, 600.0)) * (largest[g] + largest[other]) * (1 + 1e-9)
    total += (compute_format(dtype).unit + (len(groups) + 4) * DOUBLE) * sum(largest)
    # A runtime may evaluate polynomials that are off by what the record reserves, and by 2^-42 of the groups' size.
    reserve = float(record["certificate"].get("details", {}).get("collapse", 0.0))
    if not reserve >= 0.0:
        raise NotProved("what it reserves for a collapse is not a number of at least 0.")
    total += reserve + 2.0**-42 * sum(largest)

    def literal(form: Form, claimed: float) -> float:
        frame = Frame.read(tensors, description, form)
        return literal_bound(frame, total, [part.column(frame) for part in parts])

    return Proved(total, "Chebyshev points and ellipses, group by group", literal)


FRACTION = re.compile(r"-?[0-9]{1,40}(/[1-9][0-9]{0,39})?")


def _fraction(text: Any) -> Fraction:
    """A fraction of a file; forms such as 1e999999999 would take for ever."""
    if not isinstance(text, str) or FRACTION.fullmatch(text) is None:
        raise NotProved("a direction is not written as a fraction.")
    return Fraction(text)


def _match(target: Target, rows: Any, centre: Array) -> list[Group]:
    """The expression's groups in the file's order; every one exactly once, and together the target."""
    assert target.expression is not None
    own = groups_of(target.expression) if target.d_out == 1 else (whole_group(target.expression),)
    found = {group.directions: group for group in own}
    wanted = [tuple(tuple(_fraction(c) for c in w) for w in row["directions"]) for row in rows]
    if len(wanted) == 1 and wanted[0] not in found:  # one group of other directions: the target rewritten in them
        turned = rotated_group(target.expression, wanted[0])
        if turned is not None:
            found = {wanted[0]: turned}
    if sorted(wanted) != sorted(found):
        raise NotProved("its groups are not those of its target.")
    groups = [found[key] for key in wanted]
    x = target.box.sample(64, np.random.default_rng(11))
    f = target.enclose(x, x)
    total: Interval | None = None
    for group in groups:
        t = [group.range(point, point) for point in x]
        assert group.expression is not None
        value = group.expression.enclose(Interval.stack(t, axis=0))
        total = value if total is None else total + value
    assert total is not None
    slack = 1e-9 * (1.0 + np.abs(total.lo))
    if np.any(total.hi + slack < f.lo[:, :, 0]) or np.any(total.lo - slack > f.hi[:, :, 0]):
        raise NotProved("the sum of its groups is not its target.")
    return groups


def _agree(tensors: Mapping[str, Any], description: Mapping[str, Any], groups: list[Group], dtype: str) -> None:
    """The tensors are those of these groups and no others, in the dtype stated: what is proved is what a reader would run."""
    if list(description["directions"]) != [group.dimension for group in groups]:
        raise NotProved("the layer's groups are not those of its plan.")
    exact, stored = {"box.low", "box.high", "coordinates.centre"}, set()
    for g, group in enumerate(groups):
        exact.add(f"group.{g}.matrix")
        stored |= {f"group.{g}.{e}.{name}" for e in range(group.dimension) for name in ("slopes", "offsets")}
        listed = {f"group.{g}.values"}
        affine = listed | {f"group.{g}.value_slopes"}
        whole = affine if affine <= set(tensors) else listed
        stored |= whole if whole <= set(tensors) else {f"group.{g}.{e}.factor" for e in range(group.dimension)}
    if set(tensors) != exact | stored:
        raise NotProved("its tensors are not those of the groups of its target.")
    if any(str(tensors[name].dtype) != (dtype if name in stored else "float64") for name in tensors):
        raise NotProved("a tensor is not in the dtype that the record states.")
    if not all(np.isfinite(np.asarray(tensor).astype(np.float64)).all() for tensor in tensors.values()):
        raise NotProved("a tensor holds numbers that are not finite.")


def _all_tokens(tensors: Mapping[str, Any]) -> int:
    """Key tokens of all groups together."""
    sizes: dict[str, int] = {}
    for name, tensor in tensors.items():
        if name.endswith(".slopes"):  # not .value_slopes
            group = name.split(".")[1]
            sizes[group] = sizes.get(group, 1) * len(tensor)
    return sum(sizes.values())


@dataclass(frozen=True)
class Counted:
    """What is counted of a logit: `terms` roundings of its size, and `exps` of exp and what follows it, in units."""

    unit: float
    terms: float
    exps: float
    bonus: float

    def errors(self, axis: Axis, z: Array, scores: Array, width: float, E: int) -> Array:
        """Errors (M, N) of the logits along one of E directions, on pieces of that half width about z."""
        eta = self.terms * self.unit * (np.multiply.outer(np.abs(z) + width, np.abs(axis.a)) + np.abs(axis.b))
        behind = scores.max(axis=1)[:, None] - scores + 2 * width * axis.spread
        return np.asarray(eta + self.unit * (behind + self.exps + self.bonus / E))

    def largest(self, axis: Axis, E: int) -> float:
        """A bound of them all."""
        size = float((np.abs(axis.a) * ROOM + np.abs(axis.b)).max())
        return self.unit * ((self.terms + 2.0) * size + self.exps + self.bonus / E)


@dataclass(frozen=True)
class Account:
    """What wrong logits do to a head and what a wrong query does, and bounds of |g| and of sum w |v|."""

    ends: float
    moved: float
    top: float
    held: float


@dataclass(frozen=True)
class _Part:
    """One group as stored: z = directions . (x - centre)/half up to `query`."""

    group: Group
    matrix: Array
    middle: Interval
    half: Array
    query: Array
    axes: tuple[Axis, ...]
    values: Array | None
    slopes: Array | None  # values c + G z
    factors: tuple[Array, ...] | None
    unit: float
    tiny: float
    bonus: float
    all_tokens: int
    narrow: bool  # queries are rounded to fewer digits, and surely stay inside [-1, 1]
    extent: float = math.inf  # a bound of |F_g|, where it was proved

    @classmethod
    def read(
        cls, tensors: Mapping[str, Any], g: int, group: Group, centre: Array, low: Array, high: Array, dtype: str, bonus: float,
        outputs: int,
    ) -> "_Part":  # fmt: skip
        E = group.dimension
        matrix = np.asarray(tensors[f"group.{g}.matrix"], dtype=np.float64)
        if matrix.shape != (E, len(low)):
            raise NotProved("a group's matrix has the wrong shape.")
        reach = np.maximum(high - centre, centre - low) * (1 + 1e-15)
        largest = np.maximum(np.abs(low), np.abs(high))
        half, query, inside = np.empty(E), np.empty(E), True
        for e, w in enumerate(group.directions):
            lead = max(range(len(w)), key=lambda i: abs(w[i]))
            half[e] = float(w[lead]) / matrix[e, lead] if matrix[e, lead] else math.nan
            if not (math.isfinite(half[e]) and half[e] > 0):
                raise NotProved("a group's matrix does not follow its directions.")
            drift = 0.0
            for i, c in enumerate(w):
                ideal = Interval.exact(c) / Interval.point(half[e])
                drift += max(abs(float(ideal.hi) - matrix[e, i]), abs(matrix[e, i] - float(ideal.lo))) * reach[i]
            steps = np.abs(matrix[e]) @ (DOUBLE * largest + (len(w) + 6) * DOUBLE * reach)
            query[e] = float(drift + steps) + (0.0 if dtype == "float64" else 0.5001 * DTYPES[dtype].unit)
            span = group.range(low, high)
            away = max(float(span.hi[e]) - float(group.range(centre, centre).lo[e]),
                       float(group.range(centre, centre).hi[e]) - float(span.lo[e]))  # fmt: skip
            if away * (1 + 2.0**-50) / half[e] > 1.0 or query[e] > ROOM - 1.0:
                raise NotProved("a group's coordinates leave [-1, 1] or are not resolved.")
            # What is computed from a number x of the box; up to 1 + 2^-30 it is rounded to 1 at most in a narrower dtype.
            inside &= away / half[e] + drift + float(np.abs(matrix[e]) @ reach) * (len(w) + 6) * DOUBLE <= 1.0 + 2.0**-30
        axes = []
        for e in range(E):
            a, b = (np.asarray(tensors[f"group.{g}.{e}.{name}"]).astype(np.float64) for name in ("slopes", "offsets"))
            if a.ndim != 1 or a.shape != b.shape:
                raise NotProved("keys per direction must be two equally long rows.")
            axes.append(Axis(a, b))
        shape = tuple(len(axis.a) for axis in axes)
        values, slopes, factors = None, None, None
        if f"group.{g}.value_slopes" in tensors:
            slopes = np.asarray(tensors[f"group.{g}.value_slopes"]).astype(np.float64)
            if slopes.shape != (*shape, outputs, E):
                raise NotProved("a group's slopes have the wrong shape.")
        if f"group.{g}.values" in tensors:
            values = np.asarray(tensors[f"group.{g}.values"]).astype(np.float64)
            if values.shape != (*shape, outputs) or values.size > TOKENS:
                raise NotProved("a group's values have the wrong shape, or are too many to check.")
        else:
            factors = tuple(np.asarray(tensors[f"group.{g}.{e}.factor"]).astype(np.float64) for e in range(E))
            if group.factors is None or any(f.shape != (n, len(group.factors)) for f, n in zip(factors, shape, strict=True)):
                raise NotProved("a group's factors are not those of its target.")
        compute = compute_format(dtype)
        return cls(
            group, matrix, group.range(centre, centre), half, query, tuple(axes), values, slopes, factors, compute.unit,
            compute.tiny, bonus, _all_tokens(tensors), dtype != "float64" and inside,
        )  # fmt: skip

    @property
    def tokens(self) -> int:
        return math.prod(len(axis.a) for axis in self.axes)

    def prove(self, goal: float) -> tuple[float, float]:
        """sup |F_g - f_g| with rounding, and a bound of |F_g|."""
        if self.values is not None:
            assert self.group.expression is not None
            found = []
            for k in range(self.values.shape[-1]):
                lean = None if self.slopes is None else self.slopes[..., k, :]
                one = _Head(
                    self.group.expression.output(k), self.middle, self.half, self.axes, self.values[..., k : k + 1], lean
                )
                bound, top = self._bound(one, self.query, goal)
                found.append((bound, min(top, one.extent() + bound)))
            if not all(math.isfinite(number) for pair in found for number in pair):  # max() would lose NaN
                raise NotProved("its numbers are too large for a bound.")
            return max(bound for bound, _ in found), max(top for _, top in found)
        assert self.factors is not None and self.group.factors is not None
        gained, whole = 0.0, 0.0
        for r, row in enumerate(self.group.factors):
            plain, rough = 1.0, 1.0
            for e, factor in enumerate(row):
                column = self.factors[e][:, r : r + 1]
                if factor is None:
                    size, bound = 1.0, float(np.abs(column - 1.0).max()) + 8 * len(column) * DOUBLE
                else:
                    middle = Interval.of(self.middle.lo[e : e + 1], self.middle.hi[e : e + 1])
                    one = _Head(factor, middle, self.half[e : e + 1], (self.axes[e],), column)
                    size = one.size()
                    bound, _ = self._bound(one, self.query[e : e + 1], goal / len(row) / len(self.group.factors))
                plain, rough = plain * size, rough * (size + bound)
            gained += rough - plain + 1e-14 * rough * (len(row) + 4)
            whole += rough
        if self.all_tokens <= LITERAL:
            depth, rank = _depth(self.all_tokens), self.factors[0].shape[1]
            lost, sizes = self._joined(Counted(self.unit, len(self.axes) + 2.01, 12.0, self.bonus))
            gained += lost + DOUBLE * 1.01 * (2 * depth + len(self.axes) + rank + 12) * sizes
        return gained * (1 + 1e-12), whole

    def column(self, frame: Frame) -> Column:
        """This group in its own column of a literal form."""
        form, E, D = frame.form, len(self.axes), len(frame.centre)
        at = Coordinates.read(frame, self.matrix)
        error = at.error(at.size)
        counted = Counted(form.unit, E + 8.5 + (E + 2.0) * DOUBLE / form.unit, 72.0, 5.0 * frame.bonus)
        size = sum(float(np.abs(axis.a).max()) * 1.01 + float(np.abs(axis.b).max()) for axis in self.axes) + frame.bonus
        eta = sum(counted.largest(axis, E) for axis in self.axes) + float(error @ [np.abs(axis.a).max() for axis in self.axes])
        if not (size < form.largest and eta < RESOLVED and np.all(error < 2.0**-9)):
            raise NotProved(f"its logits are not resolved in {form.name}.")
        if self.values is not None:
            lost = largest = top = 0.0
            for k in range(self.values.shape[-1]):
                lean = None if self.slopes is None else self.slopes[..., k, :]
                one = _Head(self.group.expression, self.middle, self.half, self.axes, self.values[..., k : k + 1], lean)
                account = (one.accounted if lean is None else one.affinely_accounted)(error, counted)
                top = max(top, float((np.abs(one.values[..., 0]) + one.leaning()).max()) * 1.01)
                # affine values are formed in x, whose terms are as large as the box where a coordinate is oblique
                formed = account.held if lean is None or at.alone.all() else max(account.held, top)
                off = form.gamma(E + D + 12) * formed + frame.sums(account.held)
                if lean is not None:
                    off += float((np.abs(lean) @ error).max()) + rounded(2 * E + 11, DOUBLE) * account.held
                    off += rounded(D + 9, DOUBLE) * float((np.abs(lean) @ at.away(at.size)).max())
                lost = max(lost, account.ends + account.moved + off * math.exp(2.0 * eta))
                largest = max(largest, account.top)
        else:
            assert self.factors is not None
            lost, held = self._joined(counted)
            rank, largest = self.factors[0].shape[1], 0.0
            for r in range(rank):
                plain, rough = 1.0, 1.0
                for e, axis in enumerate(self.axes):
                    one = _Head(None, self.middle, self.half[e : e + 1], (axis,), self.factors[e][:, r : r + 1])
                    account = one.accounted(error[e : e + 1], counted)
                    plain, rough = plain * account.top, rough * (account.top + account.moved)
                lost, largest = lost + (rough - plain), largest + rough
            lost += (form.gamma(E + rank + 12) * held + frame.sums(held)) * math.exp(2.0 * eta)
            top = float(np.prod([np.abs(factor).max(axis=0) for factor in self.factors], axis=0).sum()) * 1.01
        return Column(lost * (1 + 1e-9) + frame.stray(top), min(largest, self.extent), eta, top, self.normaliser)

    def _joined(self, counted: "Counted") -> tuple[float, float]:
        """What a softmax that joins all directions loses where values are sums of products, and sum w |values|.

        Its logits join all directions, so their errors are no product: |prod f - prod g| is telescoped, and every piece of
        the telescope carries the error of one direction's logit.
        """
        assert self.factors is not None
        E, rank = len(self.axes), self.factors[0].shape[1]
        # per direction: sum w eta, and per product |g|, sum w|f|, sum w|f-g|, sum w eta|f-g|
        alone: list[tuple[float, list[tuple[float, float, float, float]]]] = []
        worst = 0.0
        for axis, factor in zip(self.axes, self.factors, strict=True):
            count = int(np.clip(40.0 * axis.spread, 16, 8000))
            width = ROOM / count
            if not axis.spread * width < 50.0:
                raise NotProved("its keys are too steep to be followed.")
            grow = math.exp(axis.spread * width)
            z = ROOM * (-1.0 + (2.0 * np.arange(count) + 1.0) / count)
            W = axis.weights(z)
            scores = np.multiply.outer(z, axis.a) + axis.b
            eta = counted.errors(axis, z, scores, width, E)
            worst += float(eta.max())
            mean = float((W * eta).sum(axis=1).max()) * grow
            rows = []
            for f in factor.T:
                g = W @ f
                size = float((W @ np.abs(f)).max()) * grow
                away, swing = np.abs(f[None] - g[:, None]), (grow - 1.0) * size
                apart = (float((W * away).sum(axis=1).max()) + swing) * grow
                rows.append((float(np.abs(g).max()) + swing, size, apart,
                             float((W * eta * away).sum(axis=1).max()) * grow + swing * mean * grow))  # fmt: skip
            alone.append((mean, rows))
        lost, sizes = 0.0, 0.0
        for r in range(rank):
            sizes += math.prod(rows[r][1] for _, rows in alone)
            for k in range(E):
                for e in range(E):
                    piece = 1.0
                    for i, (mean, rows) in enumerate(alone):
                        top, size, apart, shaken = rows[r]
                        if i < k:
                            piece *= top * (mean if i == e else 1.0)
                        elif i == k:
                            piece *= shaken if i == e else apart
                        else:
                            piece *= shaken + mean * top if i == e else size
                    lost += piece
        return float(math.exp(2.0 * worst) * lost), float(sizes)

    def _bound(self, head: "_Head", query: Array, goal: float) -> tuple[float, float]:
        approximation = head.supremum(goal)
        dust = 4.0 * self.tokens * self.tiny * float((np.abs(head.values[..., 0]) + head.leaning()).max())
        account = head.rounding if head.slopes is None else head.affine_rounding
        rounding, largest = account(query, self.unit, self.bonus, self.all_tokens, self.narrow)
        return approximation + rounding + dust, largest

    def normaliser(self) -> tuple[float, float]:
        """Bounds of log sum exp of the logits over the range of z."""
        low = high = 0.0
        for axis in self.axes:
            z = np.linspace(-ROOM, ROOM, 2001)
            scores = np.multiply.outer(z, axis.a) + axis.b
            top = scores.max(axis=1)
            level = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
            slack = ROOM / 2000 * float(np.abs(axis.a).max()) + 1e-9
            low, high = low + float(level.min()) - slack, high + float(level.max()) + slack
        return low, high


@dataclass(frozen=True)
class _Head:
    """One head with values c (N_1, .., N_E, 1), or c + G z with G (N_1, .., N_E, E), against an expression of middle + half z."""

    expression: Any  # None where rounding alone is asked for
    middle: Interval
    half: Array
    axes: tuple[Axis, ...]
    values: Array
    slopes: Array | None = None

    def leaning(self) -> Array:
        """sum_e |G_je| for every token."""
        return np.zeros(self.values.shape[:-1]) if self.slopes is None else np.abs(self.slopes).sum(axis=-1)

    def _largest(self, low: Array, high: Array, k: int, wide: float) -> float:
        """max_j |c_j + G_j z| for z within `wide` of the cell's centre along k, and in the cell along the others."""
        values = self.values[..., 0]
        if self.slopes is None:
            return float(np.abs(values).max())
        reach = (high - low) / 2.0 * (1 + 1e-12) + 2.0**-50
        reach[k] = wide
        at_centre = np.abs(values + self.slopes @ ((low + high) / 2.0)) + np.abs(self.slopes) @ reach
        return float(at_centre.max()) * (1 + 1e-12) + 1e-14 * float((np.abs(values) + self.leaning()).max())

    def size(self) -> float:
        """sup |f| over the range, from 700 pieces (one direction)."""
        edges = np.linspace(-1.0, 1.0, 701)
        found = self.expression.enclose(self._t(Interval(edges[:-1, None], edges[1:, None])))
        size = float(found.magnitude.max())
        if not math.isfinite(size):
            raise NotProved("a factor of the target could not be enclosed.")
        return size

    def extent(self) -> float:
        """A bound of |f| over the range, from a few hundred pieces; infinite where it is not enclosed."""
        E = len(self.axes)
        cuts = [np.linspace(-1.0, 1.0, EXTENT.get(E, 3) + 1)] * E
        low, high = (
            np.stack([a.ravel() for a in np.meshgrid(*(cut[part] for cut in cuts), indexing="ij")], axis=1)
            for part in (slice(None, -1), slice(1, None))
        )
        size = float(self.expression.enclose(self._t(Interval(low, high))).magnitude.max())
        return size if math.isfinite(size) else math.inf

    def _t(self, z: Interval) -> Interval:
        shape = z.lo.shape
        middle = Interval(np.broadcast_to(self.middle.lo, shape), np.broadcast_to(self.middle.hi, shape))
        return z * Interval.point(self.half) + middle

    # -- approximation

    def supremum(self, goal: float, cells: int = CELLS) -> float:
        """sup |f - g| over [-1, 1]^E."""
        E = len(self.axes)
        waiting = [(-np.ones(E), np.ones(E))]
        worst, used, looked = 0.0, 0, 0
        with balls.precision(72):
            while waiting:
                low, high = waiting.pop()
                used += 1
                if used > cells:
                    raise NotProved("the target could not be enclosed on complex neighbourhoods of the box.")
                chosen = [self._degree(low, high, k, 0.003 * goal / E / (2.5 ** k)) for k in range(E)]
                missing = [k for k, pair in enumerate(chosen) if pair is None]
                degrees = [pair[0] for pair in chosen if pair is not None]
                if not missing and math.prod(DENSE[E] * m for m in degrees) > LIMITS[E]:
                    missing = [int(np.argmax(degrees))]
                if missing:
                    k = missing[0]
                    if high[k] - low[k] < 0.3 * float((high - low).max()):  # its other sides make the cell too large
                        k = int((high - low).argmax())
                    third = (high[k] - low[k]) / 3.0
                    cuts = [low[k], low[k] + third, high[k] - third, high[k]]
                    for a, b in pairwise(cuts):
                        left, right = low.copy(), high.copy()
                        left[k], right[k] = a, b
                        waiting.append((left, right))
                    continue
                remainder, growth = 0.0, 1.0
                for pair in chosen:
                    assert pair is not None
                    remainder += growth * pair[1]
                    growth *= 1.0 + 2.0 / math.pi * math.log(pair[0] + 1.0)
                looked += math.prod(DENSE[E] * m for m in degrees)
                if looked > ALL_POINTS:
                    raise NotProved(f"a proof would look at more than {ALL_POINTS:,} points.")
                factor = math.prod(1.0 / math.cos(math.pi * m / (2.0 * DENSE[E] * m)) for m in degrees) * (1 + 1e-13)
                worst = max(worst, remainder + factor * (self._seen(low, high, degrees) + remainder))
        return worst * (1 + 1e-12)

    def _degree(self, low: Array, high: Array, k: int, allowed: float) -> tuple[int, float] | None:
        E = len(self.axes)
        centre, reach = (low[k] + high[k]) / 2.0, (high[k] - low[k]) / 2.0
        best: tuple[int, float] | None = None
        for r in RADII:
            # 2^-50: the rounding of the cell's own centre and reach
            wide, tall = (reach * (r + s / r) / 2.0 * (1 + 1e-12) + 2.0**-50 for s in (1.0, -1.0))
            factor = _strip(self.axes[k], float(centre), float(wide), float(tall))
            if not math.isfinite(factor):
                break
            around = self._around(low, high, k, float(centre), float(wide), float(tall))
            if not math.isfinite(around):
                break
            size = around + factor * self._largest(low, high, k, wide)
            if not math.isfinite(4.0 * size / ((r - 1.0) * allowed)):
                break
            degree = max(1, math.ceil(math.log(max(4.0 * size / ((r - 1.0) * allowed), 1.0)) / math.log(r) + 1e-9))
            if best is None or degree < best[0]:
                best = degree, 4.0 * size * r ** (-degree) / (r - 1.0) * (1 + 1e-12)
        return best if best is not None and best[0] <= (250 if E == 1 else 80) else None

    def _around(self, low: Array, high: Array, k: int, centre: float, wide: float, tall: float) -> float:
        """max |f| over the rectangle around an ellipse of side k; where that says nothing, over pieces that cover the ellipse.

        A piece is a share a..b of the ellipse's length, as high as the ellipse is above the end that lies nearer to its centre,
        times parts of the other sides.  Pieces that say nothing are cut into three across their longest side, all of one
        generation before the next; there are at most COVER of them.
        """
        whole = [(float(a), float(b), 0.0) for a, b in zip(low, high, strict=True)]
        whole[k] = (centre - wide, centre + wide, tall)
        found = self._magnitude(whole)
        if math.isfinite(found) or len(whole) == 1:
            return found
        start = [(float(a), float(b)) for a, b in zip(low, high, strict=True)]
        start[k] = (-1.0, 1.0)
        lengths = [b - a for a, b in start]
        worst, looked, pieces = 0.0, 0, [start]
        while pieces:
            silent = []
            for piece in pieces:
                row = [(a, b, 0.0) for a, b in piece]
                a, b = piece[k]
                inner = 0.0 if a < 0.0 < b else min(abs(a), abs(b))
                height = tall * math.sqrt(max(1.0 - inner * inner, 0.0)) * (1 + 1e-12) + 2.0**-50
                row[k] = (centre + wide * a - 2.0**-50, centre + wide * b + 2.0**-50, height)
                found = self._magnitude(row)
                if math.isfinite(found):
                    worst = max(worst, found)
                else:
                    silent.append(piece)
            looked += len(pieces)
            if looked + 3 * len(silent) > COVER and silent:
                return math.inf
            pieces = []
            for piece in silent:
                e = max(range(len(piece)), key=lambda i: (piece[i][1] - piece[i][0]) / lengths[i])
                a, b = piece[e]
                cuts = [a, a + (b - a) / 3.0, b - (b - a) / 3.0, b]
                pieces += [[*piece[:e], part, *piece[e + 1 :]] for part in pairwise(cuts)]
        return worst

    def _magnitude(self, row: list[tuple[float, float, float]]) -> float:
        """The largest |f| over a product of rectangles, one per side; infinite where nothing is known."""
        xs = []
        for e, (a, b, height) in enumerate(row):
            half = balls.interval(float(self.half[e]), float(self.half[e]))
            shift = balls.interval(float(self.middle.lo[e]), float(self.middle.hi[e]))
            xs.append(balls.rectangle(a, b, height) * half + shift)
        out = self.expression.enclose_ball(xs)[0]
        return float(balls.magnitude(out)) if out.is_finite() else math.inf

    def _seen(self, low: Array, high: Array, degrees: list[int]) -> float:
        """max |f - g| over the Chebyshev points of a cell, every doubt added."""
        E = len(self.axes)
        pi = np.longdouble("3.14159265358979323846264338327950288")
        grids: list[Extended] = []
        for e, m in enumerate(degrees):
            n = DENSE[E] * m
            angles = pi * (2 * np.arange(n, dtype=np.longdouble) + 1) / (2 * n)
            left, right = np.longdouble(low[e]), np.longdouble(high[e])
            grids.append((left + right) / 2 + (right - left) / 2 * np.cos(angles))
        columns = self.values if self.slopes is None else np.concatenate([self.values, self.slopes], axis=-1)
        g, size, doubt = columns.astype(np.longdouble), np.abs(columns), 0.0
        for e, axis in enumerate(self.axes):
            g = np.moveaxis(np.tensordot(axis.weights(grids[e], np.longdouble), g, axes=(1, e)), 0, e)
            size = np.moveaxis(np.tensordot(axis.weights(grids[e].astype(np.float64)), size, axes=(1, e)), 0, e)
            logits = float(np.abs(axis.a).max() + np.abs(axis.b).max())
            doubt += LONG * (8.0 * logits + 20.0 * axis.spread + 2.0 * len(axis.a) + 60.0)
        whole, spread = g[..., 0], size[..., 0]
        for e, z in enumerate(np.meshgrid(*grids, indexing="ij", sparse=True) if self.slopes is not None else ()):
            whole = whole + z * g[..., 1 + e]
            spread = spread + 1.0000001 * size[..., 1 + e]  # |z| is at most 1; nodes and products are off by parts of `doubt`
        g, size = whole, spread
        worst, rows = 0.0, max(1, 150_000 // max(1, math.prod(len(x) for x in grids[1:])))
        for start in range(0, len(grids[0]), rows):
            block = [grids[0][start : start + rows].astype(np.float64), *(x.astype(np.float64) for x in grids[1:])]
            mesh = np.stack([x.ravel() for x in np.meshgrid(*block, indexing="ij")], axis=1)
            slack = 4 * DOUBLE + 16 * LONG  # of the nodes, also where long doubles are no longer than doubles
            f = self.expression.enclose(self._t(Interval(mesh - slack, mesh + slack)))
            here = g[start : start + rows].astype(np.float64).ravel()
            loose = size[start : start + rows].ravel() * (doubt + DOUBLE)
            away = np.maximum(f.hi[:, 0] - here, here - f.lo[:, 0]) + loose
            if not np.isfinite(away).all():  # NaN as well, which max() would lose
                raise NotProved("the target could not be enclosed at points of the box.")
            worst = max(worst, float(away.max()))
        return worst * (1 + 1e-14)

    # -- rounding

    def rounding(self, query: Array, unit: float, bonus: float, tokens: int, narrow: bool) -> tuple[float, float]:
        """What finite precision does to g, and a bound of |g|."""
        found, E = self.accounted(query, Counted(unit, len(self.axes) + 2.01, 12.0, bonus)), len(self.axes)
        depth = _depth(tokens)
        terms = max(depth, sum(len(axis.a) + 1 for axis in self.axes)) + 4
        sums = DOUBLE * 1.01 * (terms * found.held + E * (depth + 4) * found.top)
        return found.ends + sums + self._moved(query, found.moved, narrow), found.top

    def affine_rounding(self, query: Array, unit: float, bonus: float, tokens: int, narrow: bool) -> tuple[float, float]:
        """The same for values c + G z."""
        found, E = self.affinely_accounted(query, Counted(unit, len(self.axes) + 2.01, 12.0, bonus)), len(self.axes)
        depth = _depth(tokens)
        terms = max(depth, sum(len(axis.a) + 1 for axis in self.axes)) + E + 6
        sums = DOUBLE * 1.01 * (terms * found.held + E * (depth + 4) * found.top)
        return found.ends + sums + self._moved(query, found.moved, narrow), found.top

    def _moved(self, query: Array, moved: float, narrow: bool) -> float:
        """What a wrong query does; one that is rounded and stays inside [-1, 1] moves along the target's own slope."""
        if not narrow:
            return moved
        low, high = self.middle.lo - self.half * (1 + 1e-12), self.middle.hi + self.half * (1 + 1e-12)
        through = lipschitz(self.expression, low, high) @ (query * self.half)
        return min(moved, float(through.max()) * (1 + 1e-12))

    def accounted(self, query: Array, counted: "Counted") -> "Account":
        """What wrong logits and a wrong query do to g: sums at the middles of short pieces, enlarged."""
        E = len(self.axes)
        values = self.values[..., 0]
        level = float(values.max() + values.min()) / 2.0
        most = {1: 6000, 2: 1300, 3: 90, 4: 26}[E]
        counts = [int(np.clip(24.0 * E * axis.spread, 16, most)) for axis in self.axes]
        middles = [ROOM * (-1.0 + (2.0 * np.arange(n) + 1.0) / n) for n in counts]
        growth = sum(axis.spread * ROOM / n for axis, n in zip(self.axes, counts, strict=True))
        if not growth < 50.0:
            raise NotProved("its keys are too steep to be followed.")
        grow = math.exp(growth)
        W = [axis.weights(z) for axis, z in zip(self.axes, middles, strict=True)]
        g = _contract(W, values)
        size = float(_contract(W, np.abs(values - level)).max()) * grow
        top = float(np.abs(g).max()) + (grow - 1.0) * size
        lost, ends = np.zeros(g.shape), 0.0
        largest_eta, slopes = 0.0, []
        for e, (axis, z, n) in enumerate(zip(self.axes, middles, counts, strict=True)):
            scores = np.multiply.outer(z, axis.a) + axis.b
            width = ROOM / n
            eta = counted.errors(axis, z, scores, width, E)
            moved = [w * eta if i == e else w for i, w in enumerate(W)]
            weight = _contract(moved, np.ones_like(values))
            if E == 1:
                apart = (moved[0] * np.abs(values[None] - g[:, None])).sum(axis=1)
            else:  # Cauchy and Schwarz, with room for cancellation
                second = _contract(moved, (values - level) ** 2)
                about = second - 2.0 * (g - level) * _contract(moved, values - level) + (g - level) ** 2 * weight
                apart = np.sqrt(weight * np.maximum(about + 1e-11 * (second + (g - level) ** 2 * weight), 0.0))
            lost += apart + weight * (grow - 1.0) * size
            largest_eta += float(eta.max())
            lean = axis.a[None] - (W[e] @ axis.a)[:, None]
            steep = [w * lean if i == e else w for i, w in enumerate(W)]
            drift = sum(2.0 * axis.spread * other.spread * ROOM / m for other, m in zip(self.axes, counts, strict=True)) * size
            crude = [np.abs(s) if i == e else s for i, s in enumerate(steep)]
            absolute = float(_contract(crude, np.abs(values - level)).max()) * grow + axis.spread * (grow - 1.0) * size
            slopes.append(min(float(np.abs(_contract(steep, values)).max()) + drift, absolute))
        ends = float(lost.max()) * grow * math.exp(2.0 * largest_eta)
        return Account(ends, float(query @ np.asarray(slopes)), top, size + abs(level))

    def affinely_accounted(self, query: Array, counted: "Counted") -> "Account":
        """The same for values c + G z, from their second moments about an affine function that all tokens share.

        Inside a piece the values move by sum_e |G_e| width_e, the weights by a factor.
        """
        assert self.slopes is not None
        E = len(self.axes)
        most = {1: 6000, 2: 700, 3: 70, 4: 22}[E]
        counts = [int(np.clip(24.0 * E * axis.spread, 24, most)) for axis in self.axes]
        widths = np.array([ROOM / n for n in counts])
        growth = sum(axis.spread * w for axis, w in zip(self.axes, widths, strict=True))
        if not growth < 50.0:
            raise NotProved("its keys are too steep to be followed.")
        grow = math.exp(growth)
        tokens_of = tuple(range(E))
        columns = np.concatenate([self.values, self.slopes], axis=-1)  # (N_1, .., N_E, 1 + E)
        shared = columns.mean(axis=tokens_of)
        own = columns - shared
        middles = [ROOM * (-1.0 + (2.0 * np.arange(n) + 1.0) / n) for n in counts]
        basis = [np.ones([1] * E), *np.meshgrid(*middles, indexing="ij", sparse=True)]  # 1, z_1, .., z_E
        W = [axis.weights(z) for axis, z in zip(self.axes, middles, strict=True)]
        pairs = [(a, b) for a in range(1 + E) for b in range(a + 1)]
        squares = np.stack([(2.0 if b < a else 1.0) * own[..., a] * own[..., b] for a, b in pairs], axis=-1)
        sizes = np.abs(own)

        def summed(weights: list[Array], array: Array) -> Array:
            found = _contract(weights, array)
            total = basis[0] * found[..., 0]
            for b, z in enumerate(basis[1:], start=1):
                total = total + z * found[..., b]
            return total

        def square(weights: list[Array]) -> Array:
            found, total = _contract(weights, squares), np.zeros(counts)
            for i, (a, b) in enumerate(pairs):
                total = total + basis[a] * basis[b] * found[..., i]
            room = _contract(weights, own**2).sum(axis=-1) * (1 + E)
            return np.asarray(np.maximum(total, 0.0) + 1e-11 * room)

        g = summed(W, own)
        drift = _contract(W, sizes[..., 1:] @ widths)
        about = np.sqrt(square(W) * (1 + 1e-9)) + drift  # sum w |v| anywhere in the piece, up to `grow`
        size = float(about.max()) * grow
        swing = (grow - 1.0) * size + float(drift.max())
        lost, largest_eta, slopes = np.zeros(counts), 0.0, []
        for e, (axis, z, width) in enumerate(zip(self.axes, middles, widths, strict=True)):
            scores = np.multiply.outer(z, axis.a) + axis.b
            eta = counted.errors(axis, z, scores, float(width), E)
            largest_eta += float(eta.max())
            moved = [w * eta if i == e else w for i, w in enumerate(W)]
            weight = _contract(moved, np.ones(own.shape[:-1]))
            spread = square(moved) - 2.0 * g * summed(moved, own) + g * g * weight + 1e-11 * g * g * weight
            apart = np.sqrt(weight * np.maximum(spread, 0.0))
            if E == 1:
                apart = (moved[0] * np.abs(own[None, :, 0] + z[:, None] * own[None, :, 1] - g[:, None])).sum(axis=1) * (1 + 1e-9)
            lost += apart + weight * swing + _contract(moved, sizes[..., 1:] @ widths)
            lean = axis.a[None] - (W[e] @ axis.a)[:, None]
            steep = [w * lean if i == e else w for i, w in enumerate(W)]
            change = 0.0  # of the derivative inside a piece
            tilts = [float(_contract(W, sizes[..., 1 + i]).max()) * grow for i in range(E)]
            for i, (other, w) in enumerate(zip(self.axes, widths, strict=True)):
                change += float(w) * (2.0 * axis.spread * other.spread * size + axis.spread * tilts[i] + other.spread * tilts[e])
            direct = summed(steep, own) + _contract(W, own[..., 1 + e]) + shared[1 + e]
            slopes.append(float(np.abs(direct).max()) + change)
        ends = float(lost.max()) * grow * math.exp(2.0 * largest_eta)
        plain = float((np.abs(self.values[..., 0]) + self.leaning() * ROOM).max())  # of every token
        top = min(plain, float(np.abs(shared) @ np.full(1 + E, ROOM)) + float(np.abs(g).max()) + swing)
        absolute = _contract(W, np.abs(columns))
        spread = absolute[..., 0]
        for e, z in enumerate(basis[1:]):
            spread = spread + (np.abs(z) + widths[e]) * absolute[..., 1 + e]
        held = min(plain, grow * float(spread.max()) * (1 + 1e-9))
        return Account(ends * (1 + 1e-9), float(query @ np.asarray(slopes)) * (1 + 1e-9), top, held)


def _depth(tokens: int) -> int:
    """Additions on the longest path of a tree sum."""
    return (TREE - 1) * (1 + math.floor(math.log(max(tokens, 2), TREE) + 1e-9))


def _contract(W: list[Array], values: Array) -> Array:
    for e, w in enumerate(W):
        values = np.moveaxis(np.tensordot(w, values, axes=(1, e)), 0, e)
    return values


def _strip(axis: Axis, centre: float, wide: float, tall: float) -> float:
    """S with sum_j |w_j| <= S on the strip: from the second moment of the slopes, or from the Bernstein product."""
    scores = centre * axis.a + axis.b
    logs = scores - scores.max()
    logs -= math.log(float(np.exp(logs).sum()))
    mean = float(np.exp(logs) @ axis.a)
    apart = np.abs(axis.a - mean)
    # In logarithms: a key of weight e^-800 at the centre may rule at the end of the strip.
    with np.errstate(over="ignore"):
        moment = float((apart**2 * np.exp(logs + apart * wide)).sum()) * (1 + 1e-9)
        size = float(np.abs(axis.a).max()) * (1.0 + wide + abs(centre)) + float(np.abs(axis.b).max())
        moment *= float(np.exp(8.0 * DOUBLE * (len(axis.a) + 2) * size))  # rounding of the weights and of the mean
    left = 1.0 - tall * tall * moment / 2.0
    found = 1.0 / left if left > 0 else math.inf
    n = len(axis.a) - 1
    step = axis.spread / n if n else 0.0
    if n and step * tall < 3.14:
        # 1 + e^{step z} has modulus at least cos(step y / 2) (1 + e^{step x}); its n-th power has binomial coefficients.
        ideal_a = axis.a[0] + step * np.arange(n + 1)
        logs = np.array([math.lgamma(n + 1) - math.lgamma(j + 1) - math.lgamma(n - j + 1) for j in range(n + 1)])
        # offsets in proportion to j move the head along the real axis, and leave that bound as it is
        rest = axis.b - logs
        rest = rest - rest[0] - (rest[-1] - rest[0]) / n * np.arange(n + 1)
        off = np.abs(axis.a - ideal_a) * math.hypot(abs(centre) + wide, tall) + np.abs(rest - float(np.median(rest)))
        tau = float(off.max()) + 1e-13 * (n + 1.0 + float(np.abs(axis.b).max()))
        plain = math.cos(step * tall / 2.0) ** (-n) * (1 + 1e-12 * (n + 1))
        left = 1.0 - math.expm1(min(tau, 1.0)) * plain
        if tau < 1.0 and left > 0:
            found = min(found, math.exp(tau) * plain / left)
    return found
