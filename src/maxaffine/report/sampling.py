"""What a figure needs to know of a compiled layer: values, errors and entropies at points of the box, within a budget.

Attention entropy is H(x) = -sum_j alpha_j(x) log alpha_j(x) in nats; e^H is how many tokens share the answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.budget import count_text
from maxaffine.core.errors import MaxaffineError
from maxaffine.core.progress import Progress, silent
from maxaffine.layer.maxaffine import MaxAffine

if TYPE_CHECKING:
    from maxaffine.compiled import Compiled

# Attention weights held at once: 32 MiB of float64.
WEIGHTS_AT_ONCE = 4_194_304
# Attention weights computed for all entropies of one figure, a few seconds of work.
WEIGHTS_IN_ALL = 120_000_000
# Terms of sums over tokens for one picture, a few seconds of exponentials.
SUMS_IN_A_PICTURE = 250_000_000
# Key tokens whose cells may be looked for.
MARKED = 1200  # entries marked along a line
MOST_CELLS = 500_000
# Halvings of the box until an error that is at home in a smaller part is given up.
FINEST = 36
# An error that is at home in less than this share of the box is shown there.
LOCAL = 0.1
_POINTS_AT_ONCE = 16_384


@dataclass(frozen=True)
class Window:
    """A box to look at: the whole domain or a part of it, with the edges and the names of its coordinates."""

    low: Array
    high: Array
    names: tuple[str, ...]

    @property
    def dimension(self) -> int:
        """How many coordinates it has."""
        return len(self.names)

    def around(self, point: Array, fraction: float) -> Window:
        """The window of that fraction of every width, centred on the point as far as the edges allow."""
        half = (self.high - self.low) * fraction / 2
        middle = np.clip(point, self.low + half, self.high - half)
        return replace(self, low=np.maximum(middle - half, self.low), high=np.minimum(middle + half, self.high))

    def section(self, axes: Sequence[int]) -> Window:
        """These coordinates alone."""
        chosen = list(axes)
        return Window(self.low[chosen], self.high[chosen], tuple(self.names[i] for i in chosen))

    def ticks(self, axis: int, count: int) -> Array:
        """Midpoints of `count` equal parts of one axis, (count,)."""
        return np.asarray(self.low[axis] + (np.arange(count) + 0.5) * (self.high[axis] - self.low[axis]) / count)


@dataclass(frozen=True)
class Samples:
    """Target and layer at the same points, each of shape (...)."""

    target: Array
    layer: Array
    apart: Array | None = None  # of a table, the error at the entry nearest to every point

    @property
    def error(self) -> Array:
        """layer - target; of a table at the nearest entry, since nothing is said between them."""
        return self.layer - self.target if self.apart is None else self.apart


class Probe:
    """A compiled layer seen through one of its outputs, as functions of the flattened coordinates x, (B, D)."""

    def __init__(self, compiled: Compiled, progress: Progress | None = None) -> None:
        self.compiled = compiled
        self.window = Window(compiled.box.low, compiled.box.high, compiled.box.names)
        self._progress = progress or silent
        self._done, self._total = 0, 1
        self.worst = self._worst_point()
        target, layer = self._both(self.worst[None, :])
        self.outputs = target.shape[1:]
        row, column = np.unravel_index(int(np.abs(layer - target)[0].argmax()), self.outputs)
        self.output = int(row), int(column)
        at_worst = self.at(self.worst[None, :])
        self.worst_layer = float(at_worst.layer[0])
        self.worst_error = self.worst_layer - float(at_worst.target[0])

    def expect(self, steps: int) -> None:
        """Say how many steps the figure will take."""
        self._total = steps

    def step(self) -> None:
        """One step is done."""
        self._done = min(self._done + 1, self._total)
        self._progress("drawing", self._done, self._total)

    def at(self, x: Array) -> Samples:
        """Target and layer at points (..., D), the drawn output only."""
        points = x.reshape(-1, x.shape[-1])
        target, layer = self._both(points)
        found = [target, layer]
        if self.at_entries:
            found = [target, self._layer(points, target.shape), layer - target]
        row, column = self.output
        return Samples(*(array[:, row, column].reshape(x.shape[:-1]) for array in found))

    @property
    def at_entries(self) -> bool:
        """Whether the target is a table or samples, so that errors are those at entries."""
        return hasattr(self.compiled.target.data, "snapped")

    @property
    def titled(self) -> str:
        """What the size of the error is called."""
        return "|error| at the nearest entry" if self.at_entries else "error, |layer − target|"

    @property
    def target_titled(self) -> str:
        """What the target is called: a table says nothing between its entries."""
        return "target, the nearest entry" if self.at_entries else "target"

    def entries_on(self, axis: int, window: Window) -> Array:
        """Places along an axis of the entries on the line through the worst point, at most MARKED of them."""
        others = np.arange(self.window.dimension) != axis
        low, high, found = window.low[axis], window.high[axis], [np.empty(0)]
        for points, _ in self.compiled.target.data.blocks():
            here = (points[:, others] == self.worst[others]).all(axis=1) & (low <= points[:, axis]) & (points[:, axis] <= high)
            found.append(points[here, axis])
        places = np.unique(np.concatenate(found))
        return places[:: max(1, math.ceil(len(places) / MARKED))]

    def affordable(self, most: int, least: int) -> int:
        """Points per side of a square picture: `most`, fewer when every point costs a sum over very many tokens."""
        # A product of axes needs a multiplication for a token where another layer needs an exponential.
        budget = SUMS_IN_A_PICTURE * (12 if self.compiled.weights.is_product else 1)
        return int(np.clip(math.isqrt(budget // max(1, self.compiled.weights.work)), least, most))

    def spread_of_error(self) -> float:
        """The largest share of the box's widths, about the worst point, in which the error is at home.

        In a window of that share a tenth of the points have a fifth of the largest error; 1.0 where that is the whole box.
        """
        if self.worst_error == 0.0 or self.at_entries:
            return 1.0
        shares = np.random.default_rng(0).uniform(-0.5, 0.5, (256, self.window.dimension))
        wide = self.window.high - self.window.low
        for power in range(FINEST):
            share = 2.0**-power
            x = np.clip(self.worst + share * wide * shares, self.window.low, self.window.high)
            if float(np.mean(np.abs(self.at(x).error) > 0.2 * abs(self.worst_error))) >= 0.1:
                return share
        return 1.0

    def home(self) -> Window | None:
        """A window about the worst point where the error is at home in a small part of the box, else None."""
        spread = self.spread_of_error()
        return self.window.around(self.worst, 2.0 * spread) if spread < LOCAL else None

    def entropy(self, x: Array, share: float = 1.0) -> Array | None:
        """H(x) at points (..., D); None when the weights would pass this share of the figure's budget."""
        points = x.reshape(-1, x.shape[-1])
        if len(points) > self.entropy_points(share):
            return None
        entropy = np.empty(len(points))
        step = max(1, WEIGHTS_AT_ONCE // self.compiled.weights.keys.count)
        for start in range(0, len(points), step):
            weights = self.weights(points[start : start + step])
            logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
            entropy[start : start + step] = -np.einsum("ij,ij->i", weights, logs)
        return np.maximum(entropy, 0.0).reshape(x.shape[:-1])

    def entropy_plane(self, pair: tuple[int, int], window: Window, most: int, least: int, share: float = 1.0) -> Array | None:
        """H over a plane through the worst point, (side, side); None when the budget does not allow `least` a side.

        For a product of axes the weights are products too, so that entropies add up over the axes and
        H(x_i, x_j) = H(x_i, w_j) + H(w_i, x_j) - H(w), w the worst point: two lines say what the plane says.
        """
        if self.compiled.weights.is_grid and self.entropy_points(share) > 2 * most:
            lines = []
            for axis, coordinate in enumerate(pair):
                x = np.tile(self.worst, (most, 1))
                x[:, coordinate] = window.ticks(axis, most)
                lines.append(self.entropy(x))
            here = self.entropy(self.worst[None, :])
            if lines[0] is not None and lines[1] is not None and here is not None:
                return np.asarray(np.maximum(lines[0][None, :] + lines[1][:, None] - here[0], 0.0))
        side = min(math.isqrt(self.entropy_points(share)), most)
        return self.entropy(self.plane(pair, window, side), share) if side >= least else None

    def entropy_points(self, share: float = 1.0) -> int:
        """How many points may be asked for their entropy within this share of the figure's budget."""
        return int(WEIGHTS_IN_ALL * share) // self.compiled.weights.keys.count

    @property
    def why_no_entropy(self) -> str:
        """The sentence in place of a picture past the budget."""
        return f"Not drawn: {count_text(self.compiled.tokens)} tokens\nneed more attention weights\nthan a figure may compute."

    def weights(self, x: Array) -> Array:
        """alpha(x), (B, D) -> (B, N); for a few points."""
        return np.asarray(self.compiled.attention(*self.compiled.target.split(x)), dtype=np.float64).reshape(len(x), -1)

    @property
    def pointwise_bound(self) -> float | None:
        """The bound where it speaks of every point: in the sup norm only, where errors are absolute, and not of a table."""
        certificate = self.compiled.certificate
        absolute = certificate.norm_label == "inf"
        return certificate.bound if certificate.kind != "none" and absolute else None

    def partition(self) -> MaxAffine | None:
        """The partition in the user's coordinates; None where there is none to draw or it is too large to look at."""
        try:
            return self.compiled.partition() if self.compiled.tokens <= MOST_CELLS else None
        except MaxaffineError:
            return None

    def plane(self, axes: tuple[int, int], window: Window, side: int, jitter: bool = False) -> Array:
        """Points of a plane through the worst point, (side, side, D); rows run along axes[1].

        With jitter every point moves within its pixel, always in the same way, so that cells of a size near the pixel's
        cannot conspire with the sampling.
        """
        flat = np.stack(np.meshgrid(window.ticks(0, side), window.ticks(1, side)), axis=-1)
        if jitter:
            flat = flat + (np.random.default_rng(0).random(flat.shape) - 0.5) * (window.high - window.low) / side
        x = np.tile(self.worst, (side, side, 1))
        x[..., list(axes)] = flat
        return x

    def line(self, axis: int, window: Window, count: int) -> tuple[Array, Array]:
        """Points of a line through the worst point, the worst point among them where the window has it: (count,), (count, D)."""
        ticks = np.linspace(window.low[axis], window.high[axis], count)
        if ticks[0] <= self.worst[axis] <= ticks[-1]:
            ticks[int(np.abs(ticks - self.worst[axis]).argmin())] = self.worst[axis]
            ticks.sort()
        x = np.tile(self.worst, (count, 1))
        x[:, axis] = ticks
        return ticks, x

    def _worst_point(self) -> Array:
        point = np.asarray(self.compiled.observed.at, dtype=np.float64)
        if point.shape == self.window.low.shape:
            return np.clip(point, self.window.low, self.window.high)
        # Nothing observed: look at a few thousand points, always the same ones.
        x = np.random.default_rng(0).uniform(self.window.low, self.window.high, (4096, self.window.dimension))
        target, layer = self._both(x)
        return np.asarray(x[int(np.abs(layer - target).max(axis=(1, 2)).argmax())])

    def _both(self, x: Array) -> tuple[Array, Array]:
        """Target and layer, (B, D) -> (B, d_out, n_out) twice; of a table both at the nearest entry, of which alone it speaks."""
        if self.at_entries:
            x = np.asarray(self.compiled.target.data.snapped(x))
        target = self.compiled.target.values(x)
        return target, self._layer(x, target.shape)

    def _layer(self, x: Array, shape: tuple[int, ...]) -> Array:
        """The layer, (B, D) -> (B, d_out, n_out)."""
        layer = np.empty(shape)
        for start in range(0, len(x), _POINTS_AT_ONCE):
            part = slice(start, start + _POINTS_AT_ONCE)
            layer[part] = self.compiled(*self.compiled.target.split(x[part])).reshape(layer[part].shape)
        return layer
