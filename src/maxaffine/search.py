"""Which head: the heads are asked in turn, and the layer with the fewest tokens whose bound is proved is kept."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import product
from typing import Any

import numpy as np

from maxaffine.core import closest
from maxaffine.core.budget import count_text
from maxaffine.core.deadline import OutOfCalls, OutOfTime, deadline
from maxaffine.core.errors import BadInput, Missed, Refused, TimeOver, TooMany
from maxaffine.heads import HEADS, interpolated
from maxaffine.heads.found import Discontinuous, Found, as_asked, search_worst
from maxaffine.heads.lookup import search as lookup
from maxaffine.heads.lookup.in_time import in_time
from maxaffine.heads.lookup.nearest import nearest
from maxaffine.layer.file import to_tensors
from maxaffine.layer.side_by_side import AnyLayer
from maxaffine.layer.temperature import at_temperature
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.pointwise import Pointwise
from maxaffine.request import NEAREST, Request, request_of
from maxaffine.target.calls import Calls
from maxaffine.target.samples import Samples
from maxaffine.target.table import Table
from maxaffine.target.target import Target

METHODS = ("auto", *HEADS)
ENOUGH = 4  # tokens below which no other method is asked
MANY = 1_000_000  # tokens from which a lookup is no way out, and is mentioned in the details only
FOREMOST = ("separated", "spectral", "products", "sums", "curved", "regions", "tree", "axis", "piecewise")  # whose reason counts
FEW = 256  # tokens below which no slow head is asked in two variables


def search(request: Request, method: str) -> Found:
    """The smallest layer that is proved to meet the request; else the smallest one observed to fit, or a refusal."""
    asked = request.pointwise
    if asked is None:
        return replace(_searched(request, method), request=request)
    try:
        return replace(as_asked(_searched(request, method), request), request=request)
    except Refused as refusal:
        raise _relative_refusal(refusal, asked, request.largest) from None


def _relative_refusal(refusal: Refused, asked: Pointwise, largest: float) -> Refused:
    """A refusal of an error relative to |f(x)|: what it is where |f| is smallest, and why products do not do."""
    said = f"`error` (={asked.error:g}) relative to |f(x)| is {asked.absolute:.3g} where |f| falls to {asked.least:.3g}"
    within = None if refusal.nearest_error is None else refusal.nearest_error / asked.least
    if isinstance(refusal, TimeOver):
        return TimeOver(f"{said}: {refusal.reason}", nearest_error=within, tried=refusal.tried)
    if within is not None and within < 1.0:
        return Refused(f"{said}: {refusal.reason}", nearest_error=within, tried=refusal.tried)
    apart = "separated: "
    told = next((line.removeprefix(apart) for line in refusal.tried if line.startswith(apart)), refusal.reason.rstrip("."))
    spans = f"below what is proved beside values near {largest:.3g}, and the target is no product that is"
    return Refused(f"{said}, {spans}: {told}. Shrink the box, or use relative=True.", tried=refusal.tried)


def _searched(request: Request, method: str) -> Found:
    with deadline(request.max_seconds), closest.watched(request.progress) as journal:
        try:
            if request.target.entries is not None:
                return _search_entries(request, method)
            if method == "lookup" or not interpolated.serves(request):
                return _search(request, method)
            return _search_callable(request, method)
        except OutOfTime:
            return _out_of_time(request, method, journal)


def _out_of_time(request: Request, method: str, journal: closest.Journal) -> Found:
    """The best layer so far, or a lookup that little more time allows, and that time ended; else how close the search came."""
    own = request.max_seconds is not None
    over = f"`max_seconds` (={request.max_seconds:g}) was over" if own else "its share of the time was over"
    told = f"{over} while {journal.head} heads were looked for" if journal.head else f"{over} before any head was looked for"
    request.progress(told, 1, 1)
    best = journal.best
    if isinstance(best, Found):
        seen = best.observed or search_worst(request, best)
        if best.certificate.kind == "proved" or seen.error <= request.error:
            return replace(best, observed=seen, ended=told)
    if not own:
        raise OutOfTime  # the deadline of a search around this one
    given = request.partition is not None or request.centres is not None
    serves = method in ("auto", "lookup") and not given and request.target.entries is None
    found, within = in_time(request) if serves else (None, None)
    if found is not None:
        return replace(found, ended=told)
    tried = [f"{name}: {'; '.join(_shortened(said))}" for name, said in journal.reasons.items() if said]
    done = "proved to" if request.target.expression or request.target.entries else "seen to keep an error of"
    close = f"{told}, and nothing is {done} {request.error:g} yet: {_how_close(journal)}"
    raise TimeOver(f"{close}. Allow more time, or ask for a larger error.", nearest_error=within, tried=tried)


def _how_close(journal: closest.Journal) -> str:
    """What was reached: the layer whose proof was under way, what was proved, what fits, or how much of the box is fitted."""
    begun, proof, fit, covered = journal.begun, journal.proof, journal.fit, journal.covered
    found = []
    if proof is not None:
        found.append(f"the closest layer is proved to {proof.error:.3g} ({proof.head}, {count_text(proof.tokens)} tokens)")
    if begun is not None:
        found.append(f"the proof of a {begun.head} head of {count_text(begun.tokens)} tokens was under way")
    elif fit is not None and (proof is None or fit.error < 0.5 * proof.error):
        seen = f"of {count_text(fit.tokens)} tokens, is off by {fit.error:.2g} where it was looked at, and not proved"
        found.append(f"the closest fit, a {fit.head} head {seen}")
    if covered is not None:
        found.append(f"{covered[0]} cells of {count_text(covered[1])} tokens fit {100.0 * covered[2]:.0f} % of the box")
    if journal.pieces:
        found.append(f"layers of {journal.pieces} of its parts were made")
    return "; ".join(found) or "no layer was made yet"


def _search_callable(request: Request, method: str) -> Found:
    """Through the interpolant of a callable, or the callable itself; else the layer for the calls that were allowed."""
    calls = request.target.calls
    seen = interpolated.look(request)
    _tell_calls(request)
    if seen.interpolant.resolved:
        found = interpolated.settled(seen, partial(_search, method=method))
        if found is not None:
            return found
    if not isinstance(calls, Calls) or calls.most is None:
        return _search(request, method, seen.interpolant.is_local)
    calls.held = int(interpolated.HELD * calls.most)
    try:
        return _search(request, method, seen.interpolant.is_local)
    except Refused:
        if not calls.denied:
            raise
    calls.held = 0
    return interpolated.spent(seen, partial(_search, method="spectral"))


def _search(request: Request, method: str, local: bool = True) -> Found:
    given = request.partition is not None or request.centres is not None
    if method not in ("auto", "lookup") and given:
        raise BadInput(f'`method` (="{method}") works on the whole box; leave out `keys`.')
    reasons: dict[str, list[str]] = {}
    if not given and method != "lookup":
        best = _ask_heads(request, method, reasons, local)
        if best is not None:
            return _rather_proved(best, request, reasons) if method == "auto" else best
        if method != "auto":
            raise _refusal(request, f"no {method} head was proved", reasons)
    closest.journal().ask("lookup")
    try:
        return lookup.search(request)
    except OutOfCalls as spent:
        reasons["lookup"] = [str(spent)]
        told = f"no head was seen to keep an error of {request.error:g}"
        raise _refusal(request, told, reasons, Refused(f"{told}: {spent}")) from None
    except Refused as refusal:
        reasons["lookup"] = [refusal.reason.rstrip(".")]
        done = "proved to" if request.target.expression is not None else "seen to keep an error of"
        elsewhere = given or not {"gap", "norm"}.isdisjoint(refusal.remedy)  # keys of the user, or a jump
        reach = None if elsewhere else nearest(request)
        reach = None if reach is None or reach <= request.error else reach  # it was planned, and is not proved
        raise _refusal(request, f"no head was {done} {request.error:g}", reasons, refusal, reach) from None


def _for_a_part(request: Request, fewest: int | None, method: str = "auto") -> Found:
    """The smallest layer for one part of an output, of fewer than `fewest` tokens; lookups have no part beside others."""

    def ask(request: Request, method: str = method) -> Found:
        reasons: dict[str, list[str]] = {}
        with closest.of_a_part():
            found = _ask_heads(request, method, reasons, True, fewest, part=True)
        if found is None:
            raise _refusal(request, "no head was found for it", reasons)
        closest.journal().pieces += 1
        return found

    if not interpolated.serves(request):
        return ask(request)
    seen = interpolated.look(request)
    return (interpolated.settled(seen, ask) if seen.interpolant.resolved else None) or ask(request)


def _ask_heads(
    request: Request, method: str, reasons: dict[str, list[str]], local: bool, limit: int | None = None, part: bool = False
) -> Found | None:
    """The best of one head, or of all but lookups, which are asked where nothing else is proved.

    A slow head is asked where what is difficult about a callable is `local`.  For a `part` of an output only heads that stand
    beside others are asked, for fewer than `limit` tokens.
    """
    best: Found | None = None
    journal = closest.journal()
    journal.reasons = reasons if not part else journal.reasons
    constant = lookup.constant(request) if method == "auto" and not part else None
    limit = limit if constant is None else constant.cost.tokens + 1  # a head of as few tokens says more
    for name in [one for one in _asked(request) if not part or one != "outputs"] if method == "auto" else [method]:
        if HEADS[name].slow and method == "auto" and (not local or _rarely_better(best, request.target)):
            continue
        request.progress(f"{name} heads", 0, 1)
        if not part:
            journal.ask(name)
        counts = best is not None and (best.certificate.kind == "proved" or not request.facts.declared.origin)
        tokens = [found.cost.tokens for found in (best,) if found is not None and counts] + ([] if limit is None else [limit])
        best = _better(best, attempt(name, request, reasons.setdefault(name, []), min(tokens, default=None)))
        journal.best = best if not part else journal.best
        _tell_calls(request)
        if best is not None and best.certificate.kind == "proved" and _settles(best, request):
            break
    if method == "auto" and not part and constant is None and best is not None and not _beyond_lookups(best, request):
        limit = lookup.fewest_tokens(request)  # what it rests on is derived where lookups are in play only
        best = None if limit is not None and best.cost.tokens >= limit else best
    return _better(best, constant)


def _rather_proved(best: Found, request: Request, reasons: dict[str, list[str]]) -> Found:
    """Facts that were declared are used: a lookup proved from them, which offers a smaller layer without a proof."""
    if best.certificate.kind == "proved" or not request.facts.declared.origin:
        return best
    if lookup.declared(request):
        try:
            found = lookup.search(request)
            if found.certificate.kind == "proved":
                return replace(found, smaller=best if best.cost.tokens < found.cost.tokens else None)
        except (Refused, OutOfCalls) as failure:
            reasons["lookup"] = [failure.reason.rstrip(".") if isinstance(failure, Refused) else str(failure)]
    why = next((f"{name}: {reasons[name][-1]}" for name in ("lookup", "spectral") if reasons.get(name)), "no head uses it")
    told = f"the target is a callable, and what was declared about it proves nothing here ({why}); the error is only observed"
    return replace(best, certificate=Certificate.nothing(request.norm, told, request.dtype))


def _asked(request: Request) -> list[str]:
    """All heads but lookups, and those asked by name alone, in the order in which they are asked."""
    names = (name for name, head in HEADS.items() if name != "lookup" and not head.by_name)
    return sorted(names, key=lambda name: not HEADS[name].early(request))


def _settles(best: Found, request: Request) -> bool:
    """Whether no other head is asked once this layer is proved."""
    return best.cost.tokens <= max(ENOUGH, request.target.d_out * request.target.n_out) or HEADS[best.method].early(request)


def _beyond_lookups(best: Found, request: Request) -> bool:
    """Whether a lookup surely has more tokens, or more numbers where the tokens of the layer are implied."""
    implied = best.layer.grouped and best.layer.work < best.layer.tokens
    return implied or lookup.surely_more(request, best.cost.tokens)


def _tell_calls(request: Request) -> None:
    """Say how often a callable was evaluated so far."""
    calls = request.target.calls
    if isinstance(calls, Calls):
        request.progress("points of the function", calls.count, calls.most or calls.count)


def attempt(name: str, request: Request, reasons: list[str], fewest: int | None) -> Found | None:
    """What one method finds; a refusal is a reason like others."""
    try:
        return HEADS[name].find(request, reasons, fewest, _for_a_part)
    except Discontinuous:
        raise
    except OutOfCalls as spent:
        reasons.append(str(spent))
        return None
    except Refused as refusal:
        reasons.append(refusal.reason.rstrip("."))
        return None


def found_again(
    target: Target, layer: AnyLayer, method: str, declared: Mapping[str, Any], by: Sequence[float], **asked: Any
) -> Found:
    """The search that made a stored layer, repeated from its target: refused unless it gives the same weights, bit by bit.

    Where the layer's temperature was changed `by` some factors, the search is what made the layer before.
    """
    if target.expression is None:
        raise Refused("a file does not hold the function or table that its layer was compiled from; compile it again.")
    lipschitz = declared.get("lipschitz", declared.get("euclidean"))
    for literal, chosen in product((False, True), (method, "auto")):  # a file does not say which were asked for
        try:
            request = request_of(target, dtype=layer.dtype, lipschitz=lipschitz, literal=literal, **asked)
            found = search(request, chosen)
        except (Refused, BadInput):
            continue
        if _same(to_tensors(reduce(at_temperature, by, found.layer))[0], to_tensors(layer)[0]):
            return found
    raise Refused("compiling its target again gives another layer (other keys or facts were given then); compile it again.")


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def _search_entries(request: Request, method: str) -> Found:
    """The smallest layer that is verified at every entry of a table or of samples, or the nearest entry itself."""
    from maxaffine.heads.entries import search as tables
    from maxaffine.heads.entries import search_samples as table_samples

    data = request.target.data
    closest.journal().ask("table")
    if isinstance(data, Table):
        return tables.search_hard(request, data) if method == NEAREST else tables.search(request, data, method)
    assert isinstance(data, Samples)
    return table_samples.search_hard(request, data) if method == NEAREST else table_samples.search(request, data, method)


def _rarely_better(best: Found | None, target: Target) -> bool:
    """Whether a tree, the slowest search, would hardly have fewer tokens than what is proved, or of a callable seen to fit."""
    done = best is not None and (best.certificate.kind == "proved" or target.expression is None)
    return done and best is not None and (target.box.dimension > 2 or best.cost.tokens <= FEW)


def _better(best: Found | None, found: Found | None) -> Found | None:
    """The proved one, then the one with fewer tokens."""
    if best is None or found is None:
        return best or found
    return min(best, found, key=lambda made: (made.certificate.kind != "proved", made.cost.tokens))


def _refusal(
    request: Request, what: str, reasons: dict[str, list[str]], last: Refused | None = None, reach: float | None = None
) -> Refused:
    """The closest miss where one was proved, else the last reason; what else was tried stands in the details.

    `reach` is an error for which a lookup is planned.
    """
    told = [one for said in reasons.values() for one in said] or ["nothing fits"]
    tried = [f"{name}: {'; '.join(_shortened(said))}" for name, said in reasons.items() if said and len(told) > 1]
    spread = request.evidence.spread if np.isinf(request.norm) and request.target.expression is not None else None
    most = np.inf if spread is None else 1.01 * spread / 2.0  # what a constant reaches
    misses = [
        (one.nearest_error, name, one)
        for name, said in reasons.items()
        for one in said
        if isinstance(one, Missed) and one.nearest_error is not None and one.nearest_error < most
    ]
    missed, name, sentence = min(misses, default=(np.inf, "", ""))
    many = isinstance(last, TooMany) and last.tokens > MANY
    ends = [one for one in (reach, None if last is None else last.nearest_error) if one is not None]
    within = min(ends, default=None)
    if misses and (within is None or missed < (2.0 if many else 1.0) * within):
        closest = f"{what}: the closest is {name}, {sentence}" if last is not None else f"{what}: {sentence}"
        return Refused(f"{closest}.", nearest_error=missed, tried=tried, sure=reach)
    if last is None:
        told = [_foremost(reasons, request.target.box.dimension) or told[-1]] if "lookup" in reasons else told
        return Refused(f"{what}: {told[-1]}.", tried=tried)
    if many and (foremost := _foremost(reasons, request.target.box.dimension)):
        most = most if request.target.expression is not None else 1.01 * request.seen_spread / 2.0 or np.inf
        within = None if within is None else min(most, within)
        remedy = last.remedy if "dtype" in last.remedy else None
        return Refused(f"{what}: {foremost}.", nearest_error=within, remedy=remedy, tried=tried, sure=reach)
    if within is None or within < most:
        remedy = {key: value for key, value in last.remedy.items() if key != "error"}
        return Refused(last.reason, nearest_error=within, remedy=remedy, tried=tried, sure=reach)
    return Refused(last.reason, nearest_error=most, tried=tried, sure=reach)


def _foremost(reasons: dict[str, list[str]], dimension: int) -> str | None:
    """The reason of the head that came nearest to serving: its last one about this target, not about a kind of request."""
    names = FOREMOST if dimension > 1 else ("axis", *FOREMOST)
    for name in names:
        about = [one for one in reasons.get(name, []) if not one.startswith(("only ", "callables only ", "not a "))]
        if about:
            return f"{name}, {about[-1]}"
    return None


def _shortened(said: list[str]) -> list[str]:
    """What was tried: the first and the closest attempts."""
    return said if len(said) <= 3 else [said[0], f"{len(said) - 3} more", *said[-2:]]
