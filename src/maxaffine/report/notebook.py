"""A compiled layer in a notebook: its numbers, how the proof adds up beside the error asked for, and a small picture."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Part:
    """A part of a bound: what it is called, how large it is, what is told where the mouse rests on it, and its colour."""

    name: str
    size: float
    told: str
    colour: str


def as_html(compiled: Compiled) -> str:
    """What a notebook shows of a layer that ends a cell."""
    return page(_rows(compiled), _bar(compiled), _picture(compiled), {"as text": summary(compiled)})


def page(rows: Sequence[tuple[str, str]], drawn: str, seen: str, texts: Mapping[str, str]) -> str:
    """A table of names and what is said of them, a bar and a picture, and texts that open at a click."""
    table = "".join(
        f'<tr><th style="text-align:left;padding-right:1em">{name}</th><td style="text-align:left">{html.escape(said)}</td></tr>'
        for name, said in rows
    )
    opened = ((name, html.escape(text)) for name, text in texts.items())
    details = "".join(f"<details><summary>{name}</summary><pre>{text}</pre></details>" for name, text in opened)
    return f"<div><table>{table}</table>{drawn}{seen}{details}</div>"


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
    """The parts of the bound of a layer."""
    if c.bound is None or not c.error > 0.0:
        return ""
    said = meaning(c)
    parts = [Part(name, size, said[name], PARTS.get(name, style.QUIET)) for name, size in c.certificate.parts.items()]
    return bar(parts, c.bound, c.error, c.observed.error)


def bar(parts: Sequence[Part], bound: float, error: float, observed: float) -> str:
    """The parts of the bound from left to right, the error asked for as the end of the bar, what was observed as a tick."""
    scale = WIDTH / max(bound, error)
    drawn, legend, at = list[str](), list[str](), 0.0
    for part in parts:
        wide, title = part.size * scale, html.escape(f"{part.name}: {part.size:.3g} ({part.told})")
        place = f'x="{at:.2f}" width="{wide:.2f}" height="{HEIGHT}" fill="{part.colour}"'
        drawn.append(f"<rect {place}><title>{title}</title></rect>")
        if wide >= 1.0:
            legend.append(f'<span style="color:{part.colour}">&#9632;</span> {html.escape(part.name)}')
        at += wide
    tick = min(observed * scale, WIDTH)
    asked = error * scale
    return (
        f'<svg width="{WIDTH + 2}" height="{HEIGHT + 2}" role="img" aria-label="parts of the bound beside the error asked for">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="{style.QUIET}"/>{"".join(drawn)}'
        f'<line x1="{tick:.2f}" x2="{tick:.2f}" y1="0" y2="{HEIGHT}" stroke="{style.WORST}" stroke-width="2">'
        f"<title>observed {observed:.3g}</title></line>"
        f'<line x1="{asked:.2f}" x2="{asked:.2f}" y1="0" y2="{HEIGHT}" stroke="{style.QUIET}">'
        f"<title>asked {error:g}</title></line></svg>"
        f'<div style="font-size:smaller">{" &nbsp; ".join(legend)} &nbsp; <span style="color:{style.WORST}">|</span> observed; '
        f"the frame ends at {max(bound, error):.3g}</div>"
    )


def _picture(c: Compiled) -> str:
    """Layer and error, small; nothing where the target is not at hand."""
    from maxaffine.report.sampling import Probe

    try:
        with style.look():
            return image(small_figure(Probe(c)), "the layer and its error")
    except (MaxaffineError, ValueError):
        return ""


def image(figure: Figure, words: str) -> str:
    """A figure inside a page."""
    drawn = base64.b64encode(style.render(figure, ".png", dots=100)).decode()
    return f'<img alt="{words}" src="data:image/png;base64,{drawn}"/>'


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
