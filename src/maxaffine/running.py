"""How a compiled layer is run on arrays: by a named runtime or its own, and the certificate of each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.rounding import compute_dtype
from maxaffine.proofs import direct_form
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.routes import has_pieces, pieces_of
from maxaffine.runtime import chooser, pieced
from maxaffine.runtime.direct import as_answers

if TYPE_CHECKING:
    from maxaffine.compiled import Compiled


def values(compiled: Compiled, points: Array, runtime: str | None, threads: int | None) -> AnyArray:
    """Values (B, d_out, n_out) at points (B, D) of the box, by the named runtime or the layer's own."""
    if runtime == "direct":
        return direct_form.evaluate(compiled, points, threads)
    if runtime == "pieces":
        made = pieces_of(compiled)
        if isinstance(made, str):
            raise BadInput(f"`runtime` (='pieces') cannot run this layer: {made}.")
        found, layer = pieced.evaluate(made, points, threads), compiled.weights
        return as_answers(found, layer.d_out, layer.n_out, compute_dtype(layer.dtype))
    if runtime == "collapsed" and compiled.reserve is None:
        raise BadInput("`runtime` (='collapsed') cannot run this layer: its certificate leaves no margin for it.")
    return chooser.evaluate(compiled.weights, points, runtime, compiled.reserve, threads)


def direct_on_tensors(compiled: Compiled, *x: Any, outside: str) -> Any:
    """The direct form on tensors of a CUDA device, in their dtype: the target's own formula in one kernel."""
    from maxaffine.runtime import torch_runtime
    from maxaffine.runtime.gpu import launch

    points, single = torch_runtime.as_points(compiled.target, *x, outside=outside)
    if not launch.runs_on(points.device):
        raise BadInput("`runtime` (='direct') takes tensors on a CUDA device, where Triton runs; pass `tensor.numpy()`.")
    if points.requires_grad:
        raise BadInput("`runtime` (='direct') has no gradients; pass `tensor.detach()`, or leave `runtime` out.")
    dtype = points.dtype
    wide = torch_runtime.widened(points)
    made = direct_form.on_device(compiled, torch_runtime.DTYPES[wide.dtype])
    if isinstance(made, str):
        raise BadInput(f"`runtime` (='direct') cannot run this layer: {made}.")
    out = launch.direct_kernel(made, wide.device)(wide.contiguous()).to(dtype)
    out = out.reshape(len(points), *compiled.target.output_shape)
    return out[0] if single else out


def runtimes(compiled: Compiled) -> tuple[str, ...]:
    """The runtimes that can run a layer: the direct form of its target, and its pieces unless those take seconds to make."""
    names = chooser.available(compiled.weights, compiled.reserve or 0.0)
    found = tuple(name for name in names if name != "collapsed" or compiled.reserve is not None)
    more = ["pieces"] if has_pieces(compiled) else []
    return (*found, *more) if direct_form.why_not(compiled) is not None else (*found, *more, "direct")


def certificate_for(compiled: Compiled, runtime: str, dtype: str | None) -> Certificate:
    """The certificate for one runtime alone (and the layer's dtype)."""
    if dtype not in (None, compiled.dtype):
        raise BadInput(f"`dtype` (={dtype!r}) is not this layer's ({compiled.dtype}); compile it in that dtype.")
    if runtime not in ("arrays", "pieces", *runtimes(compiled)):
        names = ", ".join(runtimes(compiled))
        raise BadInput(f"`runtime` (={runtime!r}) cannot run this layer; choose any of {names}.")
    if compiled.certificate.kind != "proved":
        raise Refused(f"nothing is proved of this layer: {compiled.certificate.theorem}.")
    if runtime == "direct":
        return direct_form.certificate_of(compiled)
    if runtime == "pieces" or (runtime == "dense" and compiled.weights.has_clusters):
        found = compiled.statement(runtime)
        if found.bound is None:
            raise Refused(f"{found.why}.")
        rounding = compiled.certificate.parts["rounding"] + found.bound - float(compiled.certificate.bound or 0.0)
        parts = {**compiled.certificate.parts, "rounding": rounding}
        return replace(compiled.certificate, bound=found.bound, parts=parts, runtime=runtime)
    return compiled.certificate if runtime in ("arrays", compiled.certificate.runtime) else compiled.prove(runtime)
