"""Which stack: a formula is cut in several ways, and the one of fewest tokens that is proved is kept."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from maxaffine.checker.proved import NotProved
from maxaffine.checker.stack import doubt_identity
from maxaffine.compiled import Compiled
from maxaffine.core.deadline import OutOfTime, deadline, extended
from maxaffine.core.deadline import check as check_time
from maxaffine.core.errors import BadInput, Refused, TimeOver
from maxaffine.expression.expression import Expression
from maxaffine.heads.found import must_hold
from maxaffine.one_layer import one_layer
from maxaffine.proofs.assumptions import ELEMENTARY
from maxaffine.proofs.certificate import Certificate
from maxaffine.request import Request, request_of
from maxaffine.run import Run
from maxaffine.stack.cut import REWRITES, STYLES, cut
from maxaffine.stack.cutting import Cutting
from maxaffine.stack.evaluate import outputs
from maxaffine.stack.heads import Made, Shop
from maxaffine.stack.literal import literal_of
from maxaffine.stack.observe import observe
from maxaffine.stack.ranges import UP, Unbounded
from maxaffine.stack.ridges import Uncut
from maxaffine.stack.split import Proof, Share, foreseen, made
from maxaffine.stack.stack import Stack, node_proofs
from maxaffine.structure.stacked import AffineMap
from maxaffine.target.box import Box

Layers = int | Literal["auto"]

THEOREM = "stacks: error <= sum over nodes of W eps, eps the error of its head, W from enclosed slopes of all that follows"
WORTH = 1.35  # predicted tokens, in units of the fewest, up to which a cutting is carried out as well
LEAST, HELD = 2.0**-45, 2.0**-41  # of its size: what no head is proved to, and what most are, in float64
GRID = 9  # points per direction for the size of a function
ALONE = 2  # variables up to which one layer is tried before a stack
OFFERED = 2.0  # seconds in which a stack is foreseen where one layer is refused
BEFORE = 0.5  # of the time, which that may take


@dataclass(frozen=True)
class Foreseen:
    """A cutting with its predicted share of the error and tokens."""

    style: str
    cutting: Cutting
    share: Share
    tokens: float
    depth: int


def check_layers(layers: Any, method: str, literal: Any) -> None:
    """The argument `layers`, and what does not go with it."""
    whole = isinstance(layers, int) and not isinstance(layers, bool) and 1 <= layers <= 1_000
    if layers != "auto" and not whole:
        raise BadInput(f'`layers` (={layers!r}) must be a whole number from 1 to 1000, or "auto".')
    if layers != 1 and method != "auto":
        raise BadInput(f'`layers` (={layers!r}) goes with `method="auto"`: every node of a stack takes the head that suits it.')
    if layers != 1 and literal is not False:
        raise BadInput(
            '`literal` is about one layer; of a stack `statement("matrices")` says what is proved of its literal form.'
        )


def why_not(request: Request) -> str | None:
    """Why no stack serves a request; None where one may."""
    target = request.target
    if target.expression is None:
        return "stacks are compiled from expressions; the target is " + ("a table" if target.entries else "a Python function")
    if target.expression.count != 1 or target.inputs != "points" or target.output_shape != ():
        return (
            "stacks are compiled from expressions of one output at points of a box; "
            "compile every output by itself, or in one layer with `layers=1`"
        )
    if math.isfinite(request.norm) or request.pointwise is not None:
        return "stacks are proved in the sup norm"
    if request.dtype != "float64":
        return f"stacks are stored in float64 (`dtype` is {request.dtype}); leave `dtype` out, and give it float32 tensors"
    if request.gap is not None or request.partition is not None or request.centres is not None:
        return "`gap` and `keys` are about one layer"
    return None


# ---------------------------------------------------------------------- what it would take


def candidates(request: Request, most: int | None = None) -> tuple[list[Foreseen], list[str]]:
    """The cuttings with their predicted tokens, fewest first, and why others do not serve."""
    target, reasons = request.target, list[str]()
    assert target.expression is not None
    found: list[Foreseen] = []
    for style in STYLES:
        check_time()
        try:
            cutting = cut(target.expression, target.box, style)
            if not cutting.names or any(one.cutting == cutting for one in found):
                continue
            depth = cutting.depth
            if most is not None and depth > most:
                reasons.append(f"{style}: {depth} layers, more than `layers` (={most})")
                continue
            share, tokens = foreseen(cutting, target.box, request.error)
            found.append(Foreseen(style, cutting, share, tokens, depth))
        except (Uncut, Unbounded, Refused) as failure:
            if style.partition(", ")[2] not in REWRITES or not isinstance(failure, Uncut):
                reasons.append(f"{style}: {getattr(failure, 'reason', failure)}")
    return sorted(found, key=lambda one: one.tokens), reasons


def with_offer(refusal: Refused, request: Request, method: str) -> Refused:
    """The refusal of one layer, with what a stack would take where that is foreseen."""
    if method != "auto" or why_not(request) is not None:
        return refusal
    try:
        with extended(OFFERED):
            found, _ = candidates(request)
    except (Refused, BadInput, ArithmeticError, ValueError, OutOfTime):
        return refusal
    best = next((one for one in found if (len(one.cutting.names) > 1 or one.depth > 1) and one.tokens < 1e4), None)
    if best is None:
        return refusal
    offer = f"{refusal.reason.rstrip('.')}. A stack is foreseen: {best.depth} layers of about {round(best.tokens)} tokens in all."
    return Refused(offer, nearest_error=refusal.nearest_error, remedy={"layers": "auto"}, tried=refusal.tried)


# ---------------------------------------------------------------------- making it


def in_layers(request: Request, layers: Layers, kind: str, begun: float) -> Compiled | Stack:
    """One layer or a stack of at most so many, whichever is proved with fewer tokens."""
    why = why_not(request)
    if why is not None and layers != "auto":
        raise Refused(f"`layers` (={layers}): {why}.", remedy={"layers": 1})
    if why is not None:
        return _alone(request, kind, begun, why)
    if _is_affine(request):
        return one_layer(request, "auto", kind, begun)  # there is nothing to cut
    with deadline(request.max_seconds):
        return _one_or_several(request, layers, kind, begun)


def _one_or_several(request: Request, layers: Layers, kind: str, begun: float) -> Compiled | Stack:
    """In few variables one layer first; a stack, and where there is none one layer."""
    alone: Compiled | None = None
    first = layers == "auto" and request.target.box.dimension <= ALONE
    if first:
        share = None if request.max_seconds is None else BEFORE * request.max_seconds
        try:
            with deadline(share):
                alone = one_layer(replace(request, out=None, max_seconds=None), "auto", kind, begun)
        except (Refused, OutOfTime):
            alone = None
    try:
        found = stack_of(request, None if layers == "auto" else int(layers), begun)
    except Refused as refusal:
        if alone is None and layers == "auto" and (not first or isinstance(refusal, TimeOver)):
            return _last(request, kind, begun, refusal)
        if alone is None:
            raise
        found = None
    if found is None or (alone is not None and alone.tokens <= found.tokens):
        assert alone is not None
        return _saved(alone, request)
    return _saved(found, request)


def _alone(request: Request, kind: str, begun: float, why: str) -> Compiled:
    """One layer; where it refuses, the refusal says why there is no stack."""
    try:
        return one_layer(request, "auto", kind, begun)
    except Refused as refusal:
        reason = f"{refusal.reason.rstrip('.')}. No stack either: {why}."
        other = TimeOver if isinstance(refusal, TimeOver) else Refused
        raise other(reason, nearest_error=refusal.nearest_error, remedy=refusal.remedy, tried=refusal.tried) from None


def _is_affine(request: Request) -> bool:
    """Whether the target is affine, or constant."""
    assert request.target.expression is not None
    try:
        return bool(np.isfinite(AffineMap.of(request.target.expression).constant))
    except BadInput:
        return False


def _last(request: Request, kind: str, begun: float, refusal: Refused) -> Compiled:
    """One layer where no stack is proved; else the refusal of the stack."""
    try:
        return one_layer(request, "auto", kind, begun)
    except Refused as other:
        nearest = min((r.nearest_error for r in (refusal, other) if r.nearest_error is not None), default=None)
        raise type(refusal)(f"{refusal.reason} One layer: {other.reason}", nearest_error=nearest, tried=other.tried) from None


def _saved(found: Compiled | Stack, request: Request) -> Compiled | Stack:
    if request.out is None:
        return found
    found.save(request.out)
    return replace(found, file=str(request.out))


def stack_of(request: Request, most: int | None, begun: float) -> Stack:
    """The stack of fewest tokens among the cuttings that are foreseen to be near the best."""
    request.progress("cuttings of the formula", 0, 1)
    shop, ended = Shop(head_compiler(request)), None
    try:
        found, reasons = candidates(request, most)
    except OutOfTime:
        raise _over(request, shop) from None
    best: tuple[Foreseen, list[Made], Proof] | None = None
    for one in found:
        if best is not None and (one.tokens > WORTH * found[0].tokens or one.tokens > 1.6 * _tokens(best[1])):
            break
        try:
            check_time()
            doubt_identity(one.cutting.planned, request.target)
            heads, proof = made(one.cutting, request.target.box, request.error, one.share, shop)
        except OutOfTime:
            if best is None:
                raise _over(request, shop, one) from None
            ended = f"{_time(request)} while stacks were looked for"
            reasons.append(f"{one.style}: {_time(request)}")
            break
        except NotProved as failure:  # the checker would not confirm it
            reasons.append(f"{one.style}: {failure}")
            continue
        except (Refused, Unbounded) as failure:
            reasons.append(f"{one.style}: {getattr(failure, 'reason', failure)}")
            continue
        reasons.append(f"{one.style}: {_tokens(heads)} tokens in {_depth(one, heads)} layers, proved to {proof.bound:.3g}")
        if best is None or _tokens(heads) < _tokens(best[1]):
            best = one, heads, proof
    if best is None:
        raise _refusal(request, reasons)
    return replace(_finished(request, *best, tried=tuple(reasons), begun=begun), ended=ended)


def _time(request: Request) -> str:
    return f"`max_seconds` (={request.max_seconds:g}) was over"


def _over(request: Request, shop: Shop, one: Foreseen | None = None) -> TimeOver:
    """How far the search came when the time was over."""
    told = f"{_time(request)}, and no stack is proved to {request.error:g} yet"
    if one is None:
        return TimeOver(f"{told}: the formula was being cut. Allow more time.")
    made = sum(isinstance(head, Made) for head in shop.made.values())
    heads = f"{made or 'no'} head{'' if made == 1 else 's'} of one of {one.depth} layers {'was' if made == 1 else 'were'} made"
    return TimeOver(f"{told}: {heads}, for which about {one.tokens:.0f} tokens are foreseen in all. Allow more time.")


def _depth(one: Foreseen, heads: Sequence[Made]) -> int:
    return one.cutting.folded([head.folds for head in heads]).depth


def _tokens(heads: Sequence[Made]) -> int:
    return sum(head.tokens for head in heads)


def head_compiler(request: Request) -> Any:
    """The one-layer compiler, for heads."""

    def compile_head(text: str, box: Box, error: float) -> Compiled:
        check_time()
        request.progress(f"heads of the stack: {text}", 0, 1)
        size = _size(text, box)
        if error < LEAST * size:
            raise Refused(f"float64 does not hold {error:.2g} of a function of size {size:.2g}", nearest_error=HELD * size)
        begun = time.perf_counter()
        made = request_of(text, box, error=error, run=Run(seed=request.seed, max_bytes=64 << 20))
        return one_layer(made, "auto", "cross", begun)

    return compile_head


def _size(text: str, box: Box) -> float:
    """The largest |f| on a small grid over the box of a head."""
    axes = [np.linspace(low, high, GRID) for low, high in zip(box.low, box.high, strict=True)]
    points = np.stack([one.ravel() for one in np.meshgrid(*axes)], axis=1)
    with np.errstate(all="ignore"):
        found = np.abs(Expression.parse(text, box.names).evaluate(points))
    return float(np.max(found, initial=0.0, where=np.isfinite(found)))


def _refusal(request: Request, reasons: Sequence[str]) -> Refused:
    """Why no cutting serves."""
    told = "; ".join(dict.fromkeys(one.split(": ", 1)[1].rstrip(".") for one in reasons)) or "nothing to cut"
    return Refused(f"no stack was proved to {request.error:g}: {told}.", tried=tuple(reasons))


def _finished(
    request: Request, one: Foreseen, made_heads: Sequence[Made], proof: Proof, tried: tuple[str, ...], begun: float
) -> Stack:
    """The stack with its certificate, its literal bound and its observed error."""
    target, cutting = request.target, one.cutting
    distinct = list(dict.fromkeys(head.asked for head in made_heads))
    first = {head.asked: head.head for head in made_heads}
    heads = tuple(first[want] for want in distinct)
    plan = cutting.folded([head.folds for head in made_heads]).plan(
        [distinct.index(head.asked) for head in made_heads],
        [head.asked.scales for head in made_heads],
        [head.asked.lift for head in made_heads],
    )
    certificate = certified(made_heads, proof, target.box)
    assert certificate.bound is not None
    shares = proof.ranges.weights * proof.eps / certificate.bound
    nodes = node_proofs(plan, heads, proof.betas, proof.ranges.weights, shares, proof.ranges.rough)
    stack = Stack(
        target, plan, heads, certificate, nodes, {"float64": literal_of(cutting, target.box, made_heads)},
        observe(lambda x: outputs(plan, heads, x), target, request.seed), request.error, one.style, tried,
    )  # fmt: skip
    must_hold(stack.observed.error, certificate.bound)
    return replace(stack, seconds=time.perf_counter() - begun)


def certified(heads: Sequence[Made], proof: Proof, box: Box) -> Certificate:
    """The bound and its parts: those of the heads, each times W, and all rounding of the linear maps."""
    parts = dict.fromkeys(("approximation", "leakage", "rounding", "target_rounding"), 0.0)
    for k, (head, weight, beta) in enumerate(zip(heads, proof.ranges.weights, proof.betas, strict=True)):
        own, norm = head.head.certificate, proof.ranges.norms.get(k)
        assert own.bound is not None
        identity = 0.0 if norm is None else norm.identity
        parts["approximation"] += float(weight) * identity * UP
        for name, part in own.parts.items():
            parts[name] += float(weight) * (beta - identity) * (part / own.bound) * UP
    parts["rounding"] += proof.rounding
    parts["approximation"] += proof.ranges.roughness
    assumptions = dict.fromkeys([*(a for head in heads for a in head.head.certificate.assumptions), ELEMENTARY])
    result = proof.ranges.result
    return Certificate.proved(
        math.inf, parts, argument="stack", theorem=THEOREM, assumptions=tuple(assumptions), dtype="float64", runtime="arrays",
        details={"largest": float(result.magnitude), "nodes": float(len(heads))},
    )  # fmt: skip
