"""The figure of a sweep over temperatures: error, entropy and cells against r, and the largest weight over the box."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maxaffine.core.errors import MaxaffineError
from maxaffine.report import style
from maxaffine.report.weights import largest

if TYPE_CHECKING:
    from maxaffine.compiled import Compiled
    from maxaffine.temperatures import Temperature

SHOWN = 4  # temperatures whose weights are drawn
SIDE = 160  # points along a side of such a map
LINE = 800  # points of a curve
CELLS = 16.0  # of them, where one variable has more: those about the worst point


def draw(layer: Compiled, rows: Sequence[Temperature], path: str | Path) -> None:
    """Draw a sweep into a file, PNG, SVG or PDF by the path's suffix."""
    with style.sheet(path, (11.0, 6.6), 2, 12) as (figure, grid):
        for cell in grid.ravel():
            cell.remove()
        space = grid[0][0].get_gridspec()
        panels = [figure.add_subplot(space[0, 4 * k : 4 * k + 4]) for k in range(3)]
        for panel in panels:
            style.clean(panel)
        _error(panels[0], layer, rows)
        _entropy(panels[1], rows)
        _decided(panels[2], rows)
        maps = [figure.add_subplot(space[1, 3 * k : 3 * k + 3]) for k in range(SHOWN)]
        _maps(figure, maps, layer, rows)
        what = style.shortened(layer.target.name or layer.target.text or "callable", 60)
        style.headline(figure, f"{what}: one layer of {layer.tokens:,} tokens ({layer.method}), every logit times r")


def _error(panel: Any, layer: Compiled, rows: Sequence[Temperature]) -> None:
    r = [one.r for one in rows]
    proved = [np.nan if one.bound is None else one.bound for one in rows]
    panel.plot(r, proved, color=style.PROVED, lw=2.4, marker="o", ms=5, mfc="none", label="proved")
    panel.plot(r, [one.observed for one in rows], color=style.LAYER, lw=1.2, marker=".", ms=4, label="observed")  # on top
    panel.axhline(layer.error, color=style.QUIET, lw=0.8, ls=":", label="asked for at r = 1")
    style.logarithmic(panel)
    none = [one.r for one in rows if one.bound is None]
    if none:
        low = {"transform": panel.get_xaxis_transform(), "label": "nothing proved"}
        panel.plot(none, [0.02] * len(none), "x", color=style.QUIET, ms=4, **low)
    _finish(panel, "error", "error")
    panel.legend(loc="best", fontsize=7.5, framealpha=0.9)


def _entropy(panel: Any, rows: Sequence[Temperature]) -> None:
    known = [(one.r, *one.entropy) for one in rows if one.entropy is not None]
    if not known:
        style.note(panel, "No attention weights:\ntoo many tokens.")
        return
    r, mean, low, high = (list(column) for column in zip(*known, strict=True))
    panel.fill_between(r, low, high, color=style.SKY, alpha=0.3, lw=0, label="nine tenths of the box")
    panel.plot(r, mean, color=style.BLUE, lw=1.6, label="mean")
    panel.set_ylim(bottom=0)
    style.logarithmic(panel, y=False)
    _finish(panel, "attention entropy", "nats")
    panel.legend(loc="best", fontsize=7.5)


def _decided(panel: Any, rows: Sequence[Temperature]) -> None:
    known = [(one.r, one.decided) for one in rows if one.decided is not None]
    if not known:
        style.note(panel, "No attention weights:\ntoo many tokens.")
        return
    panel.plot(*zip(*known, strict=True), color=style.PURPLE, lw=1.6)
    panel.set_ylim(-0.03, 1.03)
    style.logarithmic(panel, y=False)
    _finish(panel, "cells: 0.9 of the weight on one token", "share of the box")


def _finish(panel: Any, title: str, unit: str) -> None:
    panel.axvline(1.0, color=style.QUIET, lw=0.8)
    panel.set(xlabel="r", ylabel=unit)
    panel.set_title(title, fontsize=9.5)


def _maps(figure: Any, panels: list[Any], layer: Compiled, rows: Sequence[Temperature]) -> None:
    """The largest weight at four temperatures: a map over the first two variables through the worst point, or a curve."""
    places = np.unique(np.linspace(0, len(rows) - 1, SHOWN).round().astype(int))
    low, high, names = layer.box.low, layer.box.high, layer.box.names
    at = np.array(layer.observed.at, dtype=np.float64)
    at = np.clip(at if at.shape == low.shape else (low + high) / 2.0, low, high)
    one_variable, shown = len(low) == 1, None
    if one_variable:
        half = (high - low) / 2.0 * min(1.0, CELLS / layer.tokens)
        middle = np.clip(at, low + half, high - half)
        x = np.linspace(middle[0] - half[0], middle[0] + half[0], LINE)[:, None]
    else:
        sides = [np.linspace(low[i], high[i], SIDE) for i in (0, 1)]
        x = np.tile(at, (SIDE * SIDE, 1))
        x[:, 0], x[:, 1] = (part.ravel() for part in np.meshgrid(*sides))
    for k, panel in enumerate(panels):
        if k >= len(places):
            panel.set_axis_off()
            continue
        row = rows[places[k]]
        try:
            weight, tokens = largest(layer.with_sharpness(row.r), x)
        except MaxaffineError:
            style.note(panel, "Not drawn:\ntoo many tokens.")
            continue
        if one_variable:
            style.clean(panel)
            panel.plot(x[:, 0], weight, color=style.PURPLE, lw=1.2)
            panel.set(xlabel=names[0], ylim=(-0.03, 1.03))
        else:
            extent = (low[0], high[0], low[1], high[1])
            picture = weight.reshape(SIDE, SIDE)
            shown = panel.imshow(picture, origin="lower", extent=extent, aspect="auto", vmin=0, vmax=1, cmap="viridis")
            panel.imshow(_faces(tokens), origin="lower", extent=extent, aspect="auto", interpolation="nearest")
            panel.set(xlabel=names[0], ylabel=names[1] if k == 0 else "")
        panel.set_title(f"largest weight, r = {row.r:.3g}", fontsize=9)
    if shown is not None:
        figure.colorbar(shown, ax=panels, shrink=0.85, pad=0.01, label="largest weight")


def _faces(tokens: Any) -> Any:
    """A picture (side, side, 4) that is dark where the token of the largest weight changes, and clear elsewhere."""
    cells = tokens.reshape(SIDE, SIDE, -1)
    changed = np.zeros((SIDE, SIDE), dtype=bool)
    changed[:-1] |= np.any(cells[1:] != cells[:-1], axis=2)
    changed[:, :-1] |= np.any(cells[:, 1:] != cells[:, :-1], axis=2)
    picture = np.zeros((SIDE, SIDE, 4))
    picture[changed, 3] = 0.45
    return picture
