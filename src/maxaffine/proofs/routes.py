"""Routes: every way a user can run a layer, and what is proved of each.

    arrays                          layer(x), and `maxaffine eval`
    parts .. blocked, nearest       layer(x, runtime=..)
    pieces                          layer(x, runtime="pieces"): clusters as short polynomials, within a bound of their own
    direct                          layer(x, runtime="direct"): the target's own formula, with a bound of its own
    tensors                         layer(t) for tensors of PyTorch, with gradients, and by runtime="factorised"
    module                          layer.to_torch(), by the structure; all inside in float64
    kernel module                   layer.to_torch(form="kernel"): one operator, answered as tensors are
    literal module, multihead       layer.to_torch(form="literal"), layer.to_multihead_attention()
    matrices                        layer.matrices(), multiplied by hand in float64
    onnx, literal onnx              layer.to_onnx(), by the structure or by the Attention operator
    safetensors                     the attention.* tensors of layer.to_safetensors(), by their schema
    attention                       layer.attention(x), the weights themselves

What follows the structure (one softmax per direction, two levels for clusters) is proved to the bound of the layer, rounding
included.  The literal forms have a bound of their own (proofs/literal.py).  What a route adds (a kernel, float32 numbers that
come out of a float64 layer) is added.  Nothing here is proved anew but the direct form, which owes nothing to the layer
(proofs/direct.py): a statement is arithmetic on what was proved.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from maxaffine.core import boxes
from maxaffine.core.budget import count_text
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import BFLOAT16, FLOAT16, FLOAT32, Dtype, compute_format
from maxaffine.layer.side_by_side import AnyLayer
from maxaffine.proofs import direct_form
from maxaffine.proofs.assumptions import LITERAL_SOFTMAX
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.combine import token_values
from maxaffine.proofs.literal import literal, literal_parts
from maxaffine.proofs.pointwise import per_size
from maxaffine.proofs.side_by_side import over_entries, scale_of
from maxaffine.proofs.statement import NO_GRADIENT, NONE, Statement
from maxaffine.runtime import chooser, pieced
from maxaffine.runtime.gpu.choice import choose as choose_kernel
from maxaffine.runtime.gpu.choice import tolerance as kernel_tolerance
from maxaffine.target.target import Target

RAISES = 'an error is raised; outside="clamp" takes the nearest point of the box'
CLAMPS = "queries are moved to the nearest point of the box; not-a-number stays what it is"
UNSAID = "nothing is said outside the box"
RUNTIMES = ("parts", "collapsed", "windowed", "two-level", "factorised", "dense", "blocked", "nearest")
TENSORS = ("tensors", "tensors with gradients", "factorised tensors")
OPERATOR = "kernel module"
LITERAL = ("dense", "literal module", "multihead", "matrices", "literal onnx", "safetensors")
ROUGHER = 1.8  # what the checker, which takes heads at entries over the whole box there, counts up to 2.1 times
NARROW = {"bfloat16": BFLOAT16, "float16": FLOAT16}  # of tensors: computed with in float32
LARGEST = {"float32": 3.4e38, "bfloat16": 3.3e38, "float16": 65000.0}  # answers that are finite there
UNDRAWN = "the draw was made through layer(x), and says nothing of other ways to run the layer"
DIFFERENT = "the nearest entry answers; the softmax is another function"


@dataclass(frozen=True)
class Route:
    """A way to run a layer: its name, how a user takes it, the dtypes it comes in, and what happens outside the box."""

    name: str
    how: str
    dtypes: tuple[str, ...]  # of the arithmetic that is asked for; "own" is the layer's
    outside: str
    gradient: bool = False
    devices: tuple[str, ...] = ("cpu",)


ROUTES: dict[str, Route] = {
    route.name: route
    for route in (
        Route("arrays", "layer(x)", ("own",), RAISES),
        *(Route(name, f'layer(x, runtime="{name}")', ("own",), RAISES) for name in RUNTIMES),
        Route("pieces", 'layer(x, runtime="pieces")', ("own",), RAISES),
        Route("direct", 'layer(x, runtime="direct")', ("own",), RAISES),
        Route("tensors", "layer(tensor)", ("float64", "float32"), RAISES, devices=("cpu", "cuda")),
        Route(
            "tensors with gradients", "layer(tensor.requires_grad_())", ("float64", "float32"), RAISES, True, ("cpu", "cuda")
        ),
        Route(
            "factorised tensors", 'layer(tensor, runtime="factorised")', ("float64", "float32"), RAISES, True, ("cpu", "cuda")
        ),
        Route("direct tensors", 'layer(tensor, runtime="direct")', ("float64", "float32"), RAISES, devices=("cuda",)),
        Route("module", "layer.to_torch()", ("own",), CLAMPS, True, ("cpu", "cuda")),
        Route(OPERATOR, 'layer.to_torch(form="kernel")', ("float64", "float32"), CLAMPS, True, ("cpu", "cuda")),
        Route("literal module", 'layer.to_torch(form="literal")', ("own",), CLAMPS, True, ("cpu", "cuda")),
        Route("multihead", "layer.to_multihead_attention()", ("own",), CLAMPS, True, ("cpu", "cuda")),
        Route("matrices", "layer.matrices()", ("float64",), UNSAID),
        Route("onnx", "layer.to_onnx(path)", ("own",), CLAMPS),
        Route("literal onnx", 'layer.to_onnx(path, form="literal")', ("own",), CLAMPS),
        Route("safetensors", "layer.to_safetensors(path)", ("float64",), CLAMPS),
        Route("attention", "layer.attention(x)", ("own",), RAISES),
    )
}  # fmt: skip


class Source(Protocol):
    """What statements are made of: a compiled or loaded layer."""

    @property
    def target(self) -> Target: ...  # noqa: D102
    @property
    def weights(self) -> AnyLayer: ...  # noqa: D102
    @property
    def certificate(self) -> Certificate: ...  # noqa: D102
    @property
    def error(self) -> float: ...  # noqa: D102
    @property
    def errors(self) -> tuple[float, ...] | None: ...  # noqa: D102
    @property
    def reserve(self) -> float | None: ...  # noqa: D102
    @property
    def literal(self) -> Mapping[str, float | str]: ...  # noqa: D102
    @property
    def standing(self) -> str: ...  # noqa: D102


def literal_bounds(layer: AnyLayer, certificate: Certificate) -> dict[str, float | str]:
    """Of the literal forms, per arithmetic: a bound, or why there is none; for compiled layers, whose proofs are at hand."""
    own = compute_format(layer.dtype).name
    found: dict[str, float | str] = {}
    for arithmetic in dict.fromkeys(("float64", own)):
        if certificate.bound is None:
            found[arithmetic] = certificate.theorem if certificate.drawn is None else UNDRAWN
        elif certificate.runtime == "hard":
            found[arithmetic] = DIFFERENT
        else:
            try:
                found[arithmetic] = literal_bound(layer, certificate, arithmetic)
            except Refused as refusal:
                found[arithmetic] = str(refusal).rstrip(".")
    return found


def literal_bound(layer: AnyLayer, certificate: Certificate, arithmetic: str) -> float:
    """Of the literal form in one arithmetic; of layers side by side the largest over entries, parts added up."""
    assert certificate.bound is not None
    if layer.several:
        added = literal_parts(layer, [one.blends for one in certificate.within], arithmetic)
        width, bounds = layer.high - layer.low, []
        for part, one, more in zip(layer.parts, certificate.within, added, strict=True):
            assert one.bound is not None
            scale = scale_of(width, part.layer.high - part.layer.low, certificate.norm, one.norm)
            bounds.append(float(scale * (one.bound + more.total * counted(part.layer, one)) * (1 + 1e-12)))
        return float(over_entries(layer, bounds).max())
    more_here = literal(layer, certificate.blends, arithmetic).total * counted(layer, certificate)
    more_here *= ROUGHER if certificate.scope.over == "entries" else 1.0
    return (certificate.bound + more_here) * (1 + 1e-12)


def counted(layer: AnyLayer, certificate: Certificate) -> float:
    """What an absolute error at a point costs in the norm of the certificate: 1, |box|^(1/p), or one by the least |f|."""
    if math.isinf(certificate.norm):
        return per_size(certificate)
    return float(float(np.prod(layer.high - layer.low)) ** (1.0 / certificate.norm)) * (1 + 1e-12)


def narrow_tolerance(source: Source) -> float:
    """What polynomials of a kernel may differ from the layer by: an eighth of the error, or half of what is left.

    Where the outputs have errors of their own, the smallest is served.
    """
    bound, per = source.certificate.bound, per_size(source.certificate)
    left = source.error if bound is None else max(source.error - bound, 0.0)
    share = min(source.errors) / source.error if source.errors else 1.0
    return max(min(source.error / 8.0, left / 2.0) * share / per, source.reserve or 0.0)


def pieces_of(source: Source) -> pieced.Program | str:
    """The polynomials that a layer of clusters runs by on the CPU if it is asked to, or why there are none."""
    layer = source.weights
    why = pieced.why_not(layer)
    if why is not None:
        return why
    assert layer.grouped and not layer.several
    return pieced.program(layer, narrow_tolerance(source))


def has_pieces(source: Source) -> bool:
    """Whether a layer is known to have pieces, where that takes no more than a moment."""
    layer = source.weights
    return pieced.why_not(layer) is None and pieced.is_quick(layer) and not isinstance(pieces_of(source), str)


def statement(source: Source, route: str = "arrays", dtype: str | None = None, device: str = "cpu") -> Statement:
    """What is proved of one route, in one arithmetic and on one device."""
    if route not in ROUTES:
        raise BadInput(f"`route` (={route!r}) is not known; choose one of {', '.join(ROUTES)}.")
    if device not in ("cpu", "cuda"):
        raise BadInput(f'`device` (={device!r}) must be "cpu" or "cuda".')
    found, own = ROUTES[route], compute_format(source.weights.dtype).name
    allowed = [own if one == "own" else one for one in found.dtypes]
    allowed += [*NARROW] if route in (*TENSORS, OPERATOR) else []
    chosen = allowed[0] if dtype is None else dtype
    if chosen not in allowed:
        raise BadInput(f"`dtype` (={dtype!r}) is not one of this route's ({', '.join(allowed)}).")
    made = _made(source, found, chosen, device)
    if made.covered and source.standing == "stated":
        return Statement(**{**made.__dict__, "why": f"{made.why}; stated in the file, not checked"})
    return made


def statements(source: Source, devices: tuple[str, ...] = ("cpu", "cuda")) -> list[Statement]:
    """All routes of a layer, in every dtype and on the devices they have, those that cannot run it left out."""
    found = []
    own = compute_format(source.weights.dtype).name
    for route in ROUTES.values():
        if route.name in RUNTIMES and _runtime(route.name) not in chooser.available(source.weights, source.reserve or 0.0):
            continue
        if route.name.startswith("direct") and direct_form.why_not(source) is not None:
            continue
        if route.name == "pieces" and not has_pieces(source):
            continue
        for device in (one for one in route.devices if one in devices):
            found += [statement(source, route.name, own if one == "own" else one, device) for one in route.dtypes]
    return found


def _runtime(route: str) -> str:
    return "hard" if route == "nearest" else route


def _made(source: Source, route: Route, dtype: str, device: str) -> Statement:
    certificate, layer = source.certificate, source.weights
    more: dict[str, Any] = {
        "device": device, "norm": certificate.norm_label, "outside": route.outside,
        "gradient": NO_GRADIENT if route.gradient else NONE,
    }  # fmt: skip

    def refuse(why: str) -> Statement:
        return Statement.not_covered(route.name, dtype, why, **more)

    def prove(parts: dict[str, float], why: str, assumed: tuple[str, ...] = ()) -> Statement:
        bound = math.fsum(parts.values()) * (1 + 2.0**-50) if len(parts) > 1 else next(iter(parts.values()))
        return Statement(route.name, dtype, bound, why, parts, assumptions=(*certificate.assumptions, *assumed), **more)

    if certificate.drawn is not None:
        own = route.name in ("arrays", chooser.choose(layer, source.reserve)[0])
        if own or (route.name == "tensors" and device == "cpu" and dtype == layer.dtype == "float64"):
            said = refuse("as it ran for the draw" if own else "as arrays are")
            return replace(said, statistical=certificate.drawn.words, assumptions=certificate.assumptions)
        return refuse(UNDRAWN)
    if certificate.bound is None:
        return refuse(certificate.theorem)
    if route.name == "direct tensors":
        if device != "cuda":
            return refuse("it runs on a CUDA device")
        there = direct_form.on_device(source, dtype)
        if isinstance(there, str):
            return refuse(there)
        return replace(prove({"direct": there.bound}, direct_form.ON_DEVICE), assumptions=direct_form.ASSUMED)
    if route.name == "direct":
        made = direct_form.form(source)
        if isinstance(made, str):
            return refuse(f"it cannot run this layer: {made}")
        return replace(prove({"direct": made.bound}, direct_form.THEOREM), assumptions=direct_form.ASSUMED)
    if route.name == "pieces":
        pieces = pieces_of(source)
        if isinstance(pieces, str):
            return refuse(f"it cannot run this layer: {pieces}")
        parts = {"layer": certificate.bound, "pieces": pieces.bound * counted(layer, certificate)}
        if layer.dtype == "float32":
            parts["output"] = _rounded_output(source, FLOAT32, math.fsum(parts.values()))
        return prove(parts, f"{pieces.words} instead of {count_text(layer.tokens)} exponentials")
    if route.name == "attention":
        return refuse("no bound is stated for single weights; each row sums to one up to rounding")
    if route.name in RUNTIMES:
        why = chooser.RUNTIMES[_runtime(route.name)].why_not(layer, chooser.How(source.reserve or 0.0))
        if why is not None:
            return refuse(f"it cannot run this layer: {why}")
        if route.name == "collapsed" and source.reserve is None:
            return refuse("the certificate leaves no margin for a collapse")
    hard = certificate.runtime == "hard"
    if hard and route.name not in ("arrays", "nearest", "tensors", "tensors with gradients", OPERATOR):
        return refuse(DIFFERENT)
    if route.name in LITERAL and not (route.name == "dense" and dense_is_counted(layer, certificate.argument)):
        bound = source.literal.get(dtype, "nothing is stated of it")
        if isinstance(bound, str):
            return refuse(bound)
        parts = {"layer": certificate.bound, "literal softmax": max(bound - certificate.bound, 0.0)}
        return prove(parts, "the literal softmax in this arithmetic", (LITERAL_SOFTMAX,))
    parts = {"layer": certificate.bound}
    if route.name in (*TENSORS, OPERATOR):
        return _tensors(source, route, dtype, device, parts, prove, hard)
    if route.name in ("module", "onnx"):
        return prove(parts, "computed by the structure of the layer, in float64 inside")
    return prove(parts, "the bound of the layer")


def dense_is_counted(layer: AnyLayer, argument: str) -> bool:
    """Whether the bound of the layer counts what the softmax over all tokens loses in NumPy."""
    if not layer.grouped or layer.several:
        return not layer.grouped
    counted = argument != "separated" and not layer.has_clusters
    return counted and all(group.factors is None or group.is_plain for group in layer.products())


def _tensors(
    source: Source, route: Route, dtype: str, device: str, parts: dict[str, float],
    prove: Callable[[dict[str, float], str], Statement], hard: bool,
) -> Statement:  # fmt: skip
    """Tensors: by a kernel where a device has one, else as arrays are or through PyTorch's operations in float64."""
    layer = source.weights
    narrow = dtype if dtype in NARROW else None
    dtype = "float32" if narrow else dtype
    rounded = dtype == "float32" and layer.dtype == "float64"

    def ended(parts: dict[str, float]) -> dict[str, float]:
        if narrow is None:
            return parts
        return {**parts, "tensor": _rounded_output(source, NARROW[narrow], math.fsum(parts.values()))}

    if device == "cuda" and not hard and route.name != "factorised tensors":
        tolerance = kernel_tolerance(layer, dtype, narrow_tolerance(source), source.reserve or 0.0)
        try:
            name, reason, kernel = choose_kernel(layer, dtype, tolerance)
            kept = kernel.bound * counted(layer, source.certificate)
            last = f", and rounded to {narrow} at the end" if narrow else ""
            return prove(ended({**parts, "kernel": kept}), f"the {name} kernel: {reason}{last}")
        except Refused:
            pass
    wide = device == "cuda" or route.name in TENSORS[1:]
    why = "the nearest entry" if hard else "computed in float64" if wide else "as arrays are"
    if rounded:
        parts = {**parts, "output": _rounded_output(source, FLOAT32, parts["layer"])}
        why += ", and rounded to float32 at the end"
    why += f", then to {narrow}" if narrow else ""
    return prove(ended(parts), why)


def _rounded_output(source: Source, to: Dtype, off: float) -> float:
    """What rounding an answer that is off by so much to a narrower dtype adds, in the norm of its certificate."""
    certificate, layer = source.certificate, source.weights
    size = _size(source.target, layer)
    if certificate.pointwise:  # relative to the answer itself, but for the smallest numbers
        if not size * (1.0 + off) < LARGEST[to.name]:
            return math.inf
        return (to.unit * (1.0 + off) + to.tiny * counted(layer, certificate)) * (1 + 1e-12)
    if not size + off < LARGEST[to.name]:
        return math.inf
    return (to.unit * (size + off) + (0.0 if to is FLOAT32 else to.tiny)) * (1 + 1e-12) * counted(layer, certificate)


def _size(target: Target, layer: AnyLayer) -> float:
    """A bound of |f| over the box: by enclosures on equal boxes, or what the tokens of the layer can say."""
    seen = math.inf
    D = len(layer.low)
    if target.expression is not None:
        low, high = boxes.grid(layer.low, layer.high, {1: 64, 2: 16, 3: 6}.get(D, 2) if D <= 12 else 1)
        with np.errstate(all="ignore"):
            found = target.enclose(low, high)
        magnitude = found.magnitude if isinstance(found, Interval) else np.array([math.inf])
        seen = float(magnitude.max()) if np.isfinite(magnitude).all() else math.inf
    return min(seen, most_said(layer))


def most_said(layer: AnyLayer) -> float:
    """A bound of |F| over the box from the values of tokens alone."""
    if layer.several:
        return float(over_entries(layer, [token_values(part.layer) for part in layer.parts]).max())
    return token_values(layer) if layer.grouped else float(layer.largest)
