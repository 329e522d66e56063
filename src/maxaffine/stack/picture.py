"""The picture of a stack: a column per layer, a box per node with its tokens, coloured by its share of the bound."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from maxaffine.core.errors import Refused
from maxaffine.report import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from maxaffine.stack.stack import Stack

Places = dict[str, tuple[float, float]]

MOST = 120  # nodes that a picture shows
HIGH = 0.42  # inches per row


def draw_axes(stack: Stack, path: str | Path | None = None) -> tuple[Axes, ...]:
    """Draw a stack, into a PNG, SVG or PDF where a path is given, and return the axes."""
    if path is not None:
        style.suffix_of(path)
    drawn = figure(stack)
    if path is not None:
        with style.look():
            style.save(drawn, path)
    return tuple(drawn.axes)


def figure(stack: Stack) -> Figure:
    """The figure itself, a matplotlib Figure that no window and no pyplot state knows of."""
    if len(stack.nodes) > MOST:
        raise Refused(f"a picture shows at most {MOST} nodes, and this stack has {len(stack.nodes)}; `explain()` lists them.")
    layers = sorted({node.layer for node in stack.nodes})  # a norm stands where its value is known
    levels = [[node for node in stack.nodes if node.layer == layer] for layer in layers]
    columns = [list(stack.box.names), *[[node.name for node in level] for level in levels], ["output"]]
    rows = max(len(column) for column in columns)
    places: Places = {
        name: (float(x), -(i + 0.5) * rows / len(column)) for x, column in enumerate(columns) for i, name in enumerate(column)
    }
    with style.look():
        drawn, ((axes,),) = style.new_figure((2.0 + 2.1 * len(columns), 1.4 + HIGH * max(rows, 4)))
        _lines(axes, stack, places)
        _boxes(axes, stack, places)
        axes.set_xlim(-0.6, len(columns) - 0.4)
        axes.set_ylim(-rows - 0.2, 1.0)
        axes.axis("off")
        for x, (before, layer, level) in enumerate(zip([0, *layers], layers, levels, strict=False), 1):
            which = f"layer {layer}" if layer == before + 1 else f"to layer {layer}"
            tokens = sum(node.tokens for node in level)
            axes.text(x, 0.55, f"{which}: {tokens} tokens", ha="center", fontsize=9, fontweight="bold")
        what = style.shortened(stack.target.name or stack.target.text or "a formula", 90)
        proved = f"{stack.tokens} tokens in {stack.layers} layers, proved to {stack.certificate.bound:.2g}"
        style.headline(drawn, f"{what}: {proved}; darker boxes take more of the bound")
    return drawn


def _lines(axes: Any, stack: Stack, places: Places) -> None:
    """From what a node reads to the node."""
    names = [*stack.box.names, *(node.name for node in stack.nodes)]
    reads = {node.name: {i for row in node.maps for i in row.indices} for node in stack.plan.nodes}
    reads["output"] = set(stack.plan.result.indices)
    for name, sources in reads.items():
        x, y = places[name]
        for i in sources:
            a, b = places[names[i]]
            axes.plot([a, x], [b, y], color="0.8", linewidth=0.7, zorder=1)


def _boxes(axes: Any, stack: Stack, places: Places) -> None:
    """Inputs, nodes and output."""
    from matplotlib import colormaps

    shades = colormaps["Blues"]
    told = {node.name: node for node in stack.nodes}
    for name, (x, y) in places.items():
        node = told.get(name)
        label, shade = name, 0.0
        if node is not None:
            label, shade = f"{style.shortened(node.function, 22)}  [{node.tokens}]", 0.75 * min(1.0, node.share) ** 0.5
        face = "white" if node is None else shades(shade)
        ink = "white" if shade > 0.55 else "black"
        box = {"boxstyle": "round,pad=0.3", "facecolor": face, "edgecolor": "0.5", "linewidth": 0.7}
        axes.text(x, y, label, ha="center", va="center", fontsize=7.5, color=ink, bbox=box, zorder=2)
