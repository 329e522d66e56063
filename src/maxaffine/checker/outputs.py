"""Layers side by side re-proved: every part against its own outputs, by the rule of its kind, as if it stood alone.

What makes them one layer is looked at here: every output is answered by one part, parts speak of the target's box and dtype, the
error promised of an output and the bound stated of its part hold, and what is said of all of them holds of each.

The literal form is one softmax over the tokens of all parts: each part's own proof of its literal form counts all tokens, all
query columns and the common bias (`Beside`); what groups of other parts say in a column is added here, from the ranges of the
normalisers of all groups and the largest value of a token of each.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from maxaffine.checker.certificate import stated_bound, stated_norm, stated_reserve, stated_scope
from maxaffine.checker.crossed import crossed
from maxaffine.checker.literal_clusters import Tokens
from maxaffine.checker.literal_groups import MARGIN, Column, Coordinates, Frame, leak
from maxaffine.checker.normaliser import log_normaliser
from maxaffine.checker.product_keys import numbers_of
from maxaffine.checker.proved import Beside, Form, NotProved, Proved
from maxaffine.checker.reader import FRAME, Clusters, Factored, Group, Layer, ProductKeys
from maxaffine.checker.target_parts import POINTS
from maxaffine.core.intervals import Interval
from maxaffine.core.scope import Scope
from maxaffine.target.parts import part_of
from maxaffine.target.target import Target

CONFIRMS = 1.2  # times the bound that is stated of a part, for the checker's constants
MOST_PARTS = 1000

Prove = Callable[[Mapping[str, Any], Mapping[str, Any], Target, float], Proved]


@dataclass(frozen=True)
class Part:
    """One part: its entries, its record, its layer, what is proved of it, and what its error is multiplied by."""

    entries: tuple[int, ...]
    record: Mapping[str, Any]
    layer: Layer
    proved: Proved
    scale: float


def check_outputs(
    tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, error: float, prove: Prove
) -> Proved:
    """The largest error of an output; `prove` is the checker of a layer that stands alone."""
    description, plan = record["layer"], record["plan"]
    rows, planned, norm = list(description["parts"]), list(plan["parts"]), stated_norm(record, 64.0)
    told = list(record["certificate"]["within"])
    _doubt_frame(tensors, description, target, len(rows))
    if plan.get("method") != "outputs" or not len(rows) == len(planned) == len(told) or not 1 <= len(rows) <= MOST_PARTS:
        raise NotProved("its parts are not those of its plan.")
    promised = _promised(record, target)
    answered = sorted(e for row in rows for e in row["entries"])
    if answered != list(range(target.d_out * target.n_out)):
        raise NotProved("its parts do not answer every output once.")
    parts = []
    for p, (row, made, stated) in enumerate(zip(rows, planned, told, strict=True)):
        own = {name.removeprefix(f"part.{p}."): tensor for name, tensor in tensors.items() if name.startswith(f"part.{p}.")}
        goals = [min(error, promised[e]) for e in row["entries"]]
        planned_for = made["plan"] if made["entries"] == row["entries"] else {}
        parts.append(_checked(own, row, planned_for, stated, record, target, goals, norm, prove))
    _doubt_scope(record, [stated_scope(part.record["certificate"]) for part in parts], norm)
    reserve = stated_reserve(record)
    for part in parts:
        if _collapses(part.layer) and stated_reserve(part.record) < reserve:
            raise NotProved("it reserves more for a collapse than one of its outputs does.")
    bias = float(description["bonus"])
    bound = max(part.scale * part.proved.bound for part in parts)
    how = "; ".join(dict.fromkeys(part.proved.how for part in parts))
    return Proved(
        bound, f"{len(parts)} parts: {how}", lambda form, claimed: _literal(parts, bias, target, norm, form, claimed),
        tuple(part.proved.bound for part in parts),
    )  # fmt: skip


def _collapses(layer: Layer) -> bool:
    """Whether a runtime may evaluate polynomials in place of its heads."""
    plain = (isinstance(group, ProductKeys) and (group.factors is None or group.plain) for group in layer.groups)
    return layer.affine_part is None and all(plain)


def _doubt_frame(tensors: Mapping[str, Any], description: Mapping[str, Any], target: Target, count: int) -> None:
    names = FRAME[:2]
    held = numbers_of({name: tensors[name] for name in names}, dict.fromkeys(names, (target.box.dimension,)), "float64", names)
    if not all(np.array_equal(held[name], edge) for name, edge in zip(names, (target.box.low, target.box.high), strict=True)):
        raise NotProved("the layer and the target speak about different boxes.")
    if list(description["outputs"]) != [target.d_out, target.n_out]:
        raise NotProved("its outputs are not those of its target.")
    bias = description["bonus"]
    if type(bias) not in (int, float) or not 0.0 <= bias < 1e30:
        raise NotProved("its group bias is negative, or no number that logits can be added to.")
    known = {f"part.{p}" for p in range(count)}
    if any(name not in names and ".".join(name.split(".")[:2]) not in known for name in tensors):
        raise NotProved("its tensors are not those of its parts.")


def _promised(record: Mapping[str, Any], target: Target) -> list[float]:
    """The error promised of every output: one for all, or one each, none of them above it."""
    whole, each = float(record["error"]), record.get("errors")
    if each is None:
        return [whole] * (target.d_out * target.n_out)
    good = isinstance(each, list) and len(each) == target.d_out * target.n_out
    if not good or any(type(one) not in (int, float) or not 0.0 < one <= whole for one in each):
        raise NotProved("the errors that it promises of its outputs are not positive numbers, one each, up to the largest.")
    return [float(one) for one in each]


def _checked(
    tensors: Mapping[str, Any], row: Mapping[str, Any], plan: Mapping[str, Any], certificate: Mapping[str, Any],
    whole: Mapping[str, Any], target: Target, promised: Sequence[float], norm: float, prove: Prove,
) -> Part:  # fmt: skip
    """One part, proved to the errors promised of its outputs and to the bound stated of it."""
    entries = tuple(row["entries"])
    if any(type(e) is not int for e in entries) or len({e % target.n_out for e in entries}) != 1:
        raise NotProved("the outputs of a part are not of one output token.")
    if not plan:
        raise NotProved("the outputs of a part are not those of its plan.")
    if row["layer"]["keys"] != "grouped" or row["layer"]["dtype"] != whole["layer"]["dtype"]:
        raise NotProved("a part is no layer of groups in the dtype of all.")
    variables, own = part_of(target, entries)
    if list(variables) != row["variables"]:
        raise NotProved("the variables of a part are not those that its outputs depend on.")
    _doubt_part(target, own, entries, variables)
    record = {"layer": row["layer"], "plan": plan, "norm": certificate["norm"], "certificate": certificate}
    if certificate.get("kind") != "proved" or certificate.get("least") is not None:
        raise NotProved("nothing absolute is proved of one of its parts.")
    scale = _scale(target, own, norm, stated_norm(record, 64.0))
    goal, claimed = min(promised) / scale, stated_bound(certificate.get("bound"))
    proved = prove(tensors, record, own, goal)
    aim = CONFIRMS * claimed
    if proved.bound > min(goal, aim):
        proved = prove(tensors, record, own, min(goal, aim))
    if not proved.bound <= min(goal, aim):
        reached, needed = proved.bound * scale, min(goal, aim) * scale
        raise NotProved(f"of output {entries[0] + 1} only {reached:.6g} is proved again, and {needed:.6g} is needed.")
    return Part(entries, record, Layer.read(tensors, row["layer"], own), proved, scale)


def _doubt_part(target: Target, own: Target, entries: Sequence[int], variables: Sequence[int]) -> None:
    """A part of the target must be these outputs of it: compared at random points by enclosures."""
    x = target.box.sample(POINTS, np.random.default_rng(47))
    assert target.expression is not None and own.expression is not None
    exact, found = target.expression.enclose(Interval.point(x)), own.expression.enclose(Interval.point(x[:, list(variables)]))
    low, high = exact.lo[:, list(entries)], exact.hi[:, list(entries)]
    if np.any((found.hi < low) | (found.lo > high)) or 2 * np.count_nonzero(found.finite) < found.lo.size:
        raise NotProved("a part of its target is not the outputs that it stands for.")


def _scale(target: Target, own: Target, norm: float, part: float) -> float:
    """What an error of a part is multiplied by in the norm of the whole."""
    if math.isinf(norm):
        if math.isfinite(part):
            raise NotProved("a part is proved in another norm than the layer.")
        return 1.0
    if part not in (norm, math.inf):
        raise NotProved("a part is proved in another norm than the layer.")
    volume = math.exp(math.fsum(math.log(float(w)) for w in target.box.width)) * (1 + 1e-9)
    if math.isfinite(part):
        volume /= math.exp(math.fsum(math.log(float(w)) for w in own.box.width)) * (1 - 1e-9)
    return float(volume ** (1.0 / norm)) * MARGIN


def _doubt_scope(record: Mapping[str, Any], scopes: Sequence[Scope], norm: float) -> None:
    """The x that the certificate speaks of must be such that every part's own certificate speaks of them."""
    stated = stated_scope(record["certificate"])
    wrong = NotProved("the x it is proved for are not those its certificate speaks of.")
    if math.isfinite(norm):
        if stated != Scope("integral") or any(scope not in (Scope("integral"), Scope()) for scope in scopes):
            raise wrong
        return
    if stated.over != "box" or any(scope.over != "box" for scope in scopes):
        raise wrong
    if stated.inputs == "real" and any(scope.inputs != "real" for scope in scopes):
        raise wrong
    gaps = [scope for scope in scopes if scope.gap is not None]
    if not gaps:
        if stated not in (Scope(), Scope("box", "float64")):
            raise wrong
        return
    measures = {scope.measure for scope in gaps}
    measure = measures.pop() if len(measures) == 1 else "outputs"
    if stated.gap is None or any(float(scope.gap or 0.0) > stated.gap for scope in gaps) or stated.measure != measure:
        raise wrong


def _literal(parts: Sequence[Part], bias: float, target: Target, norm: float, form: Form, claimed: float) -> float:
    """The literal form: every part's own, in a softmax over the tokens of all, and what the others say in its columns."""
    tokens, groups = sum(part.layer.tokens for part in parts), sum(len(part.layer.groups) for part in parts)
    here = replace(form, beside=Beside(tokens, groups, bias))
    worst = 0.0
    for part in parts:
        if part.proved.literal is None:
            raise NotProved("this checker proves no such claim of one of its parts.")
        worst = max(worst, part.scale * part.proved.literal(here, claimed / part.scale))
    return (worst + _between(parts, bias, here) * float(target.box.volume ** (1.0 / norm))) * MARGIN


def _between(parts: Sequence[Part], bias: float, form: Form) -> float:
    """What groups say in the columns of others: e^{log Z' - log Z - bias} of the weight, times what both say at most."""
    levels, sizes, errors = [], [], []
    for part in parts:
        frame = Frame(part.layer, form)
        levels += [_levels(frame, group) for group in part.layer.groups]
        span = part.layer.high - part.layer.low
        sizes += [group.largest(span) + frame.affine_size for group in part.layer.groups]
        errors += [2.0 * error + 0.3 for error in _logit_errors(frame)]
    sums = 1.0 + form.gamma(2 * frame.tokens + len(sizes) + 20)
    return leak(levels, sizes, bias, errors) * sums


def _levels(frame: Frame, group: Group) -> tuple[float, float]:
    """Bounds of log sum exp of the logits of a group over the box."""
    if isinstance(group, Factored):  # its list has sums of offsets, rounded
        pairs = [_levels(frame, one) for one in group.factors]
        slack = 1e-9 + 1e-14 * sum(float(np.abs(one.sites[:, -1]).max()) for one in group.factors)
        return sum(low for low, _ in pairs) - slack, sum(high for _, high in pairs) + slack
    at = Coordinates.read(frame, group.matrix)
    size = at.size * (1.0 + at.part)
    if isinstance(group, Clusters):
        tokens = Tokens.listed(group)
        return log_normaliser(tokens.slopes, tokens.offsets, size)
    pairs = [log_normaliser(axis.a[:, None], axis.b, size[e : e + 1]) for e, axis in enumerate(group.axes)]
    return sum(low for low, _ in pairs), sum(high for _, high in pairs)


def _logit_errors(frame: Frame) -> list[float]:
    """Bounds of what rounding does to a logit anywhere on the box, exp included, group by group."""
    found = [Column(0.0, 0.0, _logit_error(frame, group), 0.0, lambda: (0.0, 0.0)) for group in frame.layer.groups]
    return [one.eta for one in (crossed(frame, found) if frame.layer.pair else found)]


def _logit_error(frame: Frame, group: Group) -> float:
    if isinstance(group, Factored):
        group = group.combined()
    at = Coordinates.read(frame, group.matrix)
    error = at.error(at.size)
    if isinstance(group, Clusters):
        tokens = Tokens.listed(group)
        slopes = np.abs(tokens.site) + np.abs(tokens.alpha)
        moved = (np.abs(tokens.alpha) * np.abs(tokens.origin)).sum(axis=1)
        formed = float((slopes @ (at.size + error) + np.abs(tokens.level) + np.abs(tokens.beta) + moved).max())
        steep = float((slopes @ error).max())
    else:
        a, b = (np.array([np.abs(getattr(axis, name)).max() for axis in group.axes]) for name in ("a", "b"))
        formed, steep = float(a @ at.size + b.sum()), float(a @ error)
    E, D = len(at.size), frame.layer.low.size
    return steep + frame.form.gamma(3 * E + D + 60) * (formed + frame.bias) + 80.0 * frame.form.unit
