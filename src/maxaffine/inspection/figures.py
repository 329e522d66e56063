"""Pictures of trained heads: one page for a head, one for all heads of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maxaffine.report import style
from maxaffine.report.sampling import Window
from maxaffine.report.style import CURVES, INK, LAYER, QUIET, TARGET, VALUES

if TYPE_CHECKING:
    from maxaffine.inspection.head import HeadInspection
    from maxaffine.inspection.model import ModelInspection


def draw_head(head: HeadInspection, path: str | Path, tokens: list[str] | None = None, sequence: int = 0) -> None:
    """Attention, the power diagram in the plane of largest query variance, margins, and weights of one head."""
    with style.sheet(path, (12.0, 9.2), 2, 2) as (figure, panels):
        style.headline(figure, _title(head))
        _attention(panels[0, 0], head, tokens, sequence)
        _slice(panels[0, 1], head, tokens, sequence)
        _margins(panels[1, 0], head)
        _keys(panels[1, 1], head, tokens, sequence)


def _title(head: HeadInspection) -> str:
    kind = "near-hard lookup" if head.near_hard else "soft average"
    return (
        f"{head.name}: {kind}; inverse temperature {head.inverse_temperature:.2g}, effective keys {head.effective_keys:.3g} of "
        f"{head.keys:.3g}, argmax changes the output by {100 * head.hard_error:.0f}%"
    )


def _attention(axes: Any, head: HeadInspection, tokens: list[str] | None, sequence: int) -> None:
    weights = head.sequences[sequence].weights
    image = axes.imshow(weights, cmap=VALUES, vmin=0.0, vmax=1.0, aspect="auto")
    axes.figure.colorbar(image, ax=axes, shrink=0.8, label="attention weight")
    axes.set(title="Attention", xlabel="key", ylabel="query")
    axes.grid(False)
    if tokens is not None and len(tokens) <= 40:
        axes.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=6)
        axes.set_yticks(range(len(tokens)), tokens, fontsize=6)


def _slice(axes: Any, head: HeadInspection, tokens: list[str] | None, sequence: int) -> None:
    pieces, points, _ = head.slice(sequence)
    centre, spread = points.mean(axis=0), np.abs(points - points.mean(axis=0)).max() * 1.25 + 1e-9
    box = Window(centre - spread, centre + spread, ("", ""))
    colours = (np.arange(len(pieces)) * 7) % len(CURVES)
    cells = 0
    for j, polygon in enumerate(pieces.polygons(box)):
        if len(polygon):
            cells += 1
            axes.fill(polygon[:, 0], polygon[:, 1], facecolor=CURVES[colours[j]], alpha=0.16, edgecolor="white", lw=1.2)
            if tokens is not None and j < len(tokens):
                at = np.clip(polygon.mean(axis=0), box.low + 0.08 * spread, box.high - 0.08 * spread)
                axes.annotate(tokens[j], at, ha="center", va="center", fontsize=7, color=QUIET)
    axes.plot(points[:, 0], points[:, 1], "o", ms=3.5, color=INK)
    axes.set(xlim=(box.low[0], box.high[0]), ylim=(box.low[1], box.high[1]), aspect="equal")
    axes.set(title=f"Power diagram: {cells} of {len(pieces)} cells", xlabel="main plane of the queries", ylabel="")


def _margins(axes: Any, head: HeadInspection) -> None:
    gaps = np.concatenate([_gaps(one.logits) for one in head.sequences])
    positive = np.clip(gaps, 1e-3, None)
    axes.hist(positive, bins=np.geomspace(1e-3, max(float(positive.max()) * 1.1, 1.0), 40), color=TARGET, alpha=0.8)
    axes.axvline(np.log(9.0), color=LAYER, lw=1.0, ls="--", label="beyond: 90% against one rival")
    style.logarithmic(axes, y=False)
    axes.set_ylim(top=1.2 * axes.get_ylim()[1])  # room for the legend above the bars
    axes.legend(loc="upper left")
    axes.set(title="Margins: gap of the two leading logits", xlabel="nats", ylabel="queries")


def _gaps(logits: Any) -> Any:
    kept = logits[np.isfinite(logits).sum(axis=1) > 1]
    top = np.partition(kept, -2, axis=1)[:, -2:]
    return top[:, 1] - top[:, 0]


def _keys(axes: Any, head: HeadInspection, tokens: list[str] | None, sequence: int) -> None:
    weights = head.sequences[sequence].weights
    order = np.argsort(weights.max(axis=0))[::-1]
    place = np.arange(len(order))
    axes.bar(place, weights.max(axis=0)[order], color=TARGET, alpha=0.35, label="largest weight from any query")
    axes.bar(place, weights.mean(axis=0)[order], color=TARGET, label="mean weight")
    axes.axhline(0.01, color=LAYER, lw=1.0, ls="--", label="dead below")
    axes.set(title="Keys: who is looked up", xlabel="key", ylabel="weight", ylim=(0, 1.25), yticks=np.linspace(0, 1, 6))
    if tokens is not None and len(tokens) <= 40:
        axes.set_xticks(place, [tokens[j] for j in order], rotation=90, fontsize=6)
    axes.legend(loc="upper right", ncols=3, fontsize=8)


def draw_model(model: ModelInspection, path: str | Path) -> None:
    """Every head as a point and as a square: temperature against effective keys, and hardness by layer and head."""
    with style.sheet(path, (12.0, 5.2), 1, 2) as (figure, panels):
        left, right = panels[0]
        count = len(model.heads)
        style.headline(figure, f"{count} heads on {sum(len(t) for t in model.tokens)} tokens: {model.near_hard} near-hard")
        for index, head in enumerate(model.heads):
            colour = CURVES[(index // model.per_layer) % len(CURVES)]
            left.plot(head.inverse_temperature, head.effective_keys, "*" if head.near_hard else "o", ms=6, color=colour)
        for layer in range(min(model.layers, count // max(model.per_layer, 1))):
            left.plot([], [], "o", color=CURVES[layer % len(CURVES)], label=f"layer {layer}")
        left.plot([], [], "*", color=INK, label="near-hard")
        style.logarithmic(left)
        left.set(title="Temperature and spread", xlabel="inverse temperature, per spread of queries", ylabel="effective keys")
        left.legend(ncols=2)
        right.grid(False)
        if count == model.layers * model.per_layer:
            table = np.array([head.hard_error for head in model.heads]).reshape(model.layers, model.per_layer)
            figure.colorbar(right.imshow(table, cmap=VALUES + "_r", vmin=0.0, vmax=1.5, aspect="auto"), ax=right, shrink=0.85)
            style.write_over(right, np.vectorize("{:.2f}".format)(table), table > 0.7, fontsize=7)
            right.set(xlabel="head", ylabel="layer", xticks=range(model.per_layer), yticks=range(model.layers))
        right.set_title("Relative error of argmax instead of softmax")
