"""How a compile runs, as opposed to what it makes; and the one form in which an argument is refused."""

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.core.errors import BadInput
from maxaffine.core.progress import Progress
from maxaffine.target.calls import LEAST


def rule(kept: bool, name: str, value: Any, rule: str) -> None:
    """Refuse an argument in the one form: its name, its value, the rule."""
    if not kept:
        shown = f"{value:g}" if isinstance(value, float) else repr(value)
        raise BadInput(f"`{name}` (={shown}) {rule}.")


def is_of(value: Any, kinds: tuple[type, ...]) -> bool:
    """Whether a value is of one of the kinds; True and False are no numbers."""
    return isinstance(value, kinds) and not isinstance(value, bool)


def number_of(value: Any) -> float:
    """As a float; not a number where it is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


@dataclass(frozen=True)
class Run:
    """How a compile runs, as opposed to what it makes.

    Args:
        max_bytes: memory the compile may take; by default half of what is free.  A quarter of it, and at most 256 MiB, may hold
            the values of a callable.
        max_seconds: time that the search may take: the best proved layer found so far, or a refusal that says how close it came.
        max_calls: points at which a callable may be evaluated (points asked again come from memory): the best layer for so many,
            labelled with the error observed, which may be above the one asked for, or a refusal that says how close it came.
        seed: of the search for the observed error.
        progress: a callback progress(stage, done, total).
        cache: a file that keeps the evaluations of a callable: a run that was killed goes on there without calling it again.
        executor: a concurrent.futures.Executor (of processes, of a Dask cluster) that evaluates a callable, and computes the
            values of a lookup with `out`.
        out: save the layer here; the values of a large lookup are written as they are made, and mapped from the file afterwards.
    """

    max_bytes: int | None = None
    seed: int = 0
    progress: Progress | None = None
    executor: Any | None = None
    out: str | Path | None = None
    max_seconds: float | None = None
    max_calls: int | None = None
    cache: str | Path | None = None

    def __post_init__(self) -> None:
        numbers, whole = (int, float, np.integer), (int, np.integer)
        size, seed, out = self.max_bytes, self.seed, self.out
        rule(size is None or (is_of(size, numbers) and size > 0), "max_bytes", size, "must be a positive number of bytes")
        rule(self.max_seconds is None or 0.0 < number_of(self.max_seconds) < math.inf, "max_seconds", self.max_seconds,
              "must be a positive number of seconds")  # fmt: skip
        rule(self.max_calls is None or (is_of(self.max_calls, whole) and self.max_calls >= LEAST), "max_calls", self.max_calls,
              f"must be a whole number, at least {LEAST}: fewer points say nothing about a function")  # fmt: skip
        rule(is_of(seed, whole) and seed >= 0, "seed", seed, "must be a whole number that is not negative")
        rule(self.progress is None or callable(self.progress), "progress", self.progress, "must be a function")
        has_submit = self.executor is None or callable(getattr(self.executor, "submit", None))
        rule(has_submit, "executor", self.executor, "must be a concurrent.futures.Executor: it has no `submit`")
        cache = self.cache
        rule(cache is None or isinstance(cache, (str, Path)), "cache", cache, "must be the path of a file, such as 'f.cache'")
        rule(out is None or isinstance(out, (str, Path)), "out", out, "must be the path of a file, such as 'f.safetensors'")


RUN = tuple(field.name for field in fields(Run))
