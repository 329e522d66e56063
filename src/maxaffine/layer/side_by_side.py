"""A layer of several outputs as layers side by side: each answers some entries of the output, from the variables they depend on.

    F(x)_e = sum over the parts p that write to e of  sign_pe F_p(x[variables of p])_k        where e is output k of part p

An entry (r, c), row r of output token c, is numbered r n_out + c.  All tokens stand in one literal head: query columns differ by
group as they do in one grouped layer (layer/grouped.py), values of a part are zero in all rows but those of its entries, and W_O
adds the columns of its groups to its output token, or adds them to and takes them from several.  Tokens add up.  A part has a
centre, a box and certificates of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import AnyGroup, GroupedKeys, GroupedLayer
from maxaffine.layer.keys import frozen
from maxaffine.layer.layer import Boxed, Layer


@dataclass(frozen=True)
class Part:
    """A layer for some entries of the output, a function of some of the variables, both numbered from 0.

    The entries are those of its first output token; `also` has the further ones, each with the sign that it is added with.
    """

    entries: tuple[int, ...]
    variables: tuple[int, ...]
    layer: GroupedLayer
    also: tuple[tuple[int, int], ...] = ()

    def columns(self, n_out: int) -> tuple[tuple[int, int], ...]:
        """The output tokens that it writes to, each with its sign."""
        return ((self.entries[0] % n_out, 1), *self.also)

    def seen(self, x: Array) -> Array:
        """The variables of points (B, D) that the part depends on: (B, len(variables))."""
        return np.ascontiguousarray(x[:, list(self.variables)])


def writes(entries: Sequence[int], also: Sequence[tuple[int, int]], n_out: int) -> list[tuple[int, int, int]]:
    """(k, e, sign): output k of a part is added to entry e with that sign."""
    found = [(k, e, 1) for k, e in enumerate(entries)]
    return found + [(k, e // n_out * n_out + c, sign) for c, sign in also for k, e in enumerate(entries)]


@dataclass(frozen=True)
class OutputsLayer(Boxed):
    """Parts that answer every entry of a (d_out, n_out) output; `bonus` is Lambda between all their groups."""

    parts: tuple[Part, ...]
    d_out: int
    n_out: int
    bonus: float
    low: Array
    high: Array
    inputs: tuple[tuple[int, int], ...]

    grouped: ClassVar[Literal[True]] = True
    several: ClassVar[Literal[True]] = True
    hard = is_product = is_grid = False
    sharpness = 1.0

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))
        self._check()

    def _check(self) -> None:
        D = self.dimension
        answered = {e for writes in self.writes() for _, e, _ in writes} if self.parts and self.n_out > 0 else set()
        if self.d_out < 1 or len(answered) != self.d_out * self.n_out or answered != set(range(len(answered))):
            raise BadInput(f"the parts of a layer must answer each of its {self.d_out} x {self.n_out} outputs.")
        if self.low.shape != (D,) or self.high.shape != (D,) or sum(d * n for d, n in self.inputs) != D:
            raise BadInput(f"`inputs` {self.inputs} must hold {D} numbers in all.")
        if not (math.isfinite(self.bonus) and self.bonus >= 0 and np.isfinite(self.low).all() and np.isfinite(self.high).all()):
            raise BadInput("every number of a layer must be finite.")
        for part in self.parts:
            own = list(part.variables)
            if own != sorted(set(own)) or not own or not (own[0] >= 0 and own[-1] < D):
                raise BadInput("the variables of a part must be some of the layer's, in their order.")
            if part.layer.d_out != len(part.entries) or part.layer.dimension != len(own) or part.layer.dtype != self.dtype:
                raise BadInput("a part must have as many outputs and variables as it says, in the dtype of all.")
            if len({e % self.n_out for e in part.entries}) != 1 or len(set(part.entries)) < len(part.entries):
                raise BadInput("the outputs of a part must belong to one output token.")
            columns = [c for c, _ in part.columns(self.n_out)]
            if len(set(columns)) < len(columns) or any(not 0 <= c < self.n_out or sign not in (1, -1) for c, sign in part.also):
                raise BadInput("a part writes to further output tokens once each, with a sign.")
            if not (np.array_equal(part.layer.low, self.low[own]) and np.array_equal(part.layer.high, self.high[own])):
                raise BadInput("the parts of a layer must have its box.")

    # What `Boxed` says of layers with a centre.

    @property
    def dtype(self) -> str:  # type: ignore[override]
        """That of every part."""
        return self.parts[0].layer.dtype

    @property
    def dimension(self) -> int:
        """D, the number of input variables."""
        return len(self.low)

    @property
    def tokens(self) -> int:
        """Key tokens of the literal layer, stored or implied."""
        return sum(part.layer.tokens for part in self.parts)

    @property
    def work(self) -> int:
        """Tokens that an evaluation meets, or keys where values are factored."""
        return sum(part.layer.work for part in self.parts)

    @property
    def keys(self) -> GroupedKeys:
        """Tokens per group and in all."""
        return GroupedKeys(tuple(group.count for _, group in self.members()), self.tokens)

    @property
    def nbytes(self) -> int:
        """Bytes that the stored arrays take."""
        return sum(part.layer.nbytes for part in self.parts)

    @property
    def has_clusters(self) -> bool:
        """Whether some group's keys stand in clusters."""
        return any(part.layer.has_clusters for part in self.parts)

    @property
    def is_affine(self) -> bool:
        """Whether some value is affine in x rather than constant."""
        return any(part.layer.is_affine for part in self.parts)

    def members(self) -> Iterator[tuple[Part, AnyGroup]]:
        """The groups of all parts, in the order of their query columns."""
        return ((part, group) for part in self.parts for group in part.layer.groups)

    def writes(self) -> list[list[tuple[int, int, int]]]:
        """What every part is added to: (k, e, sign), output k of the part to entry e."""
        return [writes(part.entries, part.also, self.n_out) for part in self.parts]

    @property
    def adds(self) -> bool:
        """Whether some entry is a sum over parts, or minus what a part says."""
        found = [(e, sign) for writes in self.writes() for _, e, sign in writes]
        return len(found) > self.d_out * self.n_out or any(sign < 0 for _, sign in found)

    def mixing(self) -> Array:
        """The signs as a matrix, entries by the outputs of all parts below one another."""
        made, first = np.zeros((self.d_out * self.n_out, sum(len(part.entries) for part in self.parts))), 0
        for part, rows in zip(self.parts, self.writes(), strict=True):
            for k, e, sign in rows:
                made[e, first + k] = sign
            first += len(part.entries)
        return made

    def rows(self, part: Part) -> list[int]:
        """The output rows that a part writes to."""
        return [e // self.n_out for e in part.entries]

    def gathered(self, found: list[NDArray[np.generic]]) -> NDArray[np.generic]:
        """Answers (B, K_p, 1) of all parts as those of the layer, (B, d_out, n_out); they are added up in float64."""
        out = np.zeros((len(found[0]), self.d_out * self.n_out))
        for rows, answer in zip(self.writes(), found, strict=True):
            for k, e, sign in rows:
                out[:, e] += sign * answer[:, k, 0].astype(np.float64)
        return out.reshape(len(out), self.d_out, self.n_out).astype(found[0].dtype)

    def site_pieces(self) -> tuple[Array, Array] | None:
        """The partition of the one part that has one, in all variables; None where there is none, or more than one."""
        found = [(part, pieces) for part in self.parts if (pieces := part.layer.site_pieces()) is not None]
        found = [(part, pieces) for part, pieces in found if len(pieces[1]) > 1] or found[:1]
        if len(found) != 1:
            return None
        part, (slopes, offsets) = found[0]
        wide = np.zeros((len(slopes), self.dimension))
        wide[:, list(part.variables)] = slopes
        return wide, offsets

    def layout(self) -> str:
        """Keys per part, as a person reads them; three and more parts alike are counted."""
        words = []
        for text, run in itertools.groupby(part.layer.layout() for part in self.parts):
            many = len(list(run))
            words += [f"{many} times {text}"] if many > 2 else [text] * many
        return "; ".join(words)


AnyLayer = Layer | GroupedLayer | OutputsLayer


def clusters_of(layer: AnyLayer) -> list[tuple[GroupedLayer, tuple[int, ...], ClusterGroup]]:
    """Every group of clusters, with the layer that it stands in and the variables of that."""
    if not layer.grouped:
        return []
    if layer.several:
        return [(part.layer, part.variables, group) for part in layer.parts for group in part.layer.cluster_groups()]
    return [(layer, tuple(range(layer.dimension)), group) for group in layer.cluster_groups()]
