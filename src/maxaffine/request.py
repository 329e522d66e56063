"""What was asked for: arguments of `compile`, each checked with a sentence of its own."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.progress import Progress
from maxaffine.core.rounding import compute_dtype, dtype_of
from maxaffine.layer.maxaffine import MaxAffine
from maxaffine.proofs.certificate import LEAST_INTEGRAL
from maxaffine.target.evidence import Evidence
from maxaffine.target.target import Target

Array = NDArray[np.float64]

NARROWEST = 1e-30  # the width of a variable where keys are stored in fewer digits than float64
SMALLEST = 1e-200  # the volume of a box in L_p


@dataclass(frozen=True)
class Request:
    """What was asked for, validated."""

    target: Target
    error: float
    norm: float
    dtype: str
    evidence: Evidence
    partition: MaxAffine | None
    centres: Array | None
    require: str | None
    max_bytes: int | None
    seed: int
    progress: Progress
    breaks: tuple[float, ...] | None = None  # of a callable of one variable
    gap: float | None = None  # how far from a jump the sup norm speaks
    out: Path | None = None  # where the layer goes; large lookups are written there as they are made
    executor: Any | None = None  # a concurrent.futures.Executor that computes values
    literal: bool = False  # whether the literal softmax over all tokens is to meet the error as well


def check_error(error: Any) -> float:
    """The error as a positive finite number."""
    if error is None:
        raise BadInput("`error` is missing; ask for one such as 1e-3.")
    try:
        value = float(error)
    except (TypeError, ValueError):
        raise BadInput(f"`error` (={error!r}) must be a number; ask for a sup-norm error such as 1e-3.") from None
    if not (math.isfinite(value) and value > 0):
        raise BadInput(f"`error` (={value:g}) must be positive and finite; ask for an error such as 1e-3.")
    return value


def check_out(out: Any) -> Path | None:
    """Where the layer goes, a path or nothing."""
    if out is None or isinstance(out, (str, Path)):
        return None if out is None else Path(out)
    raise BadInput(f"`out` (={out!r}) must be the path of a file to write, such as 'f.safetensors'.")


def check_flag(name: str, value: Any) -> bool:
    """True or false, and nothing that is merely taken for one."""
    if not isinstance(value, (bool, np.bool_)):
        raise BadInput(f"`{name}` (={value!r}) must be True or False.")
    return bool(value)


def check_executor(executor: Any) -> Any | None:
    """Something with `submit`, or nothing."""
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise BadInput(f"`executor` (a {type(executor).__name__}) must be a concurrent.futures.Executor: it has no `submit`.")
    return executor


def check_norm(norm: Any) -> float:
    """p of the norm, infinite for the sup norm."""
    try:
        p = float(norm)
    except (TypeError, ValueError):
        p = math.nan
    if not p >= 1.0:
        raise BadInput(f'`norm` (={norm!r}) must be "inf" or a number p >= 1 of L_p.')
    if math.isfinite(p) and p > 64:
        raise BadInput(f"`norm` (={p:g}) is above 64; ask for the sup norm instead.")
    return p


def check_scales(p: float, target: Target, dtype: str) -> None:
    """What is too narrow for the keys of a dtype, or too small or large to be integrated."""
    box = target.box
    thin = int(box.width.argmin())
    if dtype != "float64" and box.width[thin] < NARROWEST:
        raise Refused(
            f"`box`: the edges of `{box.names[thin]}` (={box.low[thin]:g}, {box.high[thin]:g}) lie {box.width[thin]:.3g} apart, "
            f"and {dtype} needs at least {NARROWEST:g}; scale the variable, or use dtype float64 (--dtype float64)."
        )
    if math.isfinite(p) and not SMALLEST <= box.volume <= 1.0 / SMALLEST:
        raise Refused(
            f"`norm` (={p:g}) integrates over the box, whose volume {box.volume:.3g} is beyond what float64 can integrate "
            f'({SMALLEST:g} to {1.0 / SMALLEST:g}); scale the variables, or ask for the sup norm with `norm="inf"` (--norm inf).'
        )


def check_power(p: float, error: float) -> None:
    """In L_p the p-th power of the error must be a number that float64 can integrate."""
    if math.isfinite(p) and error < LEAST_INTEGRAL ** (1.0 / p):
        raise Refused(
            f"`error` (={error:g}) is below what float64 can integrate in L_{p:g}: its power {p:g} is below {LEAST_INTEGRAL:g}. "
            f'Ask for at least {LEAST_INTEGRAL ** (1.0 / p):.2g}, or for the sup norm with `norm="inf"` (--norm inf).'
        )


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """The value, where it is among the choices."""
    if value not in choices:
        known = ", ".join(str(choice) for choice in choices if choice is not None)
        raise BadInput(f"`{name}` (={value!r}) is not known; choose one of {known}.")
    return value


def check_bytes(max_bytes: Any) -> int | None:
    """A positive number of bytes, or None."""
    if max_bytes is None:
        return None
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, (int, np.integer, float)) or not max_bytes > 0:
        raise BadInput(f"`max_bytes` (={max_bytes!r}) must be a positive number of bytes.")
    return int(max_bytes)


def check_seed(seed: Any) -> int:
    """A whole number that is not negative."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise BadInput(f"`seed` (={seed!r}) must be a whole number that is not negative.")
    return int(seed)


def check_partition(partition: Any, target: Target) -> MaxAffine | None:
    """A MaxAffine on the box, or None."""
    if partition is not None and not isinstance(partition, MaxAffine):
        raise BadInput(f"`partition` must be a MaxAffine, not {type(partition).__name__}.")
    if partition is not None and partition.A.shape[1] != target.box.dimension:
        raise BadInput(f"`partition` has {partition.A.shape[1]} variables and the box {target.box.dimension}.")
    return partition


def check_breaks(breaks: Any, target: Target) -> tuple[float, ...] | None:
    """Break points inside the box, in increasing order, or None."""
    if breaks is None:
        return None
    try:
        points = np.unique(np.asarray(breaks, dtype=np.float64).ravel())
    except (TypeError, ValueError):
        raise BadInput(f"`breaks` (={breaks!r}) must be numbers, the places where the target has kinks or jumps.") from None
    if target.box.dimension != 1:
        raise BadInput(f"`breaks` are places on one axis, and the box has {target.box.dimension}; leave them out.")
    low, high = float(target.box.low[0]), float(target.box.high[0])
    if not (np.isfinite(points).all() and ((low <= points) & (points <= high)).all()):
        raise BadInput(f"`breaks` {points.tolist()} must lie in the box [{low:g}, {high:g}].")
    return tuple(float(point) for point in points if low < point < high)


def check_gap(gap: Any, target: Target) -> float | None:
    """A positive distance below the width of the box, or None."""
    if gap is None:
        return None
    try:
        value = float(gap)
    except (TypeError, ValueError):
        value = math.nan
    if not 0.0 < value < float(target.box.width.min()):
        raise BadInput(f"`gap` (={gap!r}) must be a positive distance below the width of the box, such as 1e-6.")
    return value


def check_centres(centres: Any, target: Target) -> Array | None:
    """Points (M, D) of the box, or None."""
    if centres is None:
        return None
    try:
        points = np.asarray(centres, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput("`centres` must be an array of points (M, D).") from None
    D = target.box.dimension
    if points.ndim != 2 or points.shape[1] != D or len(points) == 0 or not np.isfinite(points).all():
        raise BadInput(f"`centres` of shape {points.shape} must be finite points of shape (M, {D}), at least one.")
    if not target.box.contains(points).all():
        raise BadInput("`centres` has points outside the box; enlarge the box or leave them out.")
    return points


def absolute_error(error: float, relative: bool, target: Target, dtype: str) -> float:
    """The absolute error; refused where the dtype cannot hold it."""
    rng = np.random.default_rng(0)
    x = np.concatenate([target.box.sample(1024, rng), target.box.centre[None]])
    if target.expression is not None:
        found = target.enclose(x, x)
        largest = float(np.where(np.isfinite(found.mignitude), found.mignitude, 0.0).max())
    else:
        largest = float(np.abs(target.values(x)).max())
    most = float(np.finfo(compute_dtype(dtype)).max)
    if not largest < most / 2.0:
        raise Refused(f"values near {largest:.3g} overflow {dtype}, which ends at {most:.3g}; scale the target or use float64.")
    wanted = error * largest if relative else error
    unit = dtype_of(dtype).unit
    if relative and largest == 0.0:
        raise Refused("`relative` measures the error in units of sup |f|, and f is zero wherever it was looked at.")
    if wanted < 2.0 * unit * largest:
        raise Refused(
            f"`error` (={error:g}) is below what {dtype} can hold: values near {largest:.3g} are rounded by "
            f"{unit * largest:.2g}. Ask for at least {4 * unit * largest / (largest if relative else 1.0):.2g}."
        )
    return wanted


def check_hard(hard: Any, target: Target, method: str) -> None:
    """`hard` is for tables and samples, and is no search for keys."""
    if not isinstance(hard, bool):
        raise BadInput(f"`hard` (={hard!r}) must be True or False.")
    if hard and target.entries is None:
        raise BadInput("`hard` answers with the nearest entry of a Table or of Samples; leave it out for a function.")
    if hard and method != "auto":
        raise BadInput(f'`hard` has one token per entry, and no `method` (="{method}"); leave one of them out.')


def check_for_entries(target: Target, facts: Mapping[str, Any], norm: Any, method: str) -> None:
    """What makes no sense for a table or samples: facts about functions, places for keys, other norms and methods."""
    entries = target.entries
    assert entries is not None
    if isinstance(target.data, type(entries)):
        raise BadInput(f"of this {entries.kind} only its record is left; make the {entries.kind} again.")
    for name, value in facts.items():
        if value is not None:
            raise BadInput(f"`{name}` is about functions, and the target is {entries.words}; leave it out.")
    if norm not in ("inf", math.inf):
        raise BadInput(f"`norm` (={norm!r}): of {entries.words} the largest error at an entry is proved; leave `norm` out.")
    if method not in ("auto", "spectral", "lookup"):
        raise BadInput(f'`method` (="{method}") is for functions; for {entries.words} choose auto, spectral or lookup.')


def entries_error(error: Any, relative: bool, target: Target, dtype: str, hard: bool) -> float:
    """The absolute error at the entries; a hard layer may do without one, and then has whatever storing the values costs."""
    largest, unit = target.data.largest, dtype_of(dtype).unit
    most = float(np.finfo(compute_dtype(dtype)).max)
    if not largest < most / 2.0:
        raise Refused(f"values near {largest:.3g} overflow {dtype}, which ends at {most:.3g}; scale the table or use float64.")
    if error is None and hard:
        return 0.0 if dtype == "float64" else 2.0 * unit * largest + dtype_of(dtype).tiny
    wanted = check_error(error) * (largest if relative else 1.0)
    if wanted == 0.0:
        raise Refused("`relative` measures the error in units of the largest |value|, and every value is zero.")
    if not hard and wanted < 4.0 * unit * largest:
        raise Refused(
            f"`error` (={error:g}) is below what {dtype} can hold: values near {largest:.3g} are rounded by "
            f"{unit * largest:.2g}. Ask for at least {8 * unit * largest / (largest if relative else 1.0):.2g}."
        )
    return wanted


def resolve(target: Any, box: Any, vectorize: bool) -> Target:
    """The Target of whatever was given; a text without a box is the name of a gallery entry."""
    if isinstance(target, str) and box is None:
        from maxaffine.target.gallery import gallery

        target = gallery[target]
    return Target.of(target, box, vectorize=vectorize)
