"""A callable whose evaluations are counted, limited, kept in a file, and sent to an executor."""

from dataclasses import replace
from typing import Any

from maxaffine.core.progress import Progress, silent
from maxaffine.target.calls import Calls, Way
from maxaffine.target.spread import Spread
from maxaffine.target.store import Store
from maxaffine.target.target import Target


def counted(
    made: Target, probed: bool, most: int | None, max_bytes: float, cache: Any = None, executor: Any = None, reserve: int = 0,
    progress: Progress = silent,
) -> Target:  # fmt: skip
    """The target with its calls; `probed` says whether its function was called already to see the shape of its values."""
    store = None if cache is None else Store(cache, made.box.names, made.output_shape, made.function, made.vectorize)
    spread = None if executor is None else Spread(executor, made.task, made.judged)
    way = Way(store, spread, made.vectorize, progress)
    try:
        count = made.probed if probed else 0
        if store is not None:
            store.compare(replace(made, calls=None).values)
            count += store.asked_again
        return replace(made, calls=Calls(most, max_bytes, count, reserve, way))
    except BaseException:
        if store is not None:
            store.close()
        raise
