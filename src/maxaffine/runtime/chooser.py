"""One chooser: which runtime a batch runs on, and the batch in chunks that respect a fixed workspace.

A table of runtimes, each of which says why it cannot run a layer (or None), how, and with how much memory per query.  The first
one that can run a layer and is worth it is chosen, from the layer alone, so that a query's value does not depend on its company;
what the batch decides changes no bit of it where runtime/parallel.py says so, and rounding alone elsewhere.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.core.budget import count_text
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.rounding import compute_dtype
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.layer import Layer
from maxaffine.runtime import collapsed, grouped, softmax, two_level, windowed
from maxaffine.runtime.collapse import collapse
from maxaffine.runtime.kept import once
from maxaffine.runtime.parallel import Ways

AnyLayer = Layer | GroupedLayer

WORKSPACE = 64 << 20  # bytes a chunk of queries may take; larger chunks fall out of the caches and gain nothing
DENSE_KEYS = 1 << 16  # beyond this, listing the keys costs more than streaming over them


@dataclass(frozen=True)
class How:
    """What a runtime is told besides the layer: what a collapse may differ by, and the threads it may use."""

    tolerance: float = 0.0
    threads: int | None = None


@dataclass(frozen=True)
class Runtime:
    """A way to run a layer: evaluate (B, D) -> (B, d_out, n_out), why it cannot, why it is taken, and how batches run.

    Either `ways` says the last, and the runtime cuts batches itself, or `bytes_per_query` how they are cut.
    """

    name: str
    why_not: Callable[[Any, How], str | None]
    evaluate: Callable[[Any, Array, How], AnyArray]
    reason: Callable[[Any], str]
    worth: Callable[[Any, float | None], bool] = lambda layer, tolerance: True
    ways: Callable[[Any, float], Ways] | None = None
    bytes_per_query: Callable[[Any], int] = lambda layer: 0


def _no_collapse(layer: AnyLayer, how: How) -> str | None:
    if not layer.grouped:
        return "lookups are not polynomials"
    try:
        collapse(layer, how.tolerance)
    except Refused as refusal:
        return str(refusal).rstrip(".")
    return None


def _no_window(layer: AnyLayer, how: How) -> str | None:
    if layer.grouped:
        return "spectral heads blend all keys everywhere"
    return None if windowed.window_of(layer) is not None else windowed.reason_not(layer)


def _no_factors(layer: AnyLayer, how: How) -> str | None:
    if layer.grouped:
        return "its keys stand in clusters" if layer.has_clusters else None
    return None if layer.is_product else "its keys are not a product over coordinates"


def _no_dense(layer: AnyLayer, how: How) -> str | None:
    if layer.grouped and layer.tokens > DENSE_KEYS:
        return f"its {count_text(layer.tokens)} tokens are too many to list"
    return None


def _window_pays(layer: AnyLayer, tolerance: float | None) -> bool:
    """From twice as many keys on as a window visits."""
    made = windowed.window_of(layer) if not layer.grouped else None
    return made is not None and layer.keys.count * layer.d_out * layer.n_out >= 2 * made.visited


def _windowed_reason(layer: Layer) -> str:
    sites = " x ".join(str(width) for width in windowed.taken(layer).widths)
    return f"a uniform grid: {sites} sites near the query instead of {layer.keys.count:,} keys"


def _windowed_ways(layer: Layer, tolerance: float) -> Ways:
    made, mapped = windowed.taken(layer), windowed.is_mapped(layer)
    return Ways("windowed", made.work, windowed.least_ordered(made, mapped), mapped)


def _two_level_ways(layer: GroupedLayer, tolerance: float) -> Ways:
    work = max(two_level.program_of(group, compute_dtype(layer.dtype)).work for group in layer.cluster_groups())
    return Ways("two_level", work, same_bits=grouped.in_order(layer))


def _factorised_reason(layer: AnyLayer) -> str:
    if layer.grouped:
        return "one softmax per group and direction instead of one over all tokens"
    return "product keys: one softmax per coordinate instead of one over all keys"


RUNTIMES = {
    runtime.name: runtime
    for runtime in (
        Runtime(
            "hard", lambda layer, how: None if layer.hard else 'it was not compiled with method="nearest"',
            lambda layer, x, how: softmax.hard(layer, x),
            lambda layer: f"the nearest of {layer.keys.count:,} entries answers alone",
            ways=lambda layer, tolerance: Ways(),
        ),
        Runtime(
            "collapsed", _no_collapse, lambda layer, x, how: collapsed.evaluate(layer, x, how.tolerance, how.threads),
            lambda layer: "every head as a polynomial of its directions, to within a stated part of the bound",
            lambda layer, tolerance: tolerance is not None,
            lambda layer, tolerance: Ways("collapsed", collapsed.prepared(layer, tolerance).coefficients.size),
        ),
        Runtime(
            "windowed", _no_window, lambda layer, x, how: windowed.evaluate(layer, x, how.threads), _windowed_reason,
            _window_pays, _windowed_ways,
        ),
        Runtime(
            "two-level", lambda layer, how: None if layer.has_clusters else "its keys stand in no clusters",
            lambda layer, x, how: two_level.evaluate(layer, x, how.threads),
            lambda layer: "a softmax over clusters, and one inside each in coordinates of its own",
            ways=_two_level_ways,
        ),
        Runtime(
            "factorised", _no_factors,
            lambda layer, x, how: (grouped.evaluate if layer.grouped else softmax.factorised)(layer, x),
            _factorised_reason, lambda layer, tolerance: layer.grouped or len(layer.keys.shape) > 1, None,
            lambda layer: grouped.bytes_per_query(layer) if layer.grouped else softmax.bytes_per_query(layer, "factorised"),
        ),
        Runtime(
            "dense", _no_dense,
            lambda layer, x, how: (grouped.evaluate_dense if layer.grouped else softmax.dense)(layer, x),
            lambda layer: f"{layer.keys.count} keys: the literal softmax fits the cache",
            lambda layer, tolerance: layer.keys.count <= DENSE_KEYS, None,
            lambda layer: grouped.bytes_per_query_dense(layer) if layer.grouped else softmax.bytes_per_query(layer, "dense"),
        ),
        Runtime(
            "blocked", lambda layer, how: "its tokens stand in groups" if layer.grouped else None,
            lambda layer, x, how: softmax.blocked(layer, x),
            lambda layer: f"{layer.keys.count} keys: streamed in blocks of {softmax.BLOCK}",
            bytes_per_query=lambda layer: softmax.bytes_per_query(layer, "blocked"),
        ),
    )
}  # fmt: skip


def available(layer: AnyLayer, tolerance: float = 0.0) -> tuple[str, ...]:
    """The runtimes that can run this layer."""
    how = How(tolerance)
    return tuple(name for name, runtime in RUNTIMES.items() if runtime.why_not(layer, how) is None)


def can(layer: AnyLayer, name: str) -> bool:
    """Whether one runtime can run this layer, without asking the others."""
    return RUNTIMES[name].why_not(layer, How()) is None


@once
def choose(layer: AnyLayer, tolerance: float | None = None) -> tuple[str, str]:
    """The runtime for this layer and the reason; `tolerance` is what its certificate reserves for a collapse (None: nothing)."""
    how = How(tolerance or 0.0)
    for runtime in RUNTIMES.values():
        if runtime.worth(layer, tolerance) and runtime.why_not(layer, how) is None:
            return runtime.name, runtime.reason(layer)
    raise AssertionError("no runtime can run this layer: please report this")


def how_it_runs(
    layer: AnyLayer, tolerance: float | None = None, batch: int | None = None, threads: int | None = None, name: str | None = None
) -> str:
    """What a batch of that many queries, or every batch, decides: NumPy or compiled code, threads, order, chunks."""
    found = ways(layer, name or choose(layer, tolerance)[0], tolerance or 0.0)
    return found.in_general(threads) if batch is None else found.in_particular(batch, threads)


def ways(layer: AnyLayer, name: str, tolerance: float) -> Ways:
    """How batches of a layer run by the runtime of that name."""
    runtime = RUNTIMES[name]
    if runtime.ways is not None:
        return runtime.ways(layer, tolerance)
    ordered = name == "factorised" and layer.grouped and grouped.in_order(layer)
    return Ways(chunk=_chunk(runtime, layer), same_bits=ordered)


def _chunk(runtime: Runtime, layer: AnyLayer) -> int:
    """Queries that run together; 0 where the runtime cuts batches itself."""
    each = runtime.bytes_per_query(layer)
    return max(1, WORKSPACE // each) if each else 0


def evaluate(
    layer: AnyLayer, x: Array, runtime: str | None = None, tolerance: float | None = None, threads: int | None = None
) -> AnyArray:
    """F(x) for points (B, D), by the named runtime or the chosen one: (B, d_out, n_out)."""
    how = How(tolerance or 0.0, threads)
    chosen = RUNTIMES[choose(layer, tolerance)[0]] if runtime is None else named(layer, runtime, how)
    if len(x) == 0:
        return np.empty((0, layer.d_out, layer.n_out), dtype=compute_dtype(layer.dtype))
    chunk = _chunk(chosen, layer) or len(x)
    if len(x) <= chunk:
        return chosen.evaluate(layer, x, how)
    return np.concatenate([chosen.evaluate(layer, x[i : i + chunk], how) for i in range(0, len(x), chunk)])


def named(layer: AnyLayer, name: str, how: How) -> Runtime:
    """The runtime that a user asks for, or a sentence that says why not and what else there is."""
    if name not in RUNTIMES:
        raise BadInput(f"`runtime` (={name!r}) is not known; choose one of {', '.join(RUNTIMES)}.")
    why = RUNTIMES[name].why_not(layer, how)
    if why is not None:
        others = ", ".join(available(layer, how.tolerance))
        raise BadInput(f"`runtime` (={name!r}) cannot run this layer: {why}; choose one of {others}.")
    return RUNTIMES[name]


def attention(layer: AnyLayer, x: Array) -> AnyArray:
    """The attention weights (B, N) of every key for every query."""
    if layer.grouped:
        return two_level.attention(layer, x) if layer.has_clusters else grouped.attention(layer, x)
    product = layer.is_product and len(layer.keys.shape) > 1
    return softmax.attention(layer, x, "hard" if layer.hard else "factorised" if product else "dense")
