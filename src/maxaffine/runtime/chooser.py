"""One chooser: which runtime a batch runs on, in chunks that respect a fixed workspace."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.errors import BadInput
from maxaffine.core.rounding import compute_dtype
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.layer import Layer
from maxaffine.runtime import blocked, dense, factorised, grouped, two_level

Array = NDArray[Any]

WORKSPACE = 64 << 20  # bytes a chunk of queries may take; larger chunks fall out of the caches and gain nothing
DENSE_KEYS = 1 << 16  # beyond this, listing the keys costs more than streaming over them


@dataclass(frozen=True)
class Runtime:
    """A way to run a layer: evaluate (B, D) -> (B, d_out, n_out), and its memory."""

    name: str
    evaluate: Callable[[Layer, NDArray[np.float64]], Array]
    workspace: Callable[[Layer], int]
    bytes_per_query: Callable[[Layer], int]


RUNTIMES = {
    name: Runtime(name, module.evaluate, module.workspace, module.bytes_per_query)
    for name, module in (("dense", dense), ("blocked", blocked), ("factorised", factorised))
}


GROUPED = ("factorised", "dense")
CLUSTERED = ("two-level", "dense")


def available(layer: Layer | GroupedLayer) -> tuple[str, ...]:
    """The runtimes that can run this layer."""
    if isinstance(layer, GroupedLayer):
        names = CLUSTERED if layer.has_clusters else GROUPED
        return names if layer.tokens <= DENSE_KEYS else names[:1]
    return tuple(name for name in RUNTIMES if name != "factorised" or layer.is_product)


def choose(layer: Layer | GroupedLayer) -> tuple[str, str]:
    """The runtime for this layer and the reason."""
    if isinstance(layer, GroupedLayer) and layer.has_clusters:
        return "two-level", "a softmax over clusters, and one inside each in coordinates of its own"
    if isinstance(layer, GroupedLayer):
        return "factorised", "one softmax per group and direction instead of one over all tokens"
    if layer.is_product and len(layer.keys.shape) > 1:
        return "factorised", "product keys: one softmax per coordinate instead of one over all keys"
    if layer.keys.count <= DENSE_KEYS:
        return "dense", f"{layer.keys.count} keys: the literal softmax fits the cache"
    return "blocked", f"{layer.keys.count} keys: streamed in blocks of {blocked.BLOCK}"


def evaluate(layer: Layer | GroupedLayer, x: NDArray[np.float64], runtime: str | None = None) -> Array:
    """F(x) for points (B, D), by the named runtime or the chosen one: (B, d_out, n_out)."""
    name = choose(layer)[0] if runtime is None else runtime
    if name not in (*RUNTIMES, *CLUSTERED):
        raise BadInput(f"`runtime` (={name!r}) is not known; choose one of {', '.join(RUNTIMES)}.")
    if name not in available(layer):
        raise BadInput(f"`runtime` (={name!r}) cannot run this layer; choose one of {', '.join(available(layer))}.")
    if len(x) == 0:
        return np.empty((0, layer.d_out, layer.n_out), dtype=compute_dtype(layer.dtype))
    one, per_query = _bound(layer, name)
    chunk = max(1, WORKSPACE // max(1, per_query))
    if len(x) <= chunk:
        return one(x)
    return np.concatenate([one(x[i : i + chunk]) for i in range(0, len(x), chunk)])


def _bound(layer: Layer | GroupedLayer, name: str) -> tuple[Callable[[NDArray[np.float64]], Array], int]:
    """The layer's evaluation under that runtime, and its bytes per query."""
    if isinstance(layer, GroupedLayer):
        if name == "dense":
            return partial(grouped.evaluate_dense, layer), grouped.bytes_per_query_dense(layer)
        if name == "two-level":
            return partial(two_level.evaluate, layer), two_level.bytes_per_query(layer)
        return partial(grouped.evaluate, layer), grouped.bytes_per_query(layer)
    chosen = RUNTIMES[name]
    return partial(chosen.evaluate, layer), chosen.bytes_per_query(layer)


def attention(layer: Layer | GroupedLayer, x: NDArray[np.float64]) -> Array:
    """The attention weights (B, N) of every key for every query."""
    if isinstance(layer, GroupedLayer):
        return two_level.attention(layer, x) if layer.has_clusters else grouped.attention(layer, x)
    if layer.is_product and len(layer.keys.shape) > 1:
        return factorised.attention(layer, x)
    return dense.attention(layer, x)
