"""A compiled layer in a notebook: its numbers, how the proof adds up beside the error asked for, and a small picture."""

from __future__ import annotations

import base64
import html
from typing import TYPE_CHECKING

from maxaffine.core.budget import count_text, size
from maxaffine.core.errors import MaxaffineError
from maxaffine.report import style
from maxaffine.report.advice import meaning
from maxaffine.report.scope import in_words
from maxaffine.report.text import observed_text, summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from maxaffine.compiled import Compiled
    from maxaffine.report.sampling import Probe

PARTS = {"approximation": style.BLUE, "leakage": style.ORANGE, "rounding": style.GREEN, "target_rounding": style.PURPLE}
WIDTH, HEIGHT = 420, 16  # of the bar, pixels


def as_html(compiled: Compiled) -> str:
    """What a notebook shows of a layer that ends a cell."""
    rows = "".join(
        f'<tr><th style="text-align:left;padding-right:1em">{name}</th><td style="text-align:left">{html.escape(said)}</td></tr>'
        for name, said in _rows(compiled)
    )
    details = f"<details><summary>as text</summary><pre>{html.escape(summary(compiled))}</pre></details>"
    return f"<div><table>{rows}</table>{_bar(compiled)}{_picture(compiled)}{details}</div>"


def _rows(c: Compiled) -> list[tuple[str, str]]:
    """The numbers, a line each."""
    proved = "nothing" if c.certificate.drawn is None else c.certificate.theorem
    proved = proved if c.bound is None else f"error <= {style.above(c.bound)} {c.certificate.where}, "
    if c.bound is not None:
        proved += in_words(c.certificate.scope)
    return [
        ("target", c.target.name or c.target.text or "a Python function"),
        ("layer", f"{count_text(c.tokens)} tokens, {c.method}, {c.dtype}, {size(c.weights.nbytes)}"),
        (c.certificate.kind if c.certificate.kind != "none" else "proved", proved),
        ("asked", f"{c.error:g}"),
        ("observed", f"{observed_text(c.observed, c.bound)} (not a bound)"),
    ]


def _bar(c: Compiled) -> str:
    """The parts of the bound from left to right, the error asked for as the end of the bar, what was observed as a tick."""
    if c.bound is None or not c.error > 0.0:
        return ""
    scale = WIDTH / max(c.bound, c.error)
    said, drawn, legend, at = meaning(c), [], [], 0.0
    for name, part in c.certificate.parts.items():
        colour, wide = PARTS.get(name, style.QUIET), part * scale
        title = html.escape(f"{name}: {part:.3g} ({said[name]})")
        drawn.append(f'<rect x="{at:.2f}" width="{wide:.2f}" height="{HEIGHT}" fill="{colour}"><title>{title}</title></rect>')
        if wide >= 1.0:
            legend.append(f'<span style="color:{colour}">&#9632;</span> {html.escape(name)}')
        at += wide
    tick = min(c.observed.error * scale, WIDTH)
    asked = c.error * scale
    return (
        f'<svg width="{WIDTH + 2}" height="{HEIGHT + 2}" role="img" aria-label="parts of the bound beside the error asked for">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="{style.QUIET}"/>{"".join(drawn)}'
        f'<line x1="{tick:.2f}" x2="{tick:.2f}" y1="0" y2="{HEIGHT}" stroke="{style.WORST}" stroke-width="2">'
        f"<title>observed {c.observed.error:.3g}</title></line>"
        f'<line x1="{asked:.2f}" x2="{asked:.2f}" y1="0" y2="{HEIGHT}" stroke="{style.QUIET}">'
        f"<title>asked {c.error:g}</title></line></svg>"
        f'<div style="font-size:smaller">{" &nbsp; ".join(legend)} &nbsp; <span style="color:{style.WORST}">|</span> observed; '
        f"the frame ends at {max(c.bound, c.error):.3g}</div>"
    )


def _picture(c: Compiled) -> str:
    """Layer and error, small; nothing where the target is not at hand."""
    from maxaffine.report.sampling import Probe

    try:
        with style.look():
            drawn = style.render(small_figure(Probe(c)), ".png", dots=100)
    except (MaxaffineError, ValueError):
        return ""
    return f'<img alt="the layer and its error" src="data:image/png;base64,{base64.b64encode(drawn).decode()}"/>'


def small_figure(probe: Probe) -> Figure:
    """Two panels: values and error, as curves in one variable, maps in two, lines through the worst point in more."""
    import numpy as np
    from matplotlib.colors import Normalize

    from maxaffine.report import curves, maps

    figure, ((left, right),) = style.new_figure((6.4, 2.3), 1, 2)
    window, home = probe.window, probe.home()
    there, near = (window, "") if home is None else (home, "error near the worst point")
    if window.dimension == 2:
        side = probe.affordable(80, 40)
        samples = probe.at(probe.plane((0, 1), window, side))
        error = np.abs(samples.error if home is None else probe.at(probe.plane((0, 1), home, side)).error)
        worst = Normalize(0.0, max(float(error.max()), abs(probe.worst_error)) or 1.0)
        maps.colour_map(left, samples.layer, window, style.VALUES, maps.value_scale(samples), "layer")
        maps.colour_map(right, error, there, style.ERRORS, worst, near or probe.titled)
        maps.mark_worst(right, probe.worst)
        for axes in (left, right):
            axes.grid(False)
        return figure
    lines = [probe.line(axis, window, 300) for axis in range(min(window.dimension, 8))]
    spreads = [float(np.ptp(probe.at(x).target)) for _, x in lines]
    axis = int(np.argmax(spreads))
    ticks, x = lines[axis]
    samples = probe.at(x)
    curves.value_curves(left, probe, ticks, samples, None, window, axis=axis)
    ticks, x = probe.line(axis, there, 300)
    curves.error_curve(right, probe, ticks, probe.at(x), there, axis=axis)
    left.set_title("target and layer")
    right.set_title("error at entries" if probe.at_entries else near or "layer − target")
    for axes, seen in ((left, window), (right, there)):
        style.coordinate(axes.xaxis, window.names[axis], seen.low[axis], seen.high[axis])
    return figure
