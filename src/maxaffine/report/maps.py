"""Panels over two axes: colour maps of target, layer, error and entropy, and the cells over them."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from maxaffine.core.arrays import Array
from maxaffine.layer.maxaffine import MaxAffine
from maxaffine.layer.spectral_keys import weights
from maxaffine.report import style
from maxaffine.report.sampling import MOST_CELLS, Probe, Samples, Window

if TYPE_CHECKING:
    from maxaffine.layer.grouped import Group
    from maxaffine.layer.side_by_side import AnyLayer

# More cells than this in one panel are a grey wash.
READABLE = 650
# Rows of attention weights in one panel.
MOST_ROWS = 4


def colour_map(axes: Axes, image: Array, window: Window, colours: str, norm: Normalize, title: str) -> None:
    """An image of values over the window, rows running upwards, with its colour bar."""
    extent = (window.low[0], window.high[0], window.low[1], window.high[1])
    shown = axes.imshow(image, origin="lower", extent=extent, aspect="auto", cmap=colours, norm=norm)
    axes.set_title(title)
    _plane_axes(axes, window)
    _colour_bar(axes, shown)


def _plane_axes(axes: Axes, window: Window) -> None:
    axes.set_xlim(window.low[0], window.high[0])
    axes.set_ylim(window.low[1], window.high[1])
    style.coordinate(axes.xaxis, window.names[0], window.low[0], window.high[0])
    style.coordinate(axes.yaxis, window.names[1], window.low[1], window.high[1])


def _colour_bar(axes: Axes, shown: Any) -> None:
    figure = axes.get_figure()
    assert figure is not None
    bar = figure.colorbar(shown, cax=axes.inset_axes((1.025, 0.0, 0.035, 1.0)), ticks=MaxNLocator(5))
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2, labelsize=7.5)


def partition_map(axes: Axes, probe: Probe, cells: list[Array] | None, window: Window, norm: Normalize) -> None:
    """The cells, each in the colour of the layer's value at its centre of gravity; for spectral heads, their weights."""
    layer = probe.compiled.weights
    groups = clusterless(layer)[:4]
    if cells is None and groups:
        weight_curves(axes, groups)
        return
    axes.set_title("cells, coloured by the layer's value")
    if cells is None:
        style.note(axes, f"The cells are not drawn: more than {MOST_CELLS:,} tokens, or a method without cells.")
        return
    middles = np.array([cell.mean(axis=0) for cell in cells])
    fill = PolyCollection(cells, cmap=style.VALUES, norm=norm, edgecolors="white", linewidths=0.6)
    fill.set_array(probe.at(middles).layer)
    axes.add_collection(fill, autolim=False)
    _plane_axes(axes, window)
    _colour_bar(axes, fill)


def clusterless(layer: "AnyLayer") -> list["Group"]:
    """The groups of product keys."""
    if not layer.grouped:
        return []
    groups = [group for _, group in layer.members()] if layer.several else list(layer.groups)
    return [group for group in groups if not (group.clustered or group.factored)]


def weight_curves(axes: Axes, groups: list["Group"]) -> None:
    """Attention weights of a spectral head's keys along every direction of its groups, one above the other."""
    z = np.linspace(-1.0, 1.0, 241)
    axes.set_title("attention weights of the keys")
    rows = [(k, e, keys) for k, group in enumerate(groups) for e, keys in enumerate(group.axes)][:MOST_ROWS]
    several = max(e for _, e, _ in rows) > 0
    ticks: list[tuple[float, str]] = []
    for row, (k, e, keys) in enumerate(reversed(rows)):
        shares = weights(keys.stored(np.dtype(np.float64)), z)
        colour = style.CURVES[(len(rows) - 1 - row) % len(style.CURVES)]
        peak = float(shares.max())
        axes.plot(z, 1.25 * row + shares / peak, color=colour, lw=0.9)
        ticks += [(1.25 * row, "0"), (1.25 * row + 1.0, style.number(peak, 2))]
        words = f"group {k + 1}{f', direction {e + 1}' if several else ''}: {len(keys)} keys"
        axes.text(-0.98, 1.25 * row + 1.02, words, fontsize=7.5, color=colour, va="bottom")
    style.clean(axes)
    axes.set(xlim=(-1.0, 1.0), ylim=(0.0, 1.25 * len(rows)), xticks=[-1.0, -0.5, 0.0, 0.5, 1.0])
    axes.set_yticks([place for place, _ in ticks], [said for _, said in ticks])
    axes.set_xlabel("position along the direction, scaled to [-1, 1]", labelpad=1)


def entropy_map(
    axes: Axes, probe: Probe, pair: tuple[int, int], window: Window, cells: list[Array] | None, title: str, share: float = 1.0
) -> None:
    """H(x) in nats over a plane through the worst point, as fine as this share of the budget allows."""
    entropy = probe.entropy_plane(pair, window, 200, 24, share)
    if entropy is None:
        axes.set_title(title)
        style.note(axes, probe.why_no_entropy)
        return
    low, high = float(entropy.min()), float(entropy.max())
    scale = Normalize(0.0 if low < 0.5 * high else low, max(high, low + 0.1))  # entropies that hardly differ are told apart
    colour_map(axes, entropy, window, style.ENTROPY, scale, title)
    outline_cells(axes, cells, 0.28)
    mark_worst(axes, probe.worst[list(pair)])


def outline_cells(axes: Axes, cells: list[Array] | None, strength: float = 0.5) -> None:
    """Faces of the cells as thin lines."""
    if not cells or len(cells) < 2:
        return
    width = float(np.clip(12.0 / math.sqrt(len(cells)), 0.3, 0.8))
    axes.add_collection(PolyCollection(cells, facecolors="none", edgecolors=(1, 1, 1, strength), linewidths=width), autolim=False)


def mark_window(axes: Axes, window: Window) -> None:
    """Where the close view looks."""
    size = window.high - window.low
    for colour, width in (("white", 2.2), (style.WORST, 1.0)):
        axes.add_patch(Rectangle((float(window.low[0]), float(window.low[1])), *size, fill=False, ec=colour, lw=width, zorder=4))


def mark_worst(axes: Axes, point: Array) -> None:
    """The worst point found, ringed in white so that it shows on any colour."""
    axes.plot(point[0], point[1], **{**style.WORST_MARK, "mec": "white", "mew": 3.0})
    axes.plot(point[0], point[1], **style.WORST_MARK)


def readable_cells(partition: MaxAffine | None, window: Window) -> list[Array] | None:
    """Polygons of the nonempty cells in the window, or None when there are too many to see."""
    if partition is None or len(partition) > MOST_CELLS:
        return None
    # A coarse look first: when many different pieces win on a lattice there is no need to cut them all.
    ticks = np.stack(np.meshgrid(window.ticks(0, 40), window.ticks(1, 40)), axis=-1).reshape(-1, 2)
    if len(partition) > 4 * READABLE and len(np.unique(partition.argmax(ticks))) > READABLE:
        return None
    cells = [cell for cell in partition.polygons(window) if len(cell)]
    return cells if len(cells) <= READABLE else None


def value_range(samples: Iterable[Samples]) -> tuple[float, float]:
    """The least and the largest value of target and layer."""
    values = [part for one in samples for part in (one.target, one.layer)]
    return min(float(part.min()) for part in values), max(float(part.max()) for part in values)


def value_scale(*samples: Samples) -> Normalize:
    """One colour scale for target and layer, so that equal colours are equal values."""
    low, high = value_range(samples)
    return Normalize(low, high if high > low else low + 1.0)


def peaks(image: Array) -> Array:
    """The largest of every 3 x 3 block and of the blocks around it: peaks narrower than a pixel stay visible."""
    size = len(image) // 3
    blocks = image[: 3 * size, : 3 * size].reshape(size, 3, size, 3).max(axis=(1, 3))
    padded = np.pad(blocks, 1, mode="edge")
    near = [padded[i : i + size, j : j + size] for i in range(3) for j in range(3)]
    return np.asarray(np.max(near, axis=0))
