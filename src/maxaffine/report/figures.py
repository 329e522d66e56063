"""The figure of a compile: what was asked, what the layer says, where it errs, which token answers where.

    one variable     curves, error with its bound, attention entropy; the same close to the worst point
    two variables    target, layer and error as maps with the cells over them, entropy, sections
    more             planes and lines through the worst point found

A plan has a figure too: tokens against error, one curve per method and argument.
The words are kept apart: a bound is *proved* (or statistical), an error is *observed*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maxaffine.core.budget import count_text
from maxaffine.core.progress import Progress
from maxaffine.report import style
from maxaffine.report.sampling import Probe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from maxaffine.compiled import Compiled

LONGEST = 92  # characters of a headline in full size
MARKS = ("o", "s", "^", "D", "v", "P")


def draw(compiled: Compiled, path: str | Path, *, progress: Progress | None = None) -> Path:
    """Draw a compiled layer into a file, PNG, SVG or PDF by the path's suffix, and return the path.

    The file is replaced whole or not at all, and the same layer gives the same bytes.

    Args:
        compiled: what `compile` or `load` returned.
        path: where to write; .png, .svg or .pdf.
        progress: called as progress(stage, done, total) while the layer is evaluated.
    """
    style.suffix_of(path)  # a wrong suffix is refused before anything is drawn
    with style.look():
        return style.save(figure(compiled, progress=progress), path)


def draw_axes(compiled: Compiled, path: str | Path | None = None) -> tuple[Axes, ...]:
    """Draw a compiled layer, into a file where a path is given, and return the axes."""
    if path is not None:
        style.suffix_of(path)
    drawn = figure(compiled)
    if path is not None:
        with style.look():
            style.save(drawn, path)
    return tuple(drawn.axes)


def figure(compiled: Compiled, *, progress: Progress | None = None) -> Figure:
    """The figure itself, a matplotlib Figure that no window and no pyplot state knows of."""
    from maxaffine.report import layouts

    with style.look():
        probe = Probe(compiled, progress)
        layout = {1: layouts.one_variable, 2: layouts.two_variables}.get(probe.window.dimension, layouts.many_variables)
        drawn = layout(probe)
        inch = 1 / drawn.get_figheight()
        head = headline(compiled)
        drawn.text(0.012, 1 - 0.12 * inch, head, va="top", fontsize=min(13.0, 13.0 * LONGEST / len(head)), fontweight="bold")
        drawn.text(0.012, 1 - 0.44 * inch, subline(probe), va="top", fontsize=8.5, color=style.QUIET, linespacing=1.5)
        probe.step()
    return drawn


def headline(compiled: Compiled) -> str:
    """Method, tokens, what is proved ('proved bound 0.0988', 'statistical bound ..' or 'nothing proved'), what was observed."""
    tokens, certificate, observed = compiled.tokens, compiled.certificate, compiled.observed
    norm, said = _in_norm(compiled.norm), "nothing proved"
    norm += "relative " if compiled.certificate.pointwise else ""
    if certificate.bound is not None and certificate.kind != "none":
        said = f"{certificate.kind} {norm}bound {style.above(certificate.bound)}"
        said = said if certificate.norm_label != "entries" else f"{said} {certificate.where}"
    if certificate.drawn is not None:
        said = f"statistical: {certificate.drawn.words}"
    parts = [compiled.method, f"{count_text(tokens)} token{'s' if tokens != 1 else ''}", said]
    if math.isfinite(observed.error):
        noise = f" ± {style.number(observed.standard_error)}" if observed.standard_error else ""
        parts.append(f"observed {norm}error {style.number(observed.error)}{noise}")
    return "  ·  ".join(parts)


def subline(probe: Probe) -> str:
    """The target and its domain; the norm, what was asked, the output drawn; the worst point.  Three lines at most."""
    compiled, window = probe.compiled, probe.window
    words = compiled.target.text or compiled.target.name or "<function>"
    if words.startswith("<"):  # Python's name for a function without one
        words = "a Python function"
    edges = [
        f"{n} ∈ [{style.number(lo, 5)}, {style.number(hi, 5)}]"
        for n, lo, hi in zip(window.names, window.low, window.high, strict=True)
    ]
    domain = ", ".join(edges) if len(edges) <= 4 else ", ".join([*edges[:2], "…", edges[-1]])
    first = f"f({style.shortened(', '.join(window.names), 40)}) = {style.shortened(words, 80)}    on  {domain}"
    entries = compiled.certificate.scope.over == "entries"
    norm = "errors at entries" if entries else f"{_in_norm(compiled.norm) or 'sup '}norm"
    norm += ", relative to |f(x)|" if compiled.certificate.pointwise else ""
    facts = [norm, f"asked {style.number(compiled.error)}", compiled.dtype]
    if compiled.sharpness is not None:
        facts.append(f"sharpness {style.number(compiled.sharpness)}")
    if probe.outputs != (1, 1):
        facts.append(f"{output_name(probe)} drawn, which has the worst error found")
    place = ", ".join(f"{n} = {style.number(float(v), 5)}" for n, v in zip(window.names[:8], probe.worst, strict=False))
    second, third = "  ·  ".join(facts), f"worst point found: {place}{', …' if window.dimension > 8 else ''}"
    joint = "  ·  " if len(second) + len(third) < 130 else "\n"
    return f"{first}\n{second}{joint}{third}"


def _in_norm(norm: float) -> str:
    """'' in the sup norm, where every point is meant; 'L1 ' and so on where it is an integral."""
    return "" if math.isinf(norm) else f"L{style.number(norm)} "


def output_name(probe: Probe) -> str:
    """Which entry of several outputs is drawn, counted from 1."""
    row, column = probe.output
    rows, columns = probe.outputs
    if columns == 1:
        return f"output {row + 1} of {rows}"
    return f"output row {row + 1}, token {column + 1} of {rows} × {columns}"


def draw_frontier(rows: Sequence[dict[str, Any]], target: str, path: str | Path) -> Path:
    """Draw rows of `maxaffine.frontier.frontier`; .png, .svg or .pdf by suffix."""
    curves: dict[str, list[tuple[float, int, bool]]] = {}
    for row in rows:
        name = row["method"] if row["method"] == row["argument"] else f"{row['method']} ({row['argument']})"
        curves.setdefault(name, []).append((row["error"], row["tokens"], row["affordable"]))
    with style.sheet(path, (8.0, 5.0)) as (_, grid):
        axes = grid[0][0]
        for index, (name, points) in enumerate(sorted(curves.items(), key=lambda item: min(p[1] for p in item[1]))):
            points.sort()
            colour, mark = style.CURVES[index % len(style.CURVES)], MARKS[index % len(MARKS)]
            axes.plot([p[0] for p in points], [float(p[1]) for p in points], color=colour, lw=1.6, zorder=2)
            for fits, face in ((True, colour), (False, "white")):
                chosen = [p for p in points if p[2] is fits]
                label = name if chosen and (fits or not any(p[2] for p in points)) else None
                look = {"ls": "none", "marker": mark, "ms": 6, "mfc": face, "mec": colour, "label": label, "zorder": 3}
                axes.plot([p[0] for p in chosen], [float(p[1]) for p in chosen], **look)
        style.logarithmic(axes)
        axes.invert_xaxis()
        axes.set(xlabel="error asked for", ylabel="tokens", title=style.shortened(f"tokens against error: {target}", 90))
        words = "open marks: more than fits the memory here"
        axes.text(0.99, 0.02, words, transform=axes.transAxes, ha="right", color=style.QUIET, fontsize=8)
        axes.legend()
    return Path(path)
