"""A compiled layer as plain data for a page: numbers, curves, maps as pictures, the weights at a point, the literal matrices."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from maxaffine import reference
from maxaffine.compiled import Compiled
from maxaffine.core.arrays import Array
from maxaffine.core.budget import count_text, size
from maxaffine.core.errors import MaxaffineError
from maxaffine.layer.records import SelfMatrices
from maxaffine.report import maps, style
from maxaffine.report.advice import meaning
from maxaffine.report.sampling import Probe, Window
from maxaffine.report.scope import in_words
from maxaffine.report.weights import asked

SIDE = 120  # pixels of a map
POINTS = 600  # of a curve
BARS = 40  # tokens whose weights are shown
LITERAL_SIDE = 24  # points a side where literal matrices are moved
MOST_LITERAL = 4096  # tokens that literal matrices may have here
ROWS, COLUMNS = 24, 48  # of a literal matrix that are shown


def summary(layer: Compiled, turned: str = "") -> dict[str, Any]:
    """Numbers and words of a layer; `turned`: "r" at another temperature, "keys" on other keys, whose error nobody asked for."""
    certificate, said = layer.certificate, meaning(layer) if layer.bound is not None else {}
    return {
        "target": layer.target.name or layer.target.text or "a function",
        "tokens": layer.tokens, "tokens_text": count_text(layer.tokens), "method": layer.method, "dtype": layer.dtype,
        "bytes": size(layer.weights.nbytes), "kind": certificate.kind, "bound": layer.bound, "asked": layer.error,
        "observed": layer.observed.error, "at": np.atleast_1d(np.asarray(layer.observed.at, dtype=float)).tolist(),
        "where": certificate.where, "theorem": certificate.theorem, "scope": in_words(certificate.scope),
        "parts": [(name, part, said[name]) for name, part in certificate.parts.items() if name in said],
        "assumptions": list(certificate.assumptions), "names": list(layer.box.names), "low": layer.box.low.tolist(),
        "high": layer.box.high.tolist(), "explained": layer.explain(), "seconds": layer.seconds, "turned": turned,
    }  # fmt: skip


def close(layer: Compiled) -> Window | None:
    """A window about the worst point found, where the error is at home in a small part of the box."""
    return Probe(layer).home()


def view(layer: Compiled, axes: tuple[int, ...], point: Sequence[float], near: Window | None = None) -> dict[str, Any]:
    """Target, layer and error along one axis or on a plane through a point; the error in the window `near`, if there is one."""
    probe = Probe(layer)
    probe.worst = np.clip(np.asarray(point, dtype=float), probe.window.low, probe.window.high)
    if len(axes) == 1:
        return _curves(probe, axes[0], near)
    return _maps(probe, (axes[0], axes[1]), near)


def _curves(probe: Probe, axis: int, near: Window | None) -> dict[str, Any]:
    ticks, x = probe.line(axis, probe.window, POINTS)
    found = probe.at(x)
    there, error, origin = ticks, found.error, 0.0
    if near is not None:
        there, x = probe.line(axis, near, POINTS)
        error, fifth = probe.at(x).error, float(near.high[axis] - near.low[axis]) / 10.0
        origin = round(float(there.mean()) / fifth) * fifth  # labels of places close to each other would all read alike
    partition = probe.partition() if probe.window.dimension == 1 else None
    cells = [] if partition is None else [cell for cell in partition.intervals(probe.window) if not np.isnan(cell[0])]
    edges = sorted(float(cell[0]) for cell in cells)[1:] if len(cells) <= 200 else []
    return {
        "kind": "curves", "axes": [axis], "x": ticks.tolist(), "target": found.target.tolist(), "layer": found.layer.tolist(),
        "error_x": (there - origin).tolist(), "error": error.tolist(), "origin": origin, "near": near is not None, "edges": edges,
        "bound": probe.pointwise_bound, "worst": float(np.abs(error).max()),
    }  # fmt: skip


def _maps(probe: Probe, axes: tuple[int, int], near: Window | None) -> dict[str, Any]:
    window = probe.window.section(axes)
    found = probe.at(probe.plane(axes, window, SIDE))
    low, high = maps.value_range([found])
    there = window if near is None else near.section(axes)
    error = np.abs(found.error if near is None else probe.at(probe.plane(axes, there, SIDE)).error)
    worst = float(error.max())
    return {
        "kind": "maps", "axes": list(axes), "low": window.low.tolist(), "high": window.high.tolist(), "range": [low, high],
        "worst": worst, "near": near is not None, "error_low": there.low.tolist(), "error_high": there.high.tolist(),
        "target": picture(found.target, low, high, style.VALUES), "layer": picture(found.layer, low, high, style.VALUES),
        "error": picture(error, 0.0, worst or 1.0, style.ERRORS), "cells": _cells(probe, axes, window),
        "error_cells": _cells(probe, axes, there) if near is not None else None,
    }  # fmt: skip


def _cells(probe: Probe, axes: tuple[int, int], window: Window) -> list[list[list[float]]]:
    """Polygons of the cells on the plane, in shares of the picture from its upper left corner."""
    partition = probe.partition()
    if partition is not None and probe.window.dimension > 2:
        partition = partition.sliced(axes, probe.worst)
    found = maps.readable_cells(partition, window)
    wide = window.high - window.low
    return [[[(p[0] - window.low[0]) / wide[0], 1.0 - (p[1] - window.low[1]) / wide[1]] for p in cell] for cell in found or []]


def picture(values: Array, low: float, high: float, colours: str) -> str:
    """Rows of values, the last on top, as the address of a PNG."""
    from matplotlib import colormaps
    from PIL import Image

    shares = np.clip((values - low) / ((high - low) or 1.0), 0.0, 1.0)
    pixels = (colormaps[colours](shares[::-1])[..., :3] * 255).astype(np.uint8)
    wanted = max(1, 360 // max(pixels.shape[:2]))
    made, buffer = Image.fromarray(pixels), io.BytesIO()
    made.resize((made.width * wanted, made.height * wanted), Image.Resampling.NEAREST).save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def attend(layer: Compiled, point: list[float]) -> dict[str, Any]:
    """Query, logits and weights of every query column at one point, largest first, and the value they add up to."""
    x = np.clip(np.asarray(point, dtype=float), layer.box.low, layer.box.high)
    said = []
    for number, found in enumerate(asked(layer, x)):
        order = np.lexsort((-found.logits, -found.weights))[:BARS]
        said.append({
            "number": number + 1, "count": len(found.weights), "sum": float(found.weights.sum()), "query": found.query.tolist(),
            "tokens": [int(k) + 1 for k in order], "weights": found.weights[order].tolist(),
            "logits": found.logits[order].tolist(), "adds": found.adds.tolist(),
        })  # fmt: skip
    value = np.atleast_1d(np.asarray(layer(*layer.target.split(x[None])), dtype=float).ravel())
    truth = np.asarray(layer.target.values(x[None]), dtype=float).ravel()
    return {"point": x.tolist(), "columns": said, "value": value.tolist(), "target": truth.tolist()}


def matrices(layer: Compiled) -> dict[str, Any]:
    """The literal matrices, the first rows and columns of those that are large, with the meaning of their rows."""
    made = _literal(layer)
    shown = {name: getattr(made, name) for name in ("W_Q", "W_K", "W_V", "W_O")} | {"Z": made.linear.R_0}
    return {
        "matrices": {
            name: {"shape": list(matrix.shape), "rows": np.asarray(matrix, dtype=float)[:ROWS, :COLUMNS].tolist()}
            for name, matrix in shown.items()
        },
        "words": made.describe(),
    }


def _literal(layer: Compiled) -> SelfMatrices:
    if layer.weights.keys.count > MOST_LITERAL:
        raise MaxaffineError(
            f"its literal matrices have {layer.weights.keys.count:,} tokens, and {MOST_LITERAL:,} are shown here."
        )
    made = layer.matrices("self", layout="Q")
    assert isinstance(made, SelfMatrices)
    return made


def moved(layer: Compiled, shares: dict[str, float], seed: int = 0) -> dict[str, Any]:
    """The literal layer with noise on W_Q, W_K and W_V, each a share of its own entries, and what is seen of its error."""
    made, rng = _literal(layer), np.random.default_rng(seed)
    changed = {
        name: getattr(made, name) * (1.0 + shares.get(name, 0.0) * rng.standard_normal(getattr(made, name).shape))
        for name in ("W_Q", "W_K", "W_V")
    }
    used = np.flatnonzero(made.W_O.any(axis=1))
    window = Probe(layer).window
    side = POINTS if window.dimension == 1 else LITERAL_SIDE
    ticks = [window.ticks(axis, side) for axis in range(min(window.dimension, 2))]
    middle = (window.low + window.high) / 2.0
    x = np.tile(middle, (side ** len(ticks), 1))
    x[:, : len(ticks)] = np.stack(np.meshgrid(*ticks), axis=-1).reshape(len(x), -1)
    inputs = layer.box.unflatten(x) if layer.box.is_sequence else x[:, :, None]
    said = np.empty(len(x))
    for k, one in enumerate(inputs):
        Z = made.linear(one)
        said[k] = reference.cross_attention(Z, Z[:, used], changed["W_Q"], changed["W_K"], changed["W_V"], made.W_O[used])[0, 0]
    truth = layer.target.values(x)[:, 0, 0]
    away = np.abs(said - truth)
    found: dict[str, Any] = {"error": float(away.max()), "points": len(x)}
    if window.dimension == 1:
        return found | {"x": x[:, 0].tolist(), "layer": said.tolist(), "target": truth.tolist()}
    square = (side, side)
    low, high = float(min(said.min(), truth.min())), float(max(said.max(), truth.max()))
    return found | {
        "picture": picture(said.reshape(square), low, high, style.VALUES),
        "away": picture(away.reshape(square), 0.0, float(away.max()) or 1.0, style.ERRORS),
    }
