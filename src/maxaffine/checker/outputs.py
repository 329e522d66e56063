"""Layers side by side re-proved: every part against its own outputs, by the rule of its kind, as if it stood alone.

What makes them one layer is looked at here: every output is answered by one part, parts speak of the target's box and dtype, the
error promised of an output and the bound stated of its part hold, and what is said of all of them holds of each.

Where an entry is a sum of parts, with signs, the file has the text of every part: in the normal form of expressions these sums
are the target, and the errors of its parts and of adding them up are added.

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
from maxaffine.checker.proved import DOUBLE, Beside, Form, NotProved, Proved
from maxaffine.checker.reader import FRAME, Clusters, Factored, Group, Layer, ProductKeys
from maxaffine.checker.target_parts import POINTS
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import compute_format
from maxaffine.core.scope import Scope
from maxaffine.target.parts import adds_up, of_text, part_of
from maxaffine.target.target import Target

CONFIRMS = 1.2  # times the bound that is stated of a part, for the checker's constants
SMALL = 5e-5  # of what is stated of a sum, which its parts may be off by besides: rounding beside errors
MOST_PARTS = 1000

Prove = Callable[[Mapping[str, Any], Mapping[str, Any], Target, float], Proved]


@dataclass(frozen=True)
class Part:
    """One part: the entries it is added to, its record, its layer, what is proved of it, and what its error is multiplied by."""

    reach: tuple[int, ...]
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
    writes = [_writes(row, target) for row in rows]
    stated_bounds = [stated_bound(one.get("bound")) for one in told]
    small = _small(stated_bounds, writes, target)
    goals = _goals(target, rows, planned, stated_bounds, small, writes, [min(error, one) for one in promised], norm)
    parts = []
    for p, (row, made, stated) in enumerate(zip(rows, planned, told, strict=True)):
        own = {name.removeprefix(f"part.{p}."): tensor for name, tensor in tensors.items() if name.startswith(f"part.{p}.")}
        if made["entries"] != row["entries"]:
            raise NotProved("the outputs of a part are not those of its plan.")
        reach = tuple(e for _, e, _ in writes[p])
        parts.append(_checked(own, row, made, stated, record, target, goals[p], norm, prove, reach, small[p]))
    _doubt_scope(record, [stated_scope(part.record["certificate"]) for part in parts], norm)
    reserve = stated_reserve(record)
    for part in parts:
        if _collapses(part.layer) and stated_reserve(part.record) < reserve:
            raise NotProved("it reserves more for a collapse than one of its outputs does.")
    bias = float(description["bonus"])
    bounds = _added(parts, [part.scale * part.proved.bound for part in parts], target) + _adding(parts, target)
    if not np.all(bounds <= [min(error, one) for one in promised]):
        raise NotProved("the errors of the parts of an output add up to more than is promised of it.")
    bound = float(bounds.max())
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
    whole: Mapping[str, Any], target: Target, promised: float, norm: float, prove: Prove, reach: tuple[int, ...],
    small: float,
) -> Part:  # fmt: skip
    """One part, proved to the error promised of its outputs, or to its share of that, and to the bound stated of it."""
    entries = tuple(row["entries"])
    if row["layer"]["keys"] != "grouped" or row["layer"]["dtype"] != whole["layer"]["dtype"]:
        raise NotProved("a part is no layer of groups in the dtype of all.")
    variables, own = part_of(target, entries) if "term" not in plan else of_text(target, plan["term"], len(entries))
    if list(variables) != row["variables"]:
        raise NotProved("the variables of a part are not those that its outputs depend on.")
    if "term" not in plan:
        _doubt_part(target, own, entries, variables)
    record = {"layer": row["layer"], "plan": plan["plan"], "norm": certificate["norm"], "certificate": certificate}
    if certificate.get("kind") != "proved" or certificate.get("least") is not None:
        raise NotProved("nothing absolute is proved of one of its parts.")
    scale = _scale(target, own, norm, stated_norm(record, 64.0))
    goal, claimed = promised / scale, stated_bound(certificate.get("bound"))
    proved = prove(tensors, record, own, goal)
    aim = CONFIRMS * claimed + small
    if proved.bound > min(goal, aim):
        proved = prove(tensors, record, own, min(goal, aim))
    if not proved.bound <= min(goal, aim):
        reached, needed = proved.bound * scale, min(goal, aim) * scale
        raise NotProved(f"of output {entries[0] + 1} only {reached:.6g} is proved again, and {needed:.6g} is needed.")
    return Part(reach, record, Layer.read(tensors, row["layer"], own), proved, scale)


def _writes(row: Mapping[str, Any], target: Target) -> list[tuple[int, int, int]]:
    """(k, e, sign): output k of a part is added to entry e, in its first output token and in further ones."""
    entries, also, n_out = row["entries"], row.get("also", []), target.n_out
    known = all(type(e) is int and 0 <= e < target.d_out * n_out for e in entries)
    if not entries or not known or len(set(entries)) < len(entries) or len({e % n_out for e in entries}) != 1:
        raise NotProved("the outputs of a part are not of one output token.")
    if any(type(c) is not int or type(sign) is not int or not 0 <= c < n_out or sign not in (1, -1) for c, sign in also):
        raise NotProved("a part is added to what is no output token, or with what is no sign.")
    tokens = [(entries[0] % n_out, 1), *((c, sign) for c, sign in also)]
    if len({c for c, _ in tokens}) < len(tokens):
        raise NotProved("a part is added to an output token twice.")
    return [(k, e // n_out * n_out + c, sign) for c, sign in tokens for k, e in enumerate(entries)]


def _goals(
    target: Target, rows: Sequence[Mapping[str, Any]], planned: Sequence[Mapping[str, Any]], claimed: Sequence[float],
    small: Sequence[float], writes: Sequence[Sequence[tuple[int, int, int]]], promised: Sequence[float], norm: float,
) -> list[float]:  # fmt: skip
    """What every part is to be proved to: what is promised of its outputs, shared out over the parts of a sum by their bounds."""
    counts, whole = _totals(claimed, writes, target)
    if not np.all(counts > 0):
        raise NotProved("its parts do not answer every output.")
    if np.all(counts == 1) and not any("term" in plan for plan in planned) and not any("also" in row for row in rows):
        return [min(promised[e] for _, e, _ in own) for own in writes]
    if math.isfinite(norm) or target.expression is None:
        raise NotProved("sums of parts are proved in the sup norm alone, and of expressions.")
    texts = []
    for row, plan in zip(rows, planned, strict=True):
        text = plan["term"] if "term" in plan else part_of(target, row["entries"])[1].text
        if not isinstance(text, str):
            raise NotProved("a part of a sum is no expression.")
        of_text(target, text, len(row["entries"]))  # it is an expression of as many outputs by itself
        texts.append(text)
    if not adds_up(target, list(zip(texts, writes, strict=True))):
        raise NotProved("the sums of its parts are not its target.")
    shares = [min(promised[e] / max(whole[e], 1e-300) for _, e, _ in own) for own in writes]
    return [float(one * (bound * (1 - 1e-4) + more)) for one, bound, more in zip(shares, claimed, small, strict=True)]


def _totals(claimed: Sequence[float], writes: Sequence[Sequence[tuple[int, int, int]]], target: Target) -> tuple[Array, Array]:
    """Of every entry how many parts it is a sum of, and what is stated of all of them together."""
    counts, whole = np.zeros((2, target.d_out * target.n_out))
    for own, bound in zip(writes, claimed, strict=True):
        for _, e, _ in own:
            counts[e] += 1
            whole[e] += bound
    return counts, whole


def _small(claimed: Sequence[float], writes: Sequence[Sequence[tuple[int, int, int]]], target: Target) -> list[float]:
    """What every part may be off by beside its stated bound, small beside every sum that it belongs to; nothing elsewhere."""
    counts, whole = _totals(claimed, writes, target)
    room = np.where(counts > 1, SMALL * whole / np.maximum(counts, 1.0), 0.0)
    return [float(min(room[e] for _, e, _ in own)) for own in writes]


def _added(parts: Sequence[Part], numbers: Sequence[float], target: Target) -> Array:
    """Of every entry the sum of the numbers of its parts, rounded up."""
    found, counts = np.zeros((2, target.d_out * target.n_out))
    for part, number in zip(parts, numbers, strict=True):
        found[list(part.reach)] += number
        counts[list(part.reach)] += 1
    return np.where(counts > 1, found * MARGIN, found)


def _adding(parts: Sequence[Part], target: Target) -> Array:
    """What rounding does to the sums: every term and every partial sum is at most what the tokens of its parts say."""
    sizes = []
    for part in parts:
        span = part.layer.high - part.layer.low
        tilt = 0.0 if part.layer.affine_part is None else float((np.abs(part.layer.affine_part) @ part.layer.reach).max())
        sizes.append((sum(group.largest(span) for group in part.layer.groups) + tilt) * MARGIN)
    counts = _added(parts, [1.0] * len(parts), target)
    unit = compute_format(parts[0].layer.dtype).unit
    return np.where(counts > 1, (2.0 * unit + 2.0 * DOUBLE * (counts + 1.0)) * _added(parts, sizes, target), 0.0)


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
    found, whole = [], _added(parts, [part.scale * part.proved.bound for part in parts], target)
    for part in parts:
        if part.proved.literal is None:
            raise NotProved("this checker proves no such claim of one of its parts.")
        share = min(1.0, max(part.scale * part.proved.bound / max(float(whole[e]), 1e-300) for e in part.reach))
        found.append(part.scale * part.proved.literal(here, share * claimed / part.scale))
    worst = float(_added(parts, found, target).max())
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
