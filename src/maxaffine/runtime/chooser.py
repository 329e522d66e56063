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
from maxaffine.layer.side_by_side import AnyLayer, OutputsLayer
from maxaffine.runtime import collapsed, grouped, literal, softmax, two_level, windowed
from maxaffine.runtime.collapse import collapse
from maxaffine.runtime.kept import once
from maxaffine.runtime.parallel import Ways

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


def _of_parts(layer: OutputsLayer, how: How, why_not: Callable[[Any, How], str | None]) -> str | None:
    """Why a runtime cannot run some part of a layer."""
    return next((why for part in layer.parts if (why := why_not(part.layer, how)) is not None), None)


def _no_collapse(layer: AnyLayer, how: How) -> str | None:
    if layer.several:
        return _of_parts(layer, how, _no_collapse)
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


def _two_level_ways(layer: GroupedLayer | OutputsLayer, tolerance: float) -> Ways:
    if layer.several:
        return Ways()
    work = max(two_level.program_of(group, compute_dtype(layer.dtype)).work for group in layer.cluster_groups())
    return Ways("two_level", work, same_bits=grouped.in_order(layer))


def _factorised_reason(layer: AnyLayer) -> str:
    if layer.grouped:
        return "one softmax per group and direction instead of one over all tokens"
    return "product keys: one softmax per coordinate instead of one over all keys"


def _part_by_part(layer: OutputsLayer, x: Array, how: How, name: str | None = None) -> AnyArray:
    """Every part by its own runtime, or all by the one that is named, two levels where it is and keys stand in clusters."""
    found = []
    for part in layer.parts:
        own = "factorised" if name == "two-level" and not part.layer.has_clusters else name
        found.append(evaluate(part.layer, part.seen(x), own, how.tolerance or None, how.threads))
    return layer.gathered(found)


def _collapsed(layer: GroupedLayer | OutputsLayer, x: Array, how: How) -> AnyArray:
    if layer.several:
        return _part_by_part(layer, x, how, "collapsed")
    return collapsed.evaluate(layer, x, how.tolerance, how.threads)


def _collapsed_work(layer: GroupedLayer | OutputsLayer, tolerance: float) -> int:
    parts = [part.layer for part in layer.parts] if layer.several else [layer]
    return sum(collapsed.prepared(part, tolerance).coefficients.size for part in parts)


def _two_levels(layer: GroupedLayer | OutputsLayer, x: Array, how: How) -> AnyArray:
    return _part_by_part(layer, x, how, "two-level") if layer.several else two_level.evaluate(layer, x, how.threads)


def _factorised(layer: AnyLayer, x: Array, how: How) -> AnyArray:
    if layer.several:
        return _part_by_part(layer, x, how, "factorised")
    return grouped.evaluate(layer, x) if layer.grouped else softmax.factorised(layer, x)


def _dense(layer: AnyLayer, x: Array, how: How) -> AnyArray:
    if layer.several:
        return literal.evaluate(layer, x)
    return grouped.evaluate_dense(layer, x) if layer.grouped else softmax.dense(layer, x)


def _factorised_bytes(layer: AnyLayer) -> int:
    if layer.several:
        return 0
    return grouped.bytes_per_query(layer) if layer.grouped else softmax.bytes_per_query(layer, "factorised")


def _dense_bytes(layer: AnyLayer) -> int:
    if layer.several:
        return literal.bytes_per_query(layer)
    return grouped.bytes_per_query_dense(layer) if layer.grouped else softmax.bytes_per_query(layer, "dense")


def _parts_reason(layer: OutputsLayer, tolerance: float | None) -> str:
    names = dict.fromkeys(choose(part.layer, tolerance)[0] for part in layer.parts)
    return f"every output by its own runtime: {', '.join(names)}"


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
            "parts", lambda layer, how: None if layer.several else "its outputs are no parts that stand side by side",
            _part_by_part, lambda layer: "every output by its own runtime", ways=lambda layer, tolerance: Ways(),
        ),
        Runtime(
            "collapsed", _no_collapse, _collapsed,
            lambda layer: "every head as a polynomial of its directions, to within a stated remainder",
            lambda layer, tolerance: tolerance is not None,
            lambda layer, tolerance: Ways("collapsed", _collapsed_work(layer, tolerance)),
        ),
        Runtime(
            "windowed", _no_window, lambda layer, x, how: windowed.evaluate(layer, x, how.threads), _windowed_reason,
            _window_pays, _windowed_ways,
        ),
        Runtime(
            "two-level", lambda layer, how: None if layer.has_clusters else "its keys stand in no clusters",
            _two_levels,
            lambda layer: "a softmax over clusters, and one inside each in coordinates of its own",
            ways=_two_level_ways,
        ),
        Runtime(
            "factorised", _no_factors, _factorised, _factorised_reason,
            lambda layer, tolerance: layer.grouped or len(layer.keys.shape) > 1, None, _factorised_bytes,
        ),
        Runtime(
            "dense", _no_dense, _dense, lambda layer: f"{layer.keys.count} keys: the literal softmax fits the cache",
            lambda layer, tolerance: layer.keys.count <= DENSE_KEYS, None, _dense_bytes,
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
            return runtime.name, _parts_reason(layer, tolerance) if layer.several else runtime.reason(layer)
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
    ordered = name == "factorised" and layer.grouped and not layer.several and grouped.in_order(layer)
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
    if layer.several:
        return np.concatenate([attention(part.layer, part.seen(x)) for part in layer.parts], axis=1)
    if layer.grouped:
        return two_level.attention(layer, x) if layer.has_clusters else grouped.attention(layer, x)
    product = layer.is_product and len(layer.keys.shape) > 1
    return softmax.attention(layer, x, "hard" if layer.hard else "factorised" if product else "dense")
