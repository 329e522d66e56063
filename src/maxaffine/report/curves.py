"""Panels over one axis: values with their bound, error, entropy, attention weights, hand-over points."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import MaxNLocator

from maxaffine.core.arrays import Array
from maxaffine.report import style
from maxaffine.report.sampling import Probe, Samples, Window

DOTS: dict[str, Any] = {"ls": "none", "marker": "o", "ms": 3.5, "mec": "none"}


def value_curves(
    axes: Axes, probe: Probe, ticks: Array, samples: Samples, bound: float | None, window: Window, *, axis: int = 0
) -> None:
    """Target with its bound as a band, and the layer, along a line; of a table its entries there."""
    if bound is not None:
        words = f"target ± {probe.compiled.certificate.kind} bound"
        axes.fill_between(
            ticks, samples.target - bound, samples.target + bound, color=style.PROVED, alpha=0.16, lw=0, label=words
        )
    if probe.at_entries:
        places, entries = _entries(probe, axis, window)
        axes.plot(places, entries.target, color=style.TARGET, label="entries", **DOTS)
    else:
        axes.plot(ticks, samples.target, color=style.TARGET, lw=2.4, alpha=0.75, label="target")
    axes.plot(ticks, samples.layer, color=style.LAYER, lw=1.1, label="layer")
    axes.plot(probe.worst[axis], probe.worst_layer, **style.WORST_MARK, label="worst point found")
    low, high = axes.get_ylim()
    if high - low < 1e-6 * max(abs(low), abs(high)):  # a constant: rounding is not worth a scale of its own
        room = 0.5 * max(abs(low), abs(high))
        axes.set_ylim(low - room, high + room)


def error_curve(axes: Axes, probe: Probe, ticks: Array, samples: Samples, window: Window, *, axis: int = 0) -> None:
    """layer - target along a line, the bound as a band, the worst point marked; of a table at its entries there."""
    if probe.at_entries:
        _errors_at_entries(axes, probe, window, axis)
        return
    bound, largest = probe.pointwise_bound, max(float(np.abs(samples.error).max()), abs(probe.worst_error))
    reach, words, height = 1.2 * largest or bound or 1.0, "", 1.0
    if bound is not None:
        words = f"{probe.compiled.certificate.kind} bound ±{style.above(bound)}"
        if bound <= 25 * largest or largest == 0:
            axes.axhspan(-bound, bound, color=style.PROVED, alpha=0.13, lw=0)
            for edge in (-bound, bound):
                axes.axhline(edge, color=style.PROVED, lw=0.8)
            reach = max(reach, 1.12 * bound)
            height = bound
        else:
            words, height = words + ", far outside the picture", reach
    axes.axhline(0, color=style.QUIET, lw=0.6)
    axes.plot(ticks, samples.error, color=style.INK, lw=0.9)
    axes.plot(probe.worst[axis], probe.worst_error, **style.WORST_MARK)
    axes.set_ylim(-reach, 1.32 * reach if words else reach)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    if words:
        # At the end away from the worst point, so that neither hides the other.
        left = probe.worst[axis] > (ticks[0] + ticks[-1]) / 2
        where, side = ((0.012, height), "left") if left else ((0.988, height), "right")
        above = (where, (0, 2), axes.get_yaxis_transform(), "offset points")
        axes.annotate(words, *above, ha=side, va="bottom", fontsize=8, color=style.PROVED_TEXT)


def _entries(probe: Probe, axis: int, window: Window) -> tuple[Array, Samples]:
    """Where entries are on the line through the worst point, and what they and the layer say there."""
    places = probe.entries_on(axis, window)
    x = np.tile(probe.worst, (len(places), 1))
    x[:, axis] = places
    return places, probe.at(x)


def _errors_at_entries(axes: Axes, probe: Probe, window: Window, axis: int) -> None:
    """layer - target at the entries on a line, the bound a stroke above and below each, and nothing between them."""
    places, found = _entries(probe, axis, window)
    bound, largest = probe.compiled.certificate.bound, max(float(np.abs(found.error).max(initial=0.0)), abs(probe.worst_error))
    reach = 1.2 * largest or bound or 1.0
    axes.axhline(0, color=style.QUIET, lw=0.6)
    axes.plot(places, found.error, color=style.INK, **DOTS)
    axes.plot(probe.worst[axis], probe.worst_error, **style.WORST_MARK)
    if bound is not None:
        words = f"{probe.compiled.certificate.kind}: ±{style.above(bound)} at the entries"
        if bound <= 25 * largest or largest == 0:
            for edge in (-bound, bound):
                axes.plot(places, np.full(len(places), edge), color=style.PROVED, ls="none", marker="_", ms=7, mew=1.2)
            reach = max(reach, 1.12 * bound)
        look: dict[str, Any] = {"ha": "right", "va": "top", "fontsize": 8, "color": style.PROVED_TEXT}
        axes.annotate(words, (0.988, 1.0), (0, -2), axes.transAxes, "offset points", **look)
    axes.set_ylim(-reach, reach if bound is None else 1.4 * reach)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_locator(MaxNLocator(5))


def entropy_curve(axes: Axes, probe: Probe, window: Window, handovers: Array) -> None:
    """H(x) in nats over the window, and on the right e^H, how many tokens share the answer."""
    axes.set_title("attention entropy, nats")
    wanted = max(1600, 12 * int(probe.compiled.tokens))
    count = min(wanted, probe.entropy_points() - len(handovers))
    # Peaks stand where one token hands over to the next; with those points among them none is cut short.
    ticks = np.union1d(np.linspace(window.low[0], window.high[0], max(2, count)), handovers)
    entropy = probe.entropy(ticks[:, None]) if count >= 400 else None
    if entropy is None:
        style.note(axes, probe.why_no_entropy)
        return
    if len(handovers) <= 150 and count == wanted:
        axes.fill_between(ticks, 0, entropy, color=style.TARGET, alpha=0.22, lw=0)
        axes.plot(ticks, entropy, color=style.TARGET, lw=0.9)
    else:
        # So many peaks would be one block of ink: their range and their mean instead.
        groups = np.linspace(0, len(ticks), 201)[:-1].astype(int)
        middle = np.add.reduceat(ticks, groups) / np.diff(np.append(groups, len(ticks)))
        mean = np.add.reduceat(entropy, groups) / np.diff(np.append(groups, len(ticks)))
        least, most = np.minimum.reduceat(entropy, groups), np.maximum.reduceat(entropy, groups)
        axes.fill_between(middle, least, most, color=style.TARGET, alpha=0.2, lw=0)
        axes.plot(middle, mean, color=style.TARGET, lw=1.4)
        axes.set_title("attention entropy, nats: range and mean nearby")
    axes.set_ylim(0, max(1.08 * float(entropy.max()), 0.1))
    _effective(axes)


def weight_curves(axes: Axes, probe: Probe, window: Window) -> None:
    """alpha_j(x) of the tokens that matter in the window, one curve each."""
    axes.set_title("attention weights there")
    ticks, x = probe.line(0, window, 300)
    if len(x) * int(probe.compiled.tokens) > 40_000_000:
        style.note(axes, probe.why_no_entropy)
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


def mark_handovers(axes: Axes, handovers: Array, window: Window, rug: bool) -> None:
    """Dotted lines where tokens hand over, while they are few; with `rug`, short strokes at the foot of the panel."""
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


def _effective(axes: Axes) -> None:
    """A second scale: e^H, how many tokens share the answer."""
    second = axes.secondary_yaxis("right", functions=(np.exp, lambda n: np.log(np.maximum(n, 1e-12))))
    second.set_ylabel("tokens sharing, e^H", fontsize=8, color=style.QUIET)
    second.yaxis.set_major_locator(MaxNLocator(4))
    second.spines["right"].set_visible(False)
