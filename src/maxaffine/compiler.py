"""The driver: check the request, then one layer for it (one_layer.py), or a stack of several (stack/)."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from maxaffine.compiled import Compiled
from maxaffine.core.container import read_container
from maxaffine.core.deadline import OutOfCalls
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.promise import kept
from maxaffine.core.threads import one_blas_thread
from maxaffine.expression.grammar import MAX_CHARACTERS
from maxaffine.layer.maxaffine import MaxAffine
from maxaffine.one_layer import one_layer
from maxaffine.proofs.statistical import Statistical
from maxaffine.request import LONGEST, NEAREST, Request, check_choice, request_of, without_old_names
from maxaffine.run import Run
from maxaffine.runtime.parallel import in_passing
from maxaffine.search import METHODS
from maxaffine.stack.saved import is_stack
from maxaffine.stack.search import Layers, check_layers, in_layers, with_offer
from maxaffine.stack.stack import Stack
from maxaffine.target.calls import Calls
from maxaffine.target.contradict import AGAIN, other_when_called_again


@overload
def compile(target: Any, box: Any = None, *, layers: Literal[1] = 1, **asked: Any) -> Compiled: ...
@overload
def compile(target: Any, box: Any = None, *, layers: Layers, **asked: Any) -> Compiled | Stack: ...
def compile(
    target: Any,
    box: Any = None,
    *,
    error: ArrayLike | None = None,
    norm: float | str = "inf",
    relative: bool | str = False,
    dtype: str = "float64",
    method: str = "auto",
    gap: float | None = None,
    keys: MaxAffine | ArrayLike | None = None,
    literal: bool = False,
    layers: Layers = 1,
    require: str | Statistical | None = None,
    vectorize: bool = False,
    trace: bool = True,
    lipschitz: ArrayLike | None = None,
    modulus: Any = None,
    analytic: Any = None,
    derivatives: Any = None,
    breaks: ArrayLike | None = None,
    run: Run | None = None,
    **deprecated: Any,
) -> Compiled | Stack:
    """Compile a function into one softmax attention layer with ||layer - target|| <= error, or a formula into a few of them.

    Args:
        target: an expression such as "sin(x) + cos(y)"; a function of one argument per variable or of batches (B, D) -> (B,) or
            (B, K), sequences (B, d, n) -> (B, d_out, n_out), in NumPy, torch, JAX; a torch module; a formula of SymPy; a Target;
            the name of a gallery entry (`box` may be left out); or a Table or Samples, whose error at every entry is proved.
        box: a Box or a dictionary of pairs {"x": (-1, 1), "y": (0, 1)}; or two of them (query, context) for a function of two
            inputs, which is cross-attention.
        error: the error asked for, absolute unless `relative`; a list gives every output its own.
        norm: "inf" for the sup norm, or p >= 1 for L_p.
        relative: True measures `error` in units of sup |f|, "pointwise" in units of |f(x)| at every x, where f has no zero.
        dtype: what keys and values are stored and run in: float64, float32 or bfloat16.
        method: "auto", the name of a head, or "nearest" for a Table or Samples: the nearest entry's value, no `error` needed.
        gap: in the sup norm, exclude points within this distance of a jump, where no continuous layer can follow the target.
        keys: where the keys go instead of a grid: a MaxAffine, whose cells are used, or points (M, D) to cover.
        literal: whether the literal softmax over all tokens (`matrices()`) must meet the error as well; it may need more tokens.
        layers: 1, or how many layers a formula may be cut into at most, with one proof; "auto": what takes fewest tokens.
        require: "proved", or "statistical" (ma.Statistical(..)), which accepts as well what a draw of fresh points says.
        vectorize: call a scalar callable point by point.
        trace: whether a Python function is read as an expression, by calling it with symbols; `target.traced` says what was read.
        lipschitz: declared constants, one per axis, or one number, the Euclidean constant.
        modulus: a declared modulus w(r) in max_i |x_i - y_i|; ConcaveModulus, TotalVariation or IntegralModulus.
        analytic: declared Analytic(radii, bound) facts.
        derivatives: declared Derivatives(order, bound) facts.
        breaks: where a callable of one variable has kinks, jumps or singular points, in any order.
        run: Run(max_bytes, max_seconds, max_calls, cache, seed, progress, executor, out): how it runs, not what it makes.

    Returns:
        A Compiled layer, or a Stack of several: call it, look at `.certificate`, `.observed`, `.matrices()`, `.save()`.

    Raises:
        BadInput: an argument is malformed.  Refused: the request cannot be proved, afforded or represented.
    """
    begun = time.perf_counter()
    method, keys, run, kind = without_old_names(deprecated, method, keys, run, "self")
    check_choice("method", method, (*METHODS, NEAREST))
    check_layers(layers, method, literal)
    asked = {
        "relative": relative, "norm": norm, "dtype": dtype, "method": method, "gap": gap, "keys": keys, "literal": literal,
        "require": require, "vectorize": vectorize, "trace": trace, "lipschitz": lipschitz, "modulus": modulus,
        "analytic": analytic, "derivatives": derivatives, "breaks": breaks,
        "longest": LONGEST if layers == 1 else MAX_CHARACTERS,
    }  # fmt: skip
    try:
        with one_blas_thread(), in_passing():
            return _compiled(target, box, error, asked, run or Run(), layers, kind, begun)
    except OutOfCalls as spent:
        raise Refused(f"{spent}; allow more of them.") from None


def _compiled(
    target: Any, box: Any, error: Any, asked: dict[str, Any], run: Run, layers: Layers, kind: str, begun: float
) -> Compiled | Stack:
    """One layer or several; a refusal names an error that the same request is served for."""

    def made(request: Request) -> Compiled | Stack:
        if layers != 1:
            return in_layers(request, layers, kind, begun)
        return one_layer(request, asked["method"], kind, begun)

    def again(other: float) -> Compiled | Stack:
        quiet = replace(run, progress=None, out=None, max_seconds=None)
        return made(request_of(target, box, error=other, **asked, run=quiet))

    request: Request | None = None
    try:
        request = request_of(target, box, error=error, **asked, run=run)
        return made(request)
    except Refused as refusal:
        if request is None:
            raise (refusal if callable(target) or error is None else kept(refusal, again, float(np.min(error)))) from None
        _doubt_repeated(request)
        told = refusal
        if error is not None and (request.target.expression is not None or request.target.entries is not None):
            told = refusal.naming(refusal.nearest_error, _unit(request, error, asked["relative"]))
            told = kept(told, again, float(np.min(error)), time.perf_counter() - begun)
        raise (told if layers != 1 else with_offer(_unread(told, request), request, asked["method"])) from None


def _unit(request: Request, error: Any, relative: Any) -> float:
    """The size that errors are measured in, where they are relative to sup |f|."""
    return float(request.error / np.min(error)) if relative is True and request.pointwise is None else 1.0


def _doubt_repeated(request: Request) -> None:
    """BadInput where a callable was refused that does not say the same twice, as far as its calls allow to ask."""
    target, calls = request.target, request.target.calls
    if target.expression is not None or target.entries is not None or not isinstance(calls, Calls):
        return
    if calls.allowed is not None and calls.count + 2 * AGAIN > calls.allowed:
        return
    told = other_when_called_again(replace(target, calls=None).values, target.box, request.error)
    if told is not None:
        raise BadInput(told)


def _unread(refusal: Refused, request: Request) -> Refused:
    """A refusal with the reason why a function was not read, where it was not."""
    reading = request.target.traced
    if reading is None or reading.text is not None:
        return refusal
    reason = f"{refusal.reason.rstrip('.')}. The function was not read as a formula: {reading.why}."
    return Refused(reason, nearest_error=refusal.nearest_error, remedy=refusal.remedy, tried=refusal.tried, sure=refusal.sure)


def load(path: str | Path, check: bool = False) -> Compiled | Stack:
    """The layer or the stack that was saved in a file; `check=True` proves it again first."""
    return Stack.load(path, check) if is_stack(read_container(path)[1]) else Compiled.load(path, check)
