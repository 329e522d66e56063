"""The driver: check the request, search for the smallest layer that is proved, look at it, validate it, save it."""

import time
import warnings
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from maxaffine.compiled import Compiled
from maxaffine.core.deadline import OutOfCalls
from maxaffine.core.errors import Refused
from maxaffine.core.threads import one_blas_thread
from maxaffine.heads.found import Found, literal_failure, search_worst
from maxaffine.layer.maxaffine import MaxAffine
from maxaffine.proofs.certificate import Certificate
from maxaffine.request import NEAREST, Request, Run, check_choice, request_of, without_old_names
from maxaffine.search import METHODS, search
from maxaffine.target.calls import Calls
from maxaffine.validate import validate


def compile(
    target: Any,
    box: Any = None,
    *,
    error: float | None = None,
    norm: float | str = "inf",
    relative: bool | str = False,
    dtype: str = "float64",
    method: str = "auto",
    gap: float | None = None,
    keys: MaxAffine | ArrayLike | None = None,
    literal: bool = False,
    require: str | None = None,
    vectorize: bool = False,
    trace: bool = True,
    lipschitz: ArrayLike | None = None,
    modulus: Any = None,
    analytic: Any = None,
    derivatives: Any = None,
    breaks: ArrayLike | None = None,
    run: Run | None = None,
    **deprecated: Any,
) -> Compiled:
    """Compile a function into one softmax attention layer with ||layer - target|| <= error.

    Args:
        target: an expression such as "sin(x) + cos(y)", a callable on batches (B, D) -> (B,) or (B, K), a sequence
            function (B, d, n) -> (B, d_out, n_out), a Target, or the name of a gallery entry (then `box` may be left out); or a
            Table or Samples, of which the error at every entry is proved.
        box: a Box or a dictionary of pairs {"x": (-1, 1), "y": (0, 1)}; or two of them (query, context) for a function of two
            inputs, which is cross-attention.
        error: the error asked for, absolute unless `relative`.
        norm: "inf" for the sup norm, or p >= 1 for L_p.
        relative: True measures `error` in units of sup |f|, "pointwise" in units of |f(x)| at every x, where f has no zero.
        dtype: what keys and values are stored and run in: float64, float32 or bfloat16.
        method: "auto", the name of a head, or "nearest" for a Table or Samples: the nearest entry's value, no `error` needed.
        gap: in the sup norm, exclude points within this distance of a jump, where no continuous layer can follow the target.
        keys: where the keys go instead of a grid: a MaxAffine, whose cells are used, or points (M, D) to cover.
        literal: whether the literal softmax over all tokens (`matrices()`, MultiheadAttention) must meet the error as well;
            kinks are softer then, and more tokens may be needed.
        require: "proved" turns a layer without a proof into a refusal.
        vectorize: call a scalar callable point by point.
        trace: whether a Python function is read first, by calling it with symbols: what it computes becomes an expression, which
            can be proved; what cannot be read is compiled as a black box, and `target.traced` says why.
        lipschitz: declared constants, one per axis, or one number, the Euclidean constant.
        modulus: a declared modulus w(r) in max_i |x_i - y_i|; ConcaveModulus, TotalVariation or IntegralModulus.
        analytic: declared Analytic(radii, bound) facts.
        derivatives: declared Derivatives(order, bound) facts.
        breaks: where a callable of one variable has kinks, jumps or singular points, in any order.
        run: Run(max_bytes, max_seconds, max_calls, seed, progress, executor, out): memory, time, evaluations of a callable, where
            the layer is saved, who is told.

    Returns:
        A Compiled layer: call it, look at `.certificate`, `.observed`, `.matrices()`, `.save()`.

    Raises:
        BadInput: an argument is malformed.  Refused: the request cannot be proved, afforded or represented.
    """
    begun = time.perf_counter()
    method, keys, run, kind = without_old_names(deprecated, method, keys, run, "self")
    check_choice("method", method, (*METHODS, NEAREST))
    try:
        with one_blas_thread():
            request = request_of(
                target, box, error=error, relative=relative, norm=norm, dtype=dtype, method=method, gap=gap, keys=keys,
                literal=literal, require=require, vectorize=vectorize, trace=trace, lipschitz=lipschitz, modulus=modulus,
                analytic=analytic, derivatives=derivatives, breaks=breaks, run=run,
            )  # fmt: skip
            return _compiled(request, method, kind, begun)
    except OutOfCalls as spent:
        raise Refused(f"{spent}; allow more of them.") from None


def _compiled(request: Request, method: str, kind: str, begun: float) -> Compiled:
    """Searched for, finished, and nothing left behind."""
    found: Found | None = None
    try:
        found = search(request, method)
        return _finished(request, found, "cross" if request.target.inputs == "pair" else kind, begun)
    finally:
        if found is not None and found.pending is not None:
            found.pending.discard()
        if isinstance(request.target.calls, Calls):
            request.target.calls.close()


def _read_from(request: Request, certificate: Certificate) -> Certificate:
    """What a certificate says of a function that was read, or why it was not."""
    reading = request.target.traced
    if reading is None:
        return certificate
    if reading.text is not None:
        return replace(certificate, assumptions=(*certificate.assumptions, reading.assumption))
    if certificate.kind != "none":
        return certificate
    warnings.warn(f"nothing is proved of this layer: the function was not read: {reading.why}.", stacklevel=5)
    return replace(certificate, theorem=f"{certificate.theorem}; it was not read as a formula: {reading.why}")


def _finished(request: Request, found: Found, kind: str, begun: float) -> Compiled:
    """The compiled layer, judged, and saved where that is asked for."""
    rough = literal_failure(found.layer, found.certificate, request)
    if rough is not None:
        raise Refused(f"`literal`: {rough}. Leave it out: the layer itself is proved to {found.certificate.bound:.3g}.")
    compiled = Compiled(
        target=request.target,
        weights=found.layer,
        certificate=_read_from(request, found.certificate),
        observed=found.observed or search_worst(request, found),
        error=request.asked(found.certificate),
        method=found.method,
        attention_kind=kind,
        plan=found.plan.to_json(),
        cost=found.cost,
        found=found,
        declared=request.facts.declared.record(),
    )
    validate(compiled)
    calls = request.target.calls
    count = calls.count if isinstance(calls, Calls) else None
    compiled = replace(compiled, seconds=time.perf_counter() - begun, calls=count)
    if request.out is None:
        return compiled
    if found.pending is not None:
        found.pending.finish(compiled._record()[1])
    else:
        compiled.save(request.out)
    return replace(compiled, file=str(request.out))
