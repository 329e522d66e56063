"""The panels of a figure and their three arrangements: one variable, two, and more."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from maxaffine.plan.maxaffine import MaxAffine
from maxaffine.report import style
from maxaffine.report.sampling import MOST_CELLS, WEIGHTS_IN_ALL, Probe, Samples, Window

Floats = NDArray[np.float64]

# More cells than this in one panel are a grey wash; a window with about _CLOSE of them is drawn instead.
_READABLE = 650
_CLOSE = 110
# Inches at the top for the title lines.
_HEADER = 1.1


# -- arrangements -----------------------------------------------------------------------------------------


def one_variable(probe: Probe) -> Figure:
    """Left the whole interval, right a few cells about the worst point; rows: values, error, attention."""
    probe.expect(5)
    figure = _canvas(7.6)
    grid = _grid(figure, 3, 2, across=1.0, down=0.42, right=0.2, width_ratios=[2.1, 1], height_ratios=[1.35, 1, 1])
    partition = probe.partition()
    cells = _intervals(partition, probe.window)
    close = probe.window.around(probe.worst, min(0.4, 6.0 / max(2, len(cells))))
    count = int(np.clip(10 * len(cells), 1600, 12_000))
    for column, (window, points) in enumerate([(probe.window, count), (close, 900)]):
        handovers = _handovers(_intervals(partition, window) if column else cells)
        shared: Axes | None = None
        ticks, x = probe.line(0, float(window.low[0]), float(window.high[0]), points)
        samples = probe.at(x)
        probe.step()
        panels = []
        for row in range(3):
            panels.append(figure.add_subplot(grid[row, column], sharex=shared))
            shared = shared or panels[0]
            _mark_handovers(panels[row], handovers, window, rug=row == 0)
            panels[row].set_xlim(window.low[0], window.high[0])
            style.clean(panels[row])
        _curves(panels[0], probe, ticks, samples, _pointwise_bound(probe))
        if column == 0:
            panels[0].legend(**_LEGEND, loc="lower right", bbox_to_anchor=(1.0, 1.02), ncols=4)
        _error_curve(panels[1], probe, ticks, samples)
        if column == 0:
            panels[0].set_title("target and layer")
            panels[1].set_title("error, layer − target")
            _entropy_curve(panels[2], probe, window, handovers)
        else:
            panels[0].set_title("near the worst point")
            panels[1].set_title("error there")
            _weight_curves(panels[2], probe, window)
        for panel in panels[:2]:
            panel.tick_params(labelbottom=False, bottom=False)
        panels[2].set_xlabel(window.names[0])
        probe.step()
    return figure


def two_variables(probe: Probe) -> Figure:
    """Target, layer and error; the cells, the entropy, and sections through the worst point."""
    probe.expect(6)
    figure = _canvas(7.9)
    grid = _grid(figure, 2, 3, across=1.05, down=0.7)
    partition, whole = probe.partition(), probe.window
    cells = _readable_cells(partition, whole)
    many = partition is not None and cells is None
    close = whole.around(probe.worst, math.sqrt(_CLOSE / len(partition))) if partition is not None and many else whole
    close_cells = _readable_cells(partition, close) if many else cells

    side = probe.affordable(300 if many else 240, 120)
    _, x = probe.plane((0, 1), whole, side, jitter=many)
    samples = probe.at(x)
    error = _peaks(np.abs(samples.error)) if many else np.abs(samples.error)
    scale = _value_scale(samples)
    error_scale = Normalize(0.0, max(float(error.max()), abs(probe.worst_error)) or 1.0)
    probe.step()

    top = [figure.add_subplot(grid[0, k]) for k in range(3)]
    _map(top[0], samples.target, whole, style.VALUES, scale, "target")
    _map(top[1], samples.layer, whole, style.VALUES, scale, "layer")
    title = "error, largest |layer − target| nearby" if many else "error, |layer − target|"
    _map(top[2], error, whole, style.ERRORS, error_scale, title)
    for axes in top:
        _outline(axes, cells)
        if many:
            _frame(axes, close)
    _mark_worst(top[2], probe.worst)
    probe.step()

    if many:
        _, x = probe.plane((0, 1), close, probe.affordable(200, 120))
        axes = figure.add_subplot(grid[1, 0])
        _map(axes, np.abs(probe.at(x).error), close, style.ERRORS, error_scale, "error near the worst point")
        _outline(axes, close_cells)
        _mark_worst(axes, probe.worst)
    else:
        _partition_map(figure.add_subplot(grid[1, 0]), probe, cells, whole, scale)
    probe.step()
    where = "attention entropy there, nats" if many else "attention entropy, nats"
    _entropy_map(figure.add_subplot(grid[1, 1]), probe, (0, 1), close, close_cells, where)
    probe.step()

    below = grid[1, 2].subgridspec(2, 1, hspace=0.36)
    for axis in range(2):
        axes = figure.add_subplot(below[axis])
        ticks, line = probe.line(axis, float(close.low[axis]), float(close.high[axis]), 1200)
        style.clean(axes)
        _error_curve(axes, probe, ticks, probe.at(line), axis=axis)
        axes.set_xlim(close.low[axis], close.high[axis])
        axes.set_xlabel(whole.names[axis], labelpad=1)
        if axis == 0:
            axes.set_title("error on lines through the worst point")
    probe.step()
    return figure


def many_variables(probe: Probe) -> Figure:
    """Planes through the worst point, spanned by the axes on which the target varies most; then a line per axis."""
    whole = probe.window
    lines = _lines(probe)
    order = sorted(range(whole.dimension), key=lambda i: (-float(np.ptp(lines[i][1].target)), i))
    pairs = [tuple(sorted(pair)) for pair in itertools.combinations(order[:3], 2)]
    shown = order[:8]
    line_rows = math.ceil(len(shown) / 4)
    probe.expect(2 + 2 * len(pairs))
    planes_height, lines_height = 2.55 * len(pairs), 1.85 * line_rows + 0.3
    figure = _canvas(_HEADER + planes_height + lines_height)
    grid = _grid(figure, len(pairs), 4, across=0.98, down=0.5, bottom=lines_height + 0.4)
    line_grid = _grid(figure, line_rows, 4, across=0.98, down=0.5, top=_HEADER + planes_height + 0.42)
    probe.step()

    partition = probe.partition()
    planes = []
    side = probe.affordable(140, 90)
    for pair in pairs:
        axes_pair = (int(pair[0]), int(pair[1]))
        planes.append(probe.at(probe.plane(axes_pair, whole.section(axes_pair), side)[1]))
        probe.step()
    scale = _value_scale(*planes)
    error_scale = Normalize(0.0, max([abs(probe.worst_error)] + [float(np.abs(p.error).max()) for p in planes]) or 1.0)
    for row, (pair, samples) in enumerate(zip(pairs, planes, strict=True)):
        axes_pair = (int(pair[0]), int(pair[1]))
        window = whole.section(axes_pair)
        cells = _readable_cells(partition and partition.sliced(axes_pair, probe.worst), window)
        titles = ("target", "layer", "error, |layer − target|") if row == 0 else ("", "", "")
        images = (samples.target, samples.layer, np.abs(samples.error))
        maps = (style.VALUES, style.VALUES, style.ERRORS)
        for column in range(3):
            axes = figure.add_subplot(grid[row, column])
            norm = error_scale if column == 2 else scale
            _map(axes, images[column], window, maps[column], norm, titles[column])
            _outline(axes, cells)
            _mark_worst(axes, probe.worst[list(axes_pair)])
        title = "attention entropy, nats" if row == 0 else ""
        share = 1 / len(pairs)
        _entropy_map(figure.add_subplot(grid[row, 3]), probe, axes_pair, window, cells, title, share=share)
        probe.step()

    reach, band = _reach([lines[axis][1] for axis in shown], _pointwise_bound(probe))
    for k, axis in enumerate(shown):
        axes = figure.add_subplot(line_grid[k // 4, k % 4])
        style.clean(axes)
        ticks, samples = lines[axis]
        _curves(axes, probe, ticks, samples, band, axis=axis)
        axes.set_xlim(whole.low[axis], whole.high[axis])
        axes.set_ylim(*reach)
        axes.set_xlabel(whole.names[axis], labelpad=1)
        if k == 0:
            axes.set_title("along each axis through the worst point")
        elif k == min(3, len(shown) - 1):
            axes.legend(**_LEGEND, loc="lower right", bbox_to_anchor=(1.0, 1.02), ncols=4)
    return figure


# -- curves -----------------------------------------------------------------------------------------------


def _curves(axes: Axes, probe: Probe, ticks: Floats, samples: Samples, bound: float | None, *, axis: int = 0) -> None:
    """Target with its bound as a band, and the layer, along a line."""
    if bound is not None:
        words = f"target ± {probe.compiled.certificate.kind} bound"
        axes.fill_between(
            ticks, samples.target - bound, samples.target + bound, color=style.PROVED, alpha=0.16, lw=0, label=words
        )
    axes.plot(ticks, samples.target, color=style.TARGET, lw=2.4, alpha=0.75, label="target")
    axes.plot(ticks, samples.layer, color=style.LAYER, lw=1.1, label="layer")
    axes.plot(probe.worst[axis], probe.worst_layer, **_WORST, label="worst point found")


def _error_curve(axes: Axes, probe: Probe, ticks: Floats, samples: Samples, *, axis: int = 0) -> None:
    """layer - target along a line, the bound as a band, the worst point marked."""
    bound, largest = _pointwise_bound(probe), max(float(np.abs(samples.error).max()), abs(probe.worst_error))
    reach, words, height = 1.2 * largest or 1.0, "", 1.0
    if bound is not None:
        words = f"{probe.compiled.certificate.kind} bound ±{style.above(bound)}"
        if bound <= 25 * largest:
            axes.axhspan(-bound, bound, color=style.PROVED, alpha=0.13, lw=0)
            for edge in (-bound, bound):
                axes.axhline(edge, color=style.PROVED, lw=0.8)
            reach = max(reach, 1.12 * bound)
            height = bound
        else:
            words, height = words + ", far outside the picture", reach
    axes.axhline(0, color=style.QUIET, lw=0.6)
    axes.plot(ticks, samples.error, color=style.INK, lw=0.9)
    axes.plot(probe.worst[axis], probe.worst_error, **_WORST)
    axes.set_ylim(-reach, 1.32 * reach if words else reach)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    if words:
        place = (0.012, height)
        axes.annotate(
            words,
            place,
            (0, 2),
            axes.get_yaxis_transform(),
            "offset points",
            va="bottom",
            fontsize=8,
            color=_DARK_PROVED,
        )


def _entropy_curve(axes: Axes, probe: Probe, window: Window, handovers: Floats) -> None:
    axes.set_title("attention entropy, nats")
    tokens = max(1, int(probe.compiled.tokens))
    wanted, affordable = max(1600, 12 * tokens), WEIGHTS_IN_ALL // tokens - len(handovers)
    count = min(wanted, affordable)
    # Peaks stand where one token hands over to the next; with those points among them none is cut short.
    ticks = np.union1d(np.linspace(window.low[0], window.high[0], max(2, count)), handovers)
    entropy = probe.entropy(ticks[:, None]) if count >= 400 else None
    if entropy is None:
        style.note(axes, _too_many(probe))
        return
    if count == wanted:
        axes.fill_between(ticks, 0, entropy, color=style.TARGET, alpha=0.22, lw=0)
        axes.plot(ticks, entropy, color=style.TARGET, lw=0.9)
    else:
        # Twelve points per token show every peak; with fewer a line would join points of different peaks.
        axes.plot(ticks, entropy, ".", color=style.TARGET, ms=1.5, alpha=0.6, mew=0)
    axes.set_ylim(0, max(1.08 * float(entropy.max()), 0.1))
    _effective(axes)


def _weight_curves(axes: Axes, probe: Probe, window: Window) -> None:
    """alpha_j(x) of the tokens that matter in the window, one curve each."""
    axes.set_title("attention weights there")
    ticks, x = probe.line(0, float(window.low[0]), float(window.high[0]), 300)
    if len(x) * int(probe.compiled.tokens) > 40_000_000:
        style.note(axes, _too_many(probe))
        return
    weights = probe.weights(x)
    tallest = weights.max(axis=0)
    chosen = np.flatnonzero(tallest > 0.02)
    chosen = chosen[np.argsort(weights[:, chosen].argmax(axis=0), kind="stable")]
    if len(chosen) > 40:
        chosen = chosen[np.sort(np.argsort(-tallest[chosen], kind="stable")[:40])]
    for k, token in enumerate(chosen):
        colour = style.CURVES[k % 4]
        axes.fill_between(ticks, 0, weights[:, token], color=colour, alpha=0.12, lw=0)
        axes.plot(ticks, weights[:, token], color=colour, lw=1.2)
    axes.axvline(probe.worst[0], color=style.WORST, lw=0.8, ls=(0, (2, 2)))
    axes.set_ylim(0, 1.05)


def _handovers(cells: Floats) -> Floats:
    """Where one token hands over to the next: inner ends of the cells."""
    return np.sort(cells[:, 0])[1:] if len(cells) else np.empty(0)


def _mark_handovers(axes: Axes, handovers: Floats, window: Window, rug: bool) -> None:
    inside = handovers[(handovers > window.low[0]) & (handovers < window.high[0])]
    if len(inside) <= 60:
        for place in inside:
            axes.axvline(place, color="#b9bfca", lw=0.6, ls=(0, (1, 2)), zorder=0.5)
    if rug and 0 < len(inside) <= 1200:
        ends = [[(place, 0.0), (place, 0.025)] for place in inside]
        axes.add_collection(
            LineCollection(ends, colors=style.QUIET, linewidths=0.6, transform=axes.get_xaxis_transform()),
            autolim=False,
        )


# -- maps -------------------------------------------------------------------------------------------------


def _map(axes: Axes, image: Floats, window: Window, colours: str, norm: Normalize, title: str) -> Any:
    extent = (window.low[0], window.high[0], window.low[1], window.high[1])
    shown = axes.imshow(image, origin="lower", extent=extent, aspect="auto", cmap=colours, norm=norm)
    axes.set_title(title)
    _plane_axes(axes, window)
    _colour_bar(axes, shown)
    return shown


def _plane_axes(axes: Axes, window: Window) -> None:
    axes.set_xlim(window.low[0], window.high[0])
    axes.set_ylim(window.low[1], window.high[1])
    axes.set_xlabel(window.names[0], labelpad=1)
    axes.set_ylabel(window.names[1], labelpad=1)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_locator(MaxNLocator(5))


def _colour_bar(axes: Axes, shown: Any) -> None:
    figure = axes.get_figure()
    assert figure is not None
    bar = figure.colorbar(shown, cax=axes.inset_axes((1.025, 0.0, 0.035, 1.0)), ticks=MaxNLocator(5))
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2, labelsize=7.5)


def _partition_map(axes: Axes, probe: Probe, cells: list[Floats] | None, window: Window, norm: Normalize) -> None:
    """The cells, each in the colour of the layer's value at its centre of gravity."""
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


def _entropy_map(
    axes: Axes,
    probe: Probe,
    pair: tuple[int, int],
    window: Window,
    cells: list[Floats] | None,
    title: str,
    share: float = 1.0,
) -> None:
    side = probe.entropy_side(200, 24, share)
    if side == 0:
        axes.set_title(title)
        style.note(axes, _too_many(probe))
        return
    entropy = probe.entropy(probe.plane(pair, window, side)[1], share)
    assert entropy is not None
    _map(axes, entropy, window, style.ENTROPY, Normalize(0.0, max(float(entropy.max()), 0.1)), title)
    _outline(axes, cells, 0.28)
    _mark_worst(axes, probe.worst[list(pair)])


def _outline(axes: Axes, cells: list[Floats] | None, strength: float = 0.5) -> None:
    """Faces of the cells as thin lines."""
    if not cells or len(cells) < 2:
        return
    width = float(np.clip(12.0 / math.sqrt(len(cells)), 0.3, 0.8))
    axes.add_collection(
        PolyCollection(cells, facecolors="none", edgecolors=(1, 1, 1, strength), linewidths=width), autolim=False
    )


def _frame(axes: Axes, window: Window) -> None:
    """Where the close view looks."""
    size = window.high - window.low
    for colour, width in (("white", 2.2), (style.WORST, 1.0)):
        axes.add_patch(
            Rectangle((float(window.low[0]), float(window.low[1])), *size, fill=False, ec=colour, lw=width, zorder=4)
        )


_DARK_PROVED = "#00664b"
_LEGEND: dict[str, Any] = {"handlelength": 1.4, "columnspacing": 1.2, "borderpad": 0.1, "borderaxespad": 0.0}
_WORST: dict[str, Any] = {
    "marker": "o",
    "ms": 6.5,
    "mfc": "none",
    "mec": style.WORST,
    "mew": 1.6,
    "ls": "none",
    "zorder": 5,
    "clip_on": False,
}


def _mark_worst(axes: Axes, point: Floats) -> None:
    axes.plot(point[0], point[1], **{**_WORST, "mec": "white", "mew": 3.0})
    axes.plot(point[0], point[1], **_WORST)


# -- what to draw -----------------------------------------------------------------------------------------


def _canvas(height: float) -> Figure:
    figure = Figure(figsize=(style.WIDTH_INCHES, height), dpi=style.DOTS_PER_INCH)
    FigureCanvasAgg(figure)
    return figure


def _grid(
    figure: Figure,
    rows: int,
    columns: int,
    *,
    across: float,
    down: float,
    right: float = 0.6,
    top: float | None = None,
    bottom: float = 0.46,
    **ratios: Sequence[float],
) -> GridSpec:
    """Panels with all gaps in inches: between columns, between rows, and to the edges of the figure."""
    width, height = figure.get_size_inches()
    left, top = 0.58, _HEADER + 0.2 if top is None else top
    panel_width = (width - left - right - (columns - 1) * across) / columns
    panel_height = (height - top - bottom - (rows - 1) * down) / rows
    return figure.add_gridspec(
        rows,
        columns,
        left=left / width,
        right=1 - right / width,
        top=1 - top / height,
        bottom=bottom / height,
        wspace=across / panel_width,
        hspace=down / panel_height,
        **ratios,
    )


def _pointwise_bound(probe: Probe) -> float | None:
    """The bound where it speaks of every point: in the sup norm only."""
    certificate = probe.compiled.certificate
    if certificate.bound is None or certificate.kind == "none" or not math.isinf(float(probe.compiled.norm)):
        return None
    return float(certificate.bound)


def _readable_cells(partition: MaxAffine | None, window: Window) -> list[Floats] | None:
    """Polygons of the nonempty cells in the window, or None when there are too many to see."""
    if partition is None or len(partition) > MOST_CELLS:
        return None
    # A coarse look first: when many different pieces win on a lattice there is no need to cut them all.
    ticks = np.stack(np.meshgrid(window.ticks(0, 40), window.ticks(1, 40)), axis=-1).reshape(-1, 2)
    if len(partition) > 4 * _READABLE and len(np.unique(partition.argmax(ticks))) > _READABLE:
        return None
    cells = [cell for cell in partition.polygons(window) if len(cell)]
    return cells if len(cells) <= _READABLE else None


def _intervals(partition: MaxAffine | None, window: Window) -> Floats:
    if partition is None:
        return np.empty((0, 2))
    cells = partition.intervals(window)
    return cells[~np.isnan(cells[:, 0])]


def _lines(probe: Probe) -> list[tuple[Floats, Samples]]:
    """A line along every axis through the worst point."""
    window, lines = probe.window, []
    for axis in range(window.dimension):
        ticks, x = probe.line(axis, float(window.low[axis]), float(window.high[axis]), 400)
        lines.append((ticks, probe.at(x)))
    return lines


def _value_scale(*samples: Samples) -> Normalize:
    """One colour scale for target and layer, so that equal colours are equal values."""
    low = min(min(float(s.target.min()), float(s.layer.min())) for s in samples)
    high = max(max(float(s.target.max()), float(s.layer.max())) for s in samples)
    return Normalize(low, high if high > low else low + 1.0)


def _peaks(image: Floats) -> Floats:
    """The largest of every 3 x 3 block and of the blocks around it: peaks narrower than a pixel stay visible."""
    size = len(image) // 3
    blocks = image[: 3 * size, : 3 * size].reshape(size, 3, size, 3).max(axis=(1, 3))
    padded = np.pad(blocks, 1, mode="edge")
    near = [padded[i : i + size, j : j + size] for i in range(3) for j in range(3)]
    return np.asarray(np.max(near, axis=0))


def _reach(lines: list[Samples], bound: float | None) -> tuple[tuple[float, float], float | None]:
    """One vertical range for several curves, and the bound if a band of that width is not out of proportion."""
    low = min(min(float(s.target.min()), float(s.layer.min())) for s in lines)
    high = max(max(float(s.target.max()), float(s.layer.max())) for s in lines)
    room = 0.06 * (high - low) or 0.5
    if bound is not None and bound < 2 * (high - low):
        room = max(room, 1.06 * bound)
    else:
        bound = None
    return (low - room, high + room), bound


def _effective(axes: Axes) -> None:
    """A second scale: e^H, how many tokens share the answer."""
    second = axes.secondary_yaxis("right", functions=(np.exp, lambda n: np.log(np.maximum(n, 1e-12))))
    second.set_ylabel("tokens sharing, e^H", fontsize=8, color=style.QUIET)
    second.yaxis.set_major_locator(MaxNLocator(4))
    second.spines["right"].set_visible(False)


def _too_many(probe: Probe) -> str:
    return (
        f"Not drawn: {int(probe.compiled.tokens):,} tokens\nmean more attention weights\nthan a figure should wait for."
    )
