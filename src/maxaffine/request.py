"""What was asked for: the arguments of `compile`, each checked with a sentence of its own."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.budget import allowed
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.progress import Progress, silent
from maxaffine.core.rounding import compute_dtype, dtype_of
from maxaffine.expression.grammar import MAX_CHARACTERS
from maxaffine.layer.maxaffine import MaxAffine
from maxaffine.proofs.certificate import LEAST_INTEGRAL, Certificate
from maxaffine.proofs.pointwise import Pointwise, is_pointwise, pointwise_of
from maxaffine.proofs.statistical import Statistical
from maxaffine.run import RUN, Run, number_of, rule
from maxaffine.target.asked import errors_of
from maxaffine.target.calls import closed_on_failure
from maxaffine.target.counted import counted
from maxaffine.target.evidence import Evidence, Facts, gather
from maxaffine.target.interpolant import Interpolant, first_points
from maxaffine.target.store import kept_shape
from maxaffine.target.target import Target
from maxaffine.tracing.source import target_of

REQUIRE = (None, "proved", "statistical")
NEAREST = "nearest"  # the method of tables and samples that returns the nearest entry's value
FOR_ENTRIES = ("auto", "spectral", "lookup", NEAREST)  # the methods of tables and samples
NARROWEST = 1e-30  # the width of a variable where keys are stored in fewer digits than float64
SMALLEST = 1e-200  # the volume of a box in L_p
LONGEST = 10_000  # characters of an expression for which one layer is looked for
PROBE = 16_384  # points at which layers are looked at before they are proved


@dataclass(frozen=True)
class Request:
    """What was asked for, validated."""

    target: Target
    error: float
    norm: float
    dtype: str
    facts: Facts
    partition: MaxAffine | None = None
    centres: Array | None = None
    require: str | None = None
    statistical: Statistical | None = None  # what a draw must say where nothing is proved
    max_bytes: int | None = None
    seed: int = 0
    progress: Progress = silent
    breaks: tuple[float, ...] | None = None  # of a callable of one variable
    gap: float | None = None  # the error is asked for at points farther than this from a jump
    out: Path | None = None  # where the layer goes; large lookups are written there as they are made
    executor: Any | None = None  # a concurrent.futures.Executor that computes values
    literal: bool = False  # whether the literal softmax over all tokens is to meet the error as well
    largest: float = 0.0  # |f| reaches about that
    max_seconds: float | None = None  # of the search
    seen_spread: float = 0.0  # and f goes that far from its least to its largest value
    errors: tuple[float, ...] | None = None  # of every entry row by row, where they differ; `error` is the smallest
    pointwise: Pointwise | None = None  # where the error is relative to |f(x)|; `error` is absolute all the same

    @cached_property
    def probe(self) -> tuple[Array, Array]:
        """Points of the box (B, D) and the target there (B, d_out, n_out): what a first look at a layer compares."""
        x = self.target.box.sample(PROBE, np.random.default_rng(17))
        return x, self.target.values(x)

    def asked(self, certificate: Certificate) -> float:
        """The error asked for in the measure that a certificate speaks in: absolute, or relative to |f(x)|.

        Of outputs with errors of their own the largest, where each was proved to its own.
        """
        if self.errors is not None and certificate.argument == "outputs":
            return max(self.errors)
        return self.pointwise.error if certificate.pointwise and self.pointwise is not None else self.error

    @property
    def evidence(self) -> Evidence:
        """All that may enter a proof; derived when first asked for."""
        return self.facts.evidence


def request_of(
    target: Any, box: Any = None, *, error: Any, relative: Any = False, norm: Any = "inf", dtype: str = "float64",
    method: str = "auto", gap: Any = None, keys: Any = None, literal: Any = False, require: Any = None, vectorize: bool = False,
    run: Run | None = None, breaks: Any = None, trace: bool = True, longest: int = LONGEST, **facts: Any,
) -> Request:  # fmt: skip
    """The arguments of `compile`, checked; `facts` are lipschitz, modulus, analytic and derivatives.

    `longest`: the characters that an expression may have; one layer is looked for in shorter ones than stacks are.
    """
    dtype_of(dtype)
    p, run = check_norm(norm), run or Run()
    rule(isinstance(run, Run), "run", run, f"must be ma.Run({'=.., '.join(RUN)}=..)")
    rule(isinstance(trace, (bool, np.bool_)), "trace", trace, "must be True or False")
    draw, black_box = _asked_draw(require), run.max_calls is not None or run.cache is not None
    made = _counted(resolve(target, box, vectorize, bool(trace) and not black_box, longest, run.cache), target, run, draw)
    if made.expression is not None and len(made.text or "") > longest:
        raise BadInput(
            f"the expression has {len(made.text or ''):,} characters; at most {longest:,} are read for one layer, and "
            f'{MAX_CHARACTERS:,} for several: `layers="auto"` (--layers auto).'
        )
    with closed_on_failure(made.calls):
        return _request_for(made, run, draw, p, error=error, relative=relative, dtype=dtype, method=method, gap=gap, keys=keys,
                            literal=literal, require=require, norm=norm, breaks=breaks, **facts)  # fmt: skip


def _request_for(
    made: Target, run: Run, draw: Statistical | None, p: float, *, error: Any, relative: Any, norm: Any, dtype: str, method: str,
    gap: Any, keys: Any, literal: Any, require: Any, breaks: Any, **facts: Any,
) -> Request:  # fmt: skip
    """The request about a target whose calls are counted."""
    pointwise = None
    _check_scales(p, made, dtype)
    by_point = is_pointwise(relative, made, p, gap)
    if made.entries is not None:
        functions = {**facts, "breaks": breaks, "gap": gap, "keys": keys, "executor": run.executor}
        _check_for_entries(made, functions, norm, method)
        wanted, given = _entries_error(error, relative, made, dtype, method == NEAREST), Facts(made, Evidence())
        largest, spread, each = 0.0, 0.0, None
    else:
        if method == NEAREST:
            raise BadInput('`method` (="nearest") returns the nearest entry of a Table or of Samples; the target is a function.')
        least, most = seen_range(made, bool(relative))
        largest, spread = max(0.0, float(-least.min()), float(most.max())), float((most - least).max())
        error, each = errors_of(error, made, by_point)
        if by_point:
            _check_overflow(largest, dtype, "target")
            pointwise = pointwise_of(check_error(error), made, dtype)
        wanted = absolute_error(check_error(error), relative, largest, dtype) if pointwise is None else pointwise.absolute
        each = None if each is None else tuple(absolute_error(check_error(one), relative, largest, dtype) for one in each)
        _check_power(p, wanted)
        given = gather(made, norm=p, **{"lipschitz": None, "modulus": None, "analytic": None, **facts})
    rule(isinstance(literal, (bool, np.bool_)), "literal", literal, "must be True or False")
    return Request(
        target=made, error=wanted, norm=p, dtype=dtype, facts=given, largest=largest, seen_spread=spread,
        pointwise=pointwise, errors=each, **_keys(keys, made),
        require=None if draw is not None else check_choice("require", require, REQUIRE), statistical=draw,
        breaks=_check_breaks(breaks, made), gap=check_gap(gap, made),
        literal=bool(literal), max_bytes=None if run.max_bytes is None else int(run.max_bytes), seed=int(run.seed),
        max_seconds=None if run.max_seconds is None else float(run.max_seconds),
        progress=run.progress or silent, executor=run.executor, out=None if run.out is None else Path(run.out),
    )  # fmt: skip


def without_old_names(
    old: Mapping[str, Any], method: str, keys: Any, run: Run | None, matrices: str
) -> tuple[str, Any, Run | None, str]:
    """Method, keys, run and the default of `matrices`, with the keywords that `compile` had before; each warns."""
    new = {"partition": "`keys=`", "centres": "`keys=`", "hard": '`method="nearest"`', "attention": '`layer.matrices("cross")`'}
    new |= {name: f"`run=ma.Run({name}=..)`" for name in RUN}
    for name, value in old.items():
        if name not in new:
            raise TypeError(f"compile() got an unexpected keyword argument {name!r}")
        warnings.warn(f"`{name}=` is deprecated; write {new[name]} instead.", DeprecationWarning, stacklevel=3)
        if name in RUN:
            run = replace(run or Run(), **{name: value})
        elif name == "attention":
            matrices = check_choice(name, value, ("self", "cross"))
        elif name == "hard":
            rule(isinstance(value, bool), name, value, "must be True or False")
            rule(not value or method == "auto", "method", method, "does not go with `hard`; leave one of them out")
            method = NEAREST if value else method
        elif value is not None:
            rule(keys is None, name, value, "does not go with `keys`; leave one of them out")
            keys = value
    return method, keys, run, matrices


def _asked_draw(require: Any) -> Statistical | None:
    """What a draw is asked to say, where a statistical certificate is accepted."""
    return require if isinstance(require, Statistical) else Statistical() if require == "statistical" else None


def check_error(error: Any) -> float:
    """The error as a positive finite number."""
    if error is None:
        raise BadInput("`error` is missing; ask for one such as 1e-3.")
    rule(0.0 < number_of(error) < math.inf, "error", error, "must be a positive finite number; ask for an error such as 1e-3")
    return number_of(error)


def check_norm(norm: Any) -> float:
    """p of the norm, infinite for the sup norm."""
    p = number_of(norm)
    rule(p >= 1.0, "norm", norm, 'must be "inf" or a number p >= 1 of L_p')
    rule(p <= 64.0 or math.isinf(p), "norm", norm, "is above 64; ask for the sup norm instead")
    return p


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """The value, where it is among the choices."""
    known = ", ".join(str(choice) for choice in choices if choice is not None)
    rule(value in choices, name, value, f"is not known; choose one of {known}")
    return value


def check_gap(gap: Any, target: Target) -> float | None:
    """A positive distance below the width of the box, or None."""
    if gap is None:
        return None
    inside = 0.0 < number_of(gap) < float(target.box.width.min())
    rule(inside, "gap", gap, "must be a positive distance below the width of the box, such as 1e-6")
    return number_of(gap)


def _check_scales(p: float, target: Target, dtype: str) -> None:
    """What is too narrow for the keys of a dtype, or too small or large to be integrated."""
    box = target.box
    thin = int(box.width.argmin())
    if dtype != "float64" and box.width[thin] < NARROWEST:
        raise Refused(
            f"`box`: the edges of `{box.names[thin]}` (={box.low[thin]:g}, {box.high[thin]:g}) lie {box.width[thin]:.3g} apart, "
            f"and {dtype} needs at least {NARROWEST:g}; scale the variable, or use float64.",
            remedy={"dtype": "float64"},
        )
    if math.isfinite(p) and not SMALLEST <= box.volume <= 1.0 / SMALLEST:
        raise Refused(
            f"`norm` (={p:g}) integrates over the box, whose volume {box.volume:.3g} is beyond what float64 can integrate "
            f"({SMALLEST:g} to {1.0 / SMALLEST:g}); scale the variables, or ask for the sup norm.",
            remedy={"norm": "inf"},
        )


def _check_power(p: float, error: float) -> None:
    """In L_p the p-th power of the error must be a number that float64 can integrate."""
    if math.isfinite(p) and error < LEAST_INTEGRAL ** (1.0 / p):
        raise Refused(
            f"`error` (={error:g}) is below what float64 can integrate in L_{p:g}: its power {p:g} is below {LEAST_INTEGRAL:g}.",
            nearest_error=LEAST_INTEGRAL ** (1.0 / p),
        )


def _check_breaks(breaks: Any, target: Target) -> tuple[float, ...] | None:
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
    inside = np.isfinite(points).all() and ((low <= points) & (points <= high)).all()
    rule(bool(inside), "breaks", points.tolist(), f"must lie in the box [{low:g}, {high:g}]")
    return tuple(float(point) for point in points if low < point < high)


def _keys(keys: Any, target: Target) -> dict[str, Any]:
    """Cells to use (a MaxAffine) or points to cover (M, D), as `Request` calls them."""
    D = target.box.dimension
    if keys is None:
        return {}
    if isinstance(keys, MaxAffine):
        if keys.A.shape[1] != D:
            raise BadInput(f"`keys`: the MaxAffine has {keys.A.shape[1]} variables and the box {D}.")
        return {"partition": keys}
    try:
        points = np.asarray(keys, dtype=np.float64)
    except (TypeError, ValueError):
        points = np.zeros(0)
    if points.ndim != 2 or points.shape[1] != D or len(points) == 0 or not np.isfinite(points).all():
        raise BadInput(f"`keys` must be a MaxAffine or finite points of shape (M, {D}), at least one; not {_what(keys)}.")
    if not target.box.contains(points).all():
        raise BadInput("`keys` has points outside the box; enlarge the box or leave them out.")
    return {"centres": points}


def _what(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"an array of shape {shape}" if shape is not None else repr(value)[:60]


def seen_range(target: Target, relative: bool = False) -> tuple[Array, Array]:
    """The least and the largest value (K,) at a thousand points, so that sup f - inf f is surely as large.

    Of a callable at the points that are looked at in any case, unless the error asked for depends on it (`relative`).
    """
    x = np.concatenate([target.box.sample(1024, np.random.default_rng(0)), target.box.centre[None]])
    if target.expression is None:
        x = np.concatenate([first_points(target), x]) if relative else first_points(target)
    if target.expression is not None:
        found = target.enclose(x, x)
        least, most = (np.where(np.isfinite(end), end, 0.0) for end in (found.hi, found.lo))
    else:
        least = most = target.values(x)
    return least.reshape(len(x), -1).min(axis=0), most.reshape(len(x), -1).max(axis=0)


def absolute_error(error: float, relative: bool, largest: float, dtype: str) -> float:
    """The absolute error for a target whose largest |value| is about `largest`; refused where the dtype cannot hold it."""
    _check_overflow(largest, dtype, "target")
    if relative and largest == 0.0:
        raise Refused("`relative` measures the error in units of sup |f|, and f is zero at every point that was tried.")
    return _held(error, largest if relative else 1.0, 2.0, largest, dtype)


def _check_overflow(largest: float, dtype: str, what: str) -> None:
    most = float(np.finfo(compute_dtype(dtype)).max)
    if not largest < most / 2.0:
        raise Refused(f"values near {largest:.3g} overflow {dtype}, which ends at {most:.3g}; scale the {what} or use float64.")


def _held(error: float, scale: float, units: float, largest: float, dtype: str) -> float:
    """error * scale, where it is at least so many roundings of the largest value."""
    rounding, smallest = dtype_of(dtype).unit * largest, float(np.finfo(compute_dtype(dtype)).smallest_subnormal)
    if largest > 0.0 and error * scale < smallest:
        other = "" if dtype == "float64" else " or use float64"
        raise Refused(
            f"`error` (={error * scale:.3g}) underflows {dtype}, whose numbers begin at {smallest:.2g}; scale the target{other}."
        )
    if error * scale < units * rounding:
        raise Refused(
            f"`error` (={error:g}) is below what {dtype} can represent: values near {largest:.3g} are rounded by {rounding:.2g}.",
            nearest_error=2.0 * units * rounding / scale,  # not refused at once; whether it can be proved is another question
        )
    return error * scale


def _check_for_entries(target: Target, functions: Mapping[str, Any], norm: Any, method: str) -> None:
    """What makes no sense for a table or samples: facts about functions, places for keys, other norms and methods."""
    entries = target.entries
    assert entries is not None
    if isinstance(target.data, type(entries)):
        raise BadInput(f"of this {entries.kind} only its record is left; make the {entries.kind} again.")
    for name, value in functions.items():
        if value is not None:
            raise BadInput(f"`{name}` is about functions, and the target is {entries.words}; leave it out.")
    if norm not in ("inf", math.inf):
        raise BadInput(f"`norm` (={norm!r}): of {entries.words} the largest error at an entry is proved; leave `norm` out.")
    if method not in FOR_ENTRIES:
        known = ", ".join(FOR_ENTRIES)
        raise BadInput(f'`method` (="{method}") is for functions; for {entries.words} choose one of {known}.')


def _entries_error(error: Any, relative: bool, target: Target, dtype: str, nearest: bool) -> float:
    """The absolute error at the entries; the nearest entry may do without one, and then has whatever storing it costs."""
    largest, unit = target.data.largest, dtype_of(dtype).unit
    _check_overflow(largest, dtype, "table")
    if error is None and nearest:
        return 0.0 if dtype == "float64" else 2.0 * unit * largest + dtype_of(dtype).tiny
    if relative and largest == 0.0:
        raise Refused("`relative` measures the error in units of the largest |value|, and every value is zero.")
    return _held(check_error(error), largest if relative else 1.0, 0.0 if nearest else 4.0, largest, dtype)


def _counted(made: Target, given: Any, run: Run, draw: Statistical | None) -> Target:
    """A callable whose evaluations are counted, limited, kept and sent out; half of the limit may be kept for a draw."""
    if made.expression is not None or made.entries is not None or isinstance(made.calls, Interpolant):
        for name, value in (("max_calls", run.max_calls), ("cache", run.cache)):
            rule(value is None, name, value, "is about callables, and the target is none; leave it out")
        return made
    most = None if run.max_calls is None else int(run.max_calls)
    reserve = 0 if draw is None or most is None else min(draw.points(), most // 2)
    room, tell = allowed(run.max_bytes) / 4, run.progress or silent
    return counted(made, made is not given, most, room, run.cache, run.executor, reserve, tell)


def resolve(target: Any, box: Any, vectorize: bool, trace: bool = True, longest: int = LONGEST, cache: Any = None) -> Target:
    """The Target of whatever was given; a text without a box is the name of a gallery entry; functions are read by tracing."""
    if isinstance(target, str) and box is None:
        from maxaffine.target.gallery import gallery

        target = gallery[target]
    kept = kept_shape(cache, vectorize) if cache is not None and callable(target) else None
    return target_of(target, box, vectorize=vectorize, trace=trace, longest=longest, shape=kept)
