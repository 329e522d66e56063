"""The three arrangements of a figure: one variable, two, and more."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from maxaffine.core.arrays import Array
from maxaffine.layer.maxaffine import MaxAffine
from maxaffine.report import curves, maps, style
from maxaffine.report.sampling import LOCAL, Probe, Samples, Window

# Where the cells are too many to see, a window with about this many is drawn beside the whole.
_CLOSE = 110
# Inches at the top for the title lines.
_HEADER = 1.1


def one_variable(probe: Probe) -> Figure:
    """Left the whole interval, right a few cells about the worst point; rows: values, error, attention."""
    probe.expect(5)
    figure = _canvas(7.6)
    grid = _grid(figure, 3, 2, across=1.0, down=0.42, right=0.2, width_ratios=[2.1, 1], height_ratios=[1.35, 1, 1])
    partition = probe.partition()
    cells = _intervals(partition, probe.window)
    close = probe.window.around(probe.worst, min(0.4, 6.0 / max(2, len(cells)), 1.5 * probe.spread_of_error()))
    count = int(np.clip(10 * len(cells), 1600, 12_000))
    for column, (window, points) in enumerate([(probe.window, count), (close, 900)]):
        inside = _intervals(partition, window) if column else cells
        handovers = np.sort(inside[:, 0])[1:]  # where one token hands over to the next: inner ends of the cells
        shared: Axes | None = None
        ticks, x = probe.line(0, window, points)
        samples = probe.at(x)
        probe.step()
        panels = []
        for row in range(3):
            panels.append(figure.add_subplot(grid[row, column], sharex=shared))
            shared = shared or panels[0]
            curves.mark_handovers(panels[row], handovers, window, rug=row == 0)
            panels[row].set_xlim(window.low[0], window.high[0])
            style.clean(panels[row])
        curves.value_curves(panels[0], probe, ticks, samples, probe.pointwise_bound, window)
        if column == 0:
            panels[0].legend(**style.LEGEND, loc="lower right", bbox_to_anchor=(1.0, 1.02), ncols=4)
        curves.error_curve(panels[1], probe, ticks, samples, window)
        if column == 0:
            panels[0].set_title("target and layer")
            panels[1].set_title("error at entries, layer − target" if probe.at_entries else "error, layer − target")
            curves.entropy_curve(panels[2], probe, window, handovers)
        else:
            panels[0].set_title("near the worst point")
            panels[1].set_title("error there")
            curves.weight_curves(panels[2], probe, window)
        for panel in panels[:2]:
            panel.tick_params(labelbottom=False, bottom=False)
        style.coordinate(panels[2].xaxis, window.names[0], window.low[0], window.high[0])
        probe.step()
    return figure


def two_variables(probe: Probe) -> Figure:
    """Target, layer and error; the cells, the entropy, and sections through the worst point."""
    probe.expect(6)
    figure = _canvas(7.9)
    grid = _grid(figure, 2, 3, across=1.05, down=0.7)
    partition, whole = probe.partition(), probe.window
    cells = maps.readable_cells(partition, whole)
    many = partition is not None and cells is None
    close = whole.around(probe.worst, math.sqrt(_CLOSE / len(partition))) if partition is not None and many else whole
    spread = 1.0 if many else probe.spread_of_error()
    if spread < LOCAL:
        close = whole.around(probe.worst, 2.0 * spread)
    near = many or spread < LOCAL
    close_cells = maps.readable_cells(partition, close) if near else cells

    side = probe.affordable(300 if many else 240, 80)
    samples = probe.at(probe.plane((0, 1), whole, side, jitter=many))
    error = maps.peaks(np.abs(samples.error)) if many else np.abs(samples.error)
    scale = maps.value_scale(samples)
    error_scale = Normalize(0.0, max(float(error.max()), abs(probe.worst_error)) or 1.0)
    probe.step()

    top = [figure.add_subplot(grid[0, k]) for k in range(3)]
    maps.colour_map(top[0], samples.target, whole, style.VALUES, scale, probe.target_titled)
    maps.colour_map(top[1], samples.layer, whole, style.VALUES, scale, "layer")
    title = f"{probe.titled}, largest nearby" if many else probe.titled
    maps.colour_map(top[2], error, whole, style.ERRORS, error_scale, title)
    for axes in top:
        maps.outline_cells(axes, cells)
        if near:
            maps.mark_window(axes, close)
    maps.mark_worst(top[2], probe.worst)
    probe.step()

    if near:
        x = probe.plane((0, 1), close, probe.affordable(200, 80))
        axes = figure.add_subplot(grid[1, 0])
        maps.colour_map(axes, np.abs(probe.at(x).error), close, style.ERRORS, error_scale, "error near the worst point")
        maps.outline_cells(axes, close_cells)
        maps.mark_worst(axes, probe.worst)
    else:
        maps.partition_map(figure.add_subplot(grid[1, 0]), probe, cells, whole, scale)
    probe.step()
    where = "attention entropy there, nats" if near else "attention entropy, nats"
    maps.entropy_map(figure.add_subplot(grid[1, 1]), probe, (0, 1), close, close_cells, where)
    probe.step()

    below = grid[1, 2].subgridspec(2, 1, hspace=0.36)
    for axis in range(2):
        axes = figure.add_subplot(below[axis])
        ticks, line = probe.line(axis, close, 1200)
        style.clean(axes)
        curves.error_curve(axes, probe, ticks, probe.at(line), close, axis=axis)
        axes.set_xlim(close.low[axis], close.high[axis])
        style.coordinate(axes.xaxis, whole.names[axis], close.low[axis], close.high[axis])
        if axis == 0:
            axes.set_title("error on lines through the worst point")
    probe.step()
    return figure


def many_variables(probe: Probe) -> Figure:
    """Planes through the worst point, spanned by the axes on which the target varies most; then a line per axis."""
    whole = probe.window
    lines = []  # along every axis through the worst point
    for axis in range(whole.dimension):
        ticks, x = probe.line(axis, whole, 400)
        lines.append((ticks, probe.at(x)))
    order = sorted(range(whole.dimension), key=lambda i: (-float(np.ptp(lines[i][1].target)), i))
    pairs = [(min(pair), max(pair)) for pair in itertools.combinations(order[:3], 2)]
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
    side = probe.affordable(140, 60)
    for pair in pairs:
        planes.append(probe.at(probe.plane(pair, whole.section(pair), side)))
        probe.step()
    scale = maps.value_scale(*planes)
    error_scale = Normalize(0.0, max([abs(probe.worst_error)] + [float(np.abs(p.error).max()) for p in planes]) or 1.0)
    for row, (pair, samples) in enumerate(zip(pairs, planes, strict=True)):
        window = whole.section(pair)
        cells = maps.readable_cells(partition and partition.sliced(pair, probe.worst), window)
        titles = (probe.target_titled, "layer", probe.titled) if row == 0 else ("", "", "")
        images = (samples.target, samples.layer, np.abs(samples.error))
        for column, (image, title) in enumerate(zip(images, titles, strict=True)):
            axes = figure.add_subplot(grid[row, column])
            colours, norm = (style.VALUES, scale) if column < 2 else (style.ERRORS, error_scale)
            maps.colour_map(axes, image, window, colours, norm, title)
            maps.outline_cells(axes, cells)
            maps.mark_worst(axes, probe.worst[list(pair)])
        title = "attention entropy, nats" if row == 0 else ""
        maps.entropy_map(figure.add_subplot(grid[row, 3]), probe, pair, window, cells, title, share=1 / len(pairs))
        probe.step()

    reach, band = _reach([lines[axis][1] for axis in shown], probe.pointwise_bound)
    apart = max(float(np.abs(lines[axis][1].error).max()) for axis in shown) > 0.01 * (reach[1] - reach[0])
    for k, axis in enumerate(shown):
        axes = figure.add_subplot(line_grid[k // 4, k % 4])
        style.clean(axes)
        ticks, samples = lines[axis]
        if apart:
            curves.value_curves(axes, probe, ticks, samples, band, whole, axis=axis)
            axes.set_ylim(*reach)
        else:  # curves that lie on each other say nothing
            curves.error_curve(axes, probe, ticks, samples, whole, axis=axis)
        axes.set_xlim(whole.low[axis], whole.high[axis])
        axes.set_xlabel(whole.names[axis], labelpad=1)
        if k == 0:
            axes.set_title(f"{'' if apart else 'error '}along each axis through the worst point")
        elif apart and k == min(3, len(shown) - 1):
            axes.legend(**style.LEGEND, loc="lower right", bbox_to_anchor=(1.0, 1.02), ncols=4)
    return figure


def _canvas(height: float) -> Figure:
    figure = Figure(figsize=(style.WIDTH_INCHES, height), dpi=style.DOTS_PER_INCH)
    FigureCanvasAgg(figure)
    return figure


def _grid(
    figure: Figure, rows: int, columns: int, *, across: float, down: float, right: float = 0.6, top: float = _HEADER + 0.2,
    bottom: float = 0.46, **ratios: Sequence[float],
) -> GridSpec:  # fmt: skip
    """Panels with all gaps in inches: between columns, between rows, and to the edges of the figure."""
    width, height = figure.get_size_inches()
    left = 0.58
    panel_width = (width - left - right - (columns - 1) * across) / columns
    panel_height = (height - top - bottom - (rows - 1) * down) / rows
    edges = {"left": left / width, "right": 1 - right / width, "top": 1 - top / height, "bottom": bottom / height}
    return figure.add_gridspec(rows, columns, **edges, wspace=across / panel_width, hspace=down / panel_height, **ratios)


def _intervals(partition: MaxAffine | None, window: Window) -> Array:
    if partition is None:
        return np.empty((0, 2))
    cells = partition.intervals(window)
    return cells[~np.isnan(cells[:, 0])]


def _reach(lines: list[Samples], bound: float | None) -> tuple[tuple[float, float], float | None]:
    """One vertical range for several curves, and the bound if a band of that width is not out of proportion."""
    low, high = maps.value_range(lines)
    room = 0.06 * (high - low) or 0.5
    if bound is not None and bound < 2 * (high - low):
        room = max(room, 1.06 * bound)
    else:
        bound = None
    return (low - room, high + room), bound
