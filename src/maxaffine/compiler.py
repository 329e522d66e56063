"""The driver: propose a plan, build the layer, certify it, ask for more tokens until the proof fits."""

import time
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from maxaffine.compiled import Compiled
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.progress import Progress, silent
from maxaffine.core.rounding import dtype_of
from maxaffine.heads import HEADS
from maxaffine.heads.found import Discontinuous, Found, literal_failure, search_worst
from maxaffine.heads.lookup import search as lookup
from maxaffine.heads.spectral.plan import SpectralPlan
from maxaffine.layer.maxaffine import MaxAffine
from maxaffine.request import (
    Request,
    absolute_error,
    check_breaks,
    check_bytes,
    check_centres,
    check_choice,
    check_error,
    check_executor,
    check_flag,
    check_for_entries,
    check_gap,
    check_hard,
    check_norm,
    check_out,
    check_partition,
    check_power,
    check_scales,
    check_seed,
    entries_error,
    resolve,
)
from maxaffine.target.evidence import Evidence, gather
from maxaffine.target.samples import Samples
from maxaffine.target.table import Table
from maxaffine.validate import validate

METHODS = ("auto", *HEADS)
ENOUGH = 4  # tokens below which no other method is asked
FEW = 256  # tokens below which no slow head is asked in two variables


def compile(
    target: Any,
    box: Any = None,
    *,
    error: float | None = None,
    relative: bool = False,
    norm: float | str = "inf",
    method: str = "auto",
    attention: str = "self",
    dtype: str = "float64",
    literal: bool = False,
    lipschitz: ArrayLike | None = None,
    modulus: Any = None,
    analytic: Any = None,
    derivatives: Any = None,
    breaks: ArrayLike | None = None,
    gap: float | None = None,
    partition: MaxAffine | None = None,
    centres: ArrayLike | None = None,
    require: str | None = None,
    vectorize: bool = False,
    max_bytes: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    out: Any = None,
    executor: Any = None,
    hard: bool = False,
) -> Compiled:
    """Compile a function into one softmax attention layer with ||layer - target|| <= error.

    Args:
        target: an expression such as "sin(x) + cos(y)", a callable on batches (B, D) -> (B,) or (B, K), a sequence
            function (B, d, n) -> (B, d_out, n_out), a Target, or the name of a gallery entry (then `box` may be left out); or a
            Table or Samples, about whose entries alone the certificate speaks (heads/entries/search.py).
        box: a Box or a dictionary of pairs {"x": (-1, 1), "y": (0, 1)}; or two of them (query, context) for a function of two
            inputs.
        error: the error asked for, absolute unless `relative`, which measures it in units of sup |f|.
        norm: "inf" for the sup norm, or p >= 1 for L_p.
        method: "auto" or one of METHODS.
        attention: "self" or "cross", what `matrices()` gives by default.
        dtype: what keys and values are stored and run in.
        literal: whether the literal softmax over all tokens (`matrices()`, MultiheadAttention) is to meet the error as well;
            kinks are softer then, and more tokens may be needed.
        lipschitz: declared constants, one per axis, or one number, the Euclidean constant.
        modulus: a declared modulus w(r) in max_i |x_i - y_i|; ConcaveModulus, TotalVariation or IntegralModulus.
        analytic: declared Analytic(radii, bound) facts.
        derivatives: declared Derivatives(order, bound) facts.
        breaks: where a callable of one variable has kinks, jumps or singular points, in any order.
        gap: in the sup norm, how far from a jump of the target the error is spoken of; a layer is continuous, so closer by no
            error below half the jump can hold.
        partition: a MaxAffine to use instead of a grid.
        centres: points to cover instead of the whole box (Theorem I).
        require: "proved" turns a layer without a proof into a refusal.
        vectorize: call a scalar callable point by point.
        max_bytes: memory the compile may take; by default half of what is free.
        seed: of the search for the observed error.
        progress: a callback progress(stage, done, total).
        out: save the layer here; the values of a large lookup are written as they are made, and mapped from the file afterwards.
        executor: a concurrent.futures.Executor (of processes, of a Dask cluster) that computes the values of a lookup with `out`.
        hard: of a Table or Samples, one token per entry and the nearest of them answers, exactly as SciPy's nearest
            interpolators; `error` may be left out.

    Returns:
        A Compiled layer: call it, look at `.certificate`, `.observed`, `.matrices()`, `.save()`.

    Raises:
        BadInput: an argument is malformed.  Refused: the request cannot be proved, afforded or represented.
    """
    begun = time.perf_counter()
    check_choice("method", method, METHODS)
    check_choice("attention", attention, ("self", "cross"))
    dtype_of(dtype)
    p = check_norm(norm)
    made = resolve(target, box, vectorize)
    of_entries = made.entries is not None
    check_scales(p, made, dtype)
    check_hard(hard, made, method)
    if of_entries:
        facts = {
            "lipschitz": lipschitz, "modulus": modulus, "analytic": analytic, "derivatives": derivatives, "breaks": breaks,
            "gap": gap, "partition": partition, "centres": centres, "executor": executor,
        }  # fmt: skip
        check_for_entries(made, facts, norm, method)
        wanted = entries_error(error, relative, made, dtype, hard)
    else:
        wanted = absolute_error(check_error(error), relative, made, dtype)
        check_power(p, wanted)
    request = Request(
        target=made,
        error=wanted,
        norm=p,
        dtype=dtype,
        evidence=Evidence() if of_entries else gather(made, lipschitz, modulus, analytic, p, derivatives),
        partition=check_partition(partition, made),
        centres=check_centres(centres, made),
        require=check_choice("require", require, (None, "proved")),
        max_bytes=check_bytes(max_bytes),
        seed=check_seed(seed),
        progress=progress or silent,
        breaks=check_breaks(breaks, made),
        gap=check_gap(gap, made),
        out=check_out(out),
        executor=check_executor(executor),
        literal=check_flag("literal", literal),
    )
    if made.inputs == "pair":
        attention = "cross"
    found = _search_entries(request, method, hard) if of_entries else _search(request, method)
    try:
        return _finished(request, found, attention, begun)
    finally:
        if found.pending is not None:
            found.pending.discard()


def _finished(request: Request, found: Found, attention: str, begun: float) -> Compiled:
    """The compiled layer, judged, and saved where that is asked for."""
    rough = literal_failure(found.layer, found.certificate, request)
    if rough is not None:
        raise Refused(f"`literal`: {rough}. Leave it out: the layer itself is proved to {found.certificate.bound:.3g}.")
    observed = found.observed or search_worst(request, found)
    compiled = Compiled(
        target=request.target,
        weights=found.layer,
        certificate=found.certificate,
        observed=observed,
        error=request.error,
        method=found.method,
        attention_kind=attention,
        plan=found.plan.to_json(),
        cost=found.cost,
        evidence=request.evidence,
        spectral=found.plan if isinstance(found.plan, SpectralPlan) else None,
        prove=found.prove,
        declared=request.evidence.declared(),
        seconds=time.perf_counter() - begun,
    )
    validate(compiled)
    if request.out is None:
        return compiled
    if found.pending is not None:
        found.pending.finish(compiled._record()[1])
    else:
        compiled.save(request.out)
    return replace(compiled, file=str(request.out))


def _search_entries(request: Request, method: str, hard: bool) -> Found:
    """The smallest layer that is verified at every entry of a table or of samples, or the nearest entry itself."""
    from maxaffine.heads.entries import search as tables
    from maxaffine.heads.entries import search_samples as table_samples

    data = request.target.data
    if isinstance(data, Table):
        return tables.search_hard(request, data) if hard else tables.search(request, data, method)
    assert isinstance(data, Samples)
    return table_samples.search_hard(request, data) if hard else table_samples.search(request, data, method)


def _search(request: Request, method: str) -> Found:
    """The layer with the fewest tokens whose bound is proved at most `error`; else the smallest one observed to fit."""
    given = request.partition is not None or request.centres is not None
    if method not in ("auto", "lookup") and given:
        raise BadInput(f'`method` "{method}" works on the whole box; leave out `partition` and `centres`.')
    reasons: dict[str, list[str]] = {}
    best: Found | None = None
    if not given and method != "lookup":
        limit = lookup.fewest_tokens(request) if method == "auto" else None
        constant = lookup.constant(request) if method == "auto" else None
        if constant is not None:
            limit = constant.cost.tokens + 1  # a head of as few tokens says more
        for name in (one for one in HEADS if one != "lookup") if method == "auto" else (method,):
            if HEADS[name].slow and method == "auto" and _rarely_better(best, request.target.box.dimension):
                continue
            request.progress(f"{name} heads", 0, 1)
            fewest = limit if best is None else _fewer(best.cost.tokens, limit)
            best = _better(best, attempt(name, request, reasons.setdefault(name, []), fewest))
            if best is not None and best.certificate.kind == "proved" and best.cost.tokens <= max(ENOUGH, request.target.n_out):
                break
        best = _better(best, constant)
        if best is not None:
            return best
        if method != "auto":
            said = _told(reasons[method]) or ["nothing fits"]
            raise Refused.after(f"no {method} head was proved: {said[-1]}.", said[:-1])
    try:
        return lookup.search(request)
    except Refused as refusal:
        tried = [f"{name}: {'; '.join(_told(said))}" for name, said in reasons.items() if said]
        raise Refused.after(str(refusal), tried) from None


def _rarely_better(best: Found | None, dimension: int) -> bool:
    """Whether a tree, the slowest search, would hardly have fewer tokens than what is proved already."""
    return best is not None and best.certificate.kind == "proved" and (dimension > 2 or best.cost.tokens <= FEW)


def attempt(name: str, request: Request, reasons: list[str], fewest: int | None) -> Found | None:
    """What one method finds; a refusal is a reason like others."""
    found: Found | None = None
    try:
        found = HEADS[name].find(request, reasons, fewest)
    except Discontinuous:
        raise
    except Refused as refusal:
        reasons.append(str(refusal).rstrip("."))
    return found


def _fewer(tokens: int, limit: int | None) -> int:
    return tokens if limit is None else min(tokens, limit)


def _better(best: Found | None, found: Found | None) -> Found | None:
    """The proved one, then the one with fewer tokens."""
    if best is None or found is None:
        return best or found
    return min(best, found, key=lambda made: (made.certificate.kind != "proved", made.cost.tokens))


def _told(said: list[str]) -> list[str]:
    """What was tried: the first and the closest attempts."""
    return said if len(said) <= 3 else [said[0], f"{len(said) - 3} more", *said[-2:]]
