"""Plans of layers of several outputs: which entries go together, and the layer that was found for each of these parts.

Entries that depend on the same variables, in one output token, share keys where that takes fewer tokens than a head each, and so
do smooth ones whose variables overlap; all others have heads of their own.  Entries that are the same function up to the names
of variables are searched for once.

    ||F_e - f_e||_p  <=  scale ||F_p - f_p||        scale = |box|^(1/p), or |box of the other variables|^(1/p) of an L_p part

Entries that are sums share the parts of their terms (structure/terms.py), where that takes fewer tokens still; what is asked of
an entry is shared out over its terms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Missed, Refused
from maxaffine.heads.found import Ask, Found, search_worst
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.side_by_side import OutputsLayer, Part
from maxaffine.layer.temperature import at_temperature
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.normalisers import biased
from maxaffine.proofs.side_by_side import scale_of
from maxaffine.request import Request, seen_range
from maxaffine.structure.terms import Term, terms_of
from maxaffine.target.evidence import Evidence, Facts
from maxaffine.target.parts import adds_up, of_text, part_of
from maxaffine.target.target import Target

TOGETHER = 16  # entries that are looked at as one part
WIDE = 4  # variables of such a part, where its entries do not all depend on the same ones
SMOOTH = ("spectral", "axis", "products")  # heads of entries that may be one smooth function of several outputs
SUMMED = 0.999  # of an error that its terms have, the rest is for adding them up


@dataclass(frozen=True)
class PartPlan:
    """A layer for some entries, or for a term of them: what was asked, and what was found."""

    entries: tuple[int, ...]
    variables: tuple[int, ...]
    request: Request
    found: Found
    term: Term | None = None

    @property
    def also(self) -> tuple[tuple[int, int], ...]:
        """Further output tokens that it is added to, with signs."""
        return () if self.term is None else self.term.also

    def to_json(self) -> dict[str, Any]:
        """What a file keeps of a plan; the certificate stands within that of the whole."""
        term = {} if self.term is None else {"term": self.term.text}
        return {"entries": list(self.entries), **term, "method": self.found.method, "plan": self.found.plan.to_json()}


@dataclass(frozen=True)
class OutputsPlan:
    """The parts, every entry in one of them."""

    parts: tuple[PartPlan, ...]
    asked: float  # the error that the request was made with
    argument: str = "outputs"

    def sharpened(self, r: float) -> OutputsPlan:
        """The plan of the layer whose logits are r times as large; what was proved and seen of the parts is gone."""
        parts = []
        for part in self.parts:
            found = part.found
            plan = found.plan if found.head is None else found.head.sharpened(found.plan, r)
            nothing = Certificate.nothing(found.certificate.norm, "its temperature was changed", found.layer.dtype)
            layer = at_temperature(found.layer, r)
            found = replace(found, plan=plan, layer=layer, certificate=nothing, observed=None, prove=None)
            parts.append(replace(part, found=found))
        return replace(self, parts=tuple(parts))

    @property
    def cells(self) -> int:
        """Tokens of all parts together."""
        return sum(part.found.cost.tokens for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """The parts."""
        return {"plan": "outputs", "method": "outputs", "argument": "outputs", "parts": [part.to_json() for part in self.parts]}


def build_outputs(plan: OutputsPlan, request: Request) -> OutputsLayer:
    """The layers that were found, side by side, with the bias between all groups that the literal form needs."""
    target, parts = request.target, []
    for part in plan.parts:
        layer = part.found.layer
        assert isinstance(layer, GroupedLayer)
        parts.append(Part(part.entries, part.variables, layer, part.also))
    box = target.box
    made = OutputsLayer(tuple(parts), target.d_out, target.n_out, 0.0, box.low, box.high, target.input_shapes)
    return biased(made, min(part.request.error for part in plan.parts))


class Planner:
    """Parts of one request, by a search for each."""

    def __init__(self, request: Request, reasons: list[str], ask: Ask) -> None:
        self.request, self.reasons, self.ask = request, reasons, ask
        self.known: dict[Any, Found | str] = {}

    def plan(self, fewest: int | None) -> OutputsPlan | None:
        """Parts of fewer than `fewest` tokens in all; None where an entry has no head or there are too many."""
        target, alone = self.request.target, list[PartPlan]()
        count = target.d_out * target.n_out
        for entry in range(count):
            left = None if fewest is None else fewest - sum(part.found.cost.tokens for part in alone) - (count - entry - 1)
            self.request.progress("outputs", entry, count)
            found = self._part((entry,), left, self.reasons)
            if found is None:
                return None
            alone.append(found)
        return OutputsPlan(tuple(self._as_terms(self._shared(alone))), self.request.error)

    def _shared(self, alone: list[PartPlan]) -> list[PartPlan]:
        """Entries of one output token and of the same variables together, where that takes fewer tokens."""
        n_out, sets = self.request.target.n_out, dict[tuple[int, tuple[int, ...]], list[PartPlan]]()
        for part in alone:
            sets.setdefault((part.entries[0] % n_out, part.variables), []).append(part)
        made = []
        for parts in sets.values():
            tokens = sum(part.found.cost.tokens for part in parts)
            found = None
            if len(parts) < tokens and 1 < len(parts) <= TOGETHER:
                found = self._part([part.entries[0] for part in parts], tokens, [])
            made += parts if found is None else [found]
        return sorted(self._overlapping(made), key=lambda part: part.entries)

    def _overlapping(self, parts: list[PartPlan]) -> list[PartPlan]:
        """Smooth parts of one output token whose variables overlap, such as a*b and a*c, where one head is smaller."""
        n_out, made = self.request.target.n_out, list[PartPlan]()
        for column in range(n_out):
            waiting = [part for part in parts if part.entries[0] % n_out == column]
            smooth = [part for part in waiting if part.found.method in SMOOTH and part.found.certificate.kind == "proved"]
            made += [part for part in waiting if not any(part is one for one in smooth)]
            while smooth:
                one = smooth.pop(0)
                near = [two for two in smooth if set(two.variables) & set(one.variables)]
                entries = sorted(e for part in (one, *near) for e in part.entries)
                tokens = sum(part.found.cost.tokens for part in (one, *near))
                wide = len({v for part in (one, *near) for v in part.variables})
                found = None
                if near and wide <= WIDE and len(entries) <= TOGETHER and tokens > 2:
                    found = self._part(entries, tokens, [])
                made.append(one if found is None else found)
                smooth = smooth if found is None else [two for two in smooth if not any(two is x for x in near)]
        return made

    def _as_terms(self, parts: list[PartPlan]) -> list[PartPlan]:
        """Entries that are sums as their terms, where these take fewer tokens."""
        request, target = self.request, self.request.target
        if target.expression is None or math.isfinite(request.norm) or request.gap is not None:
            return parts
        terms = terms_of(target.expression, target.n_out)
        made = [(term.text, term.writes(target.n_out)) for term in terms or ()]
        if terms is None or not adds_up(target, made):
            return parts
        counts = np.zeros(target.d_out * target.n_out)
        for _, writes in made:
            for _, e, _ in writes:
                counts[e] += 1
        for together in _linked([(part, set(part.entries)) for part in parts], [(t, t.reach(target.n_out)) for t in terms]):
            before = [one for one in together if isinstance(one, PartPlan)]
            after = self._terms([one for one in together if isinstance(one, Term)], before, counts)
            if after is not None:
                parts = [*(part for part in parts if not any(part is one for one in before)), *after]
        return sorted(parts, key=lambda part: part.entries)

    def _terms(self, terms: Sequence[Term], before: Sequence[PartPlan], counts: Array) -> list[PartPlan] | None:
        """A part for every term, of fewer tokens than the parts `before` in all."""
        left, made = sum(part.found.cost.tokens for part in before), list[PartPlan]()
        if len(terms) == len(before) == 1 and not terms[0].also:
            return None
        for waiting, term in zip(range(len(terms) - 1, -1, -1), terms, strict=True):
            left -= waiting
            if left < 2:
                return None
            found = self._part(term.entries, left, [], (term, counts))
            if found is None:
                return None
            made.append(found)
            left += waiting - found.found.cost.tokens
        return made

    def _part(
        self, entries: Sequence[int], fewest: int | None, reasons: list[str], shared: tuple[Term, Array] | None = None
    ) -> PartPlan | None:
        """The smallest layer for some entries, in the norm of the whole or in the sup norm; why not, in `reasons`.

        Of a term its share of what is asked of every entry that it is `shared` by, which are sums of so many.
        """
        term = None if shared is None else shared[0]
        variables, request = asked_of(self.request, entries) if shared is None else _asked_of_term(self.request, *shared)
        found: Found | None = None
        for one in _norms(self.request, request):
            key = _same_function(one, entries)
            if key not in self.known:
                try:
                    tokens = [n for n in (fewest, None if found is None else found.cost.tokens) if n is not None]
                    made = self.ask(one, min(tokens, default=None))
                    self.known[key] = replace(made, observed=made.observed or search_worst(one, made))
                except Refused as refusal:
                    row, column = (n + 1 for n in divmod(entries[0], self.request.target.n_out))
                    place = f"output {row}" if self.request.target.n_out == 1 else f"output ({row}, {column})"
                    reasons.append(Missed.of(f"{place} alone", refusal))
                    continue
            known = self.known[key]
            if isinstance(known, Found) and (found is None or known.cost.tokens < found.cost.tokens):
                found, request = known, one
        return None if found is None else PartPlan(tuple(entries), variables, request, found, term)


def _linked(parts: list[tuple[PartPlan, set[int]]], terms: list[tuple[Term, set[int]]]) -> list[list[PartPlan | Term]]:
    """Parts and terms that belong together, since they have entries in common."""
    made: list[tuple[list[PartPlan | Term], set[int]]] = []
    given: list[tuple[PartPlan | Term, set[int]]] = [*parts, *terms]
    for one, reach in given:
        near = [other for other in made if other[1] & reach]
        made = [other for other in made if not other[1] & reach]
        made.append(([*(x for other in near for x in other[0]), one], reach.union(*(other[1] for other in near))))
    return [together for together, _ in made]


def _asked_of_term(request: Request, term: Term, counts: Array) -> tuple[tuple[int, ...], Request]:
    """The variables of a term, and what is asked of it."""
    variables, target = of_text(request.target, term.text, len(term.entries))
    errors = [(request.errors[e] if request.errors else request.error) / counts[e] for e in term.reach(request.target.n_out)]
    return variables, _asked(request, target, SUMMED * float(min(errors)))


def asked_of(request: Request, entries: Sequence[int]) -> tuple[tuple[int, ...], Request]:
    """The variables of some entries, and what is asked of them: the smallest of their errors, in a box of these variables."""
    variables, target = part_of(request.target, entries)
    errors = [request.errors[e] for e in entries] if request.errors else [request.error]
    return variables, _asked(request, target, min(errors))


def _asked(request: Request, target: Target, error: float) -> Request:
    """What is asked of a part."""
    least, most = seen_range(target)
    facts = request.facts.declared if target.expression is None else Evidence()
    jumps = target.expression is None or not target.expression.is_continuous
    return replace(
        request, target=target, error=error, errors=None, facts=Facts(target, facts), partition=None, centres=None,
        breaks=request.breaks if target.box.dimension == 1 else None, gap=request.gap if jumps else None, out=None, executor=None,
        largest=max(0.0, float(-least.min()), float(most.max())), seen_spread=float((most - least).max()),
    )  # fmt: skip


def _norms(whole: Request, part: Request) -> list[Request]:
    """What is asked of a part: an L_p error as it is, and the sup-norm error that implies it."""
    if math.isinf(whole.norm):
        return [part]
    width = whole.target.box.width, part.target.box.width
    asked = replace(part, error=part.error / scale_of(*width, whole.norm, part.norm))
    sup = replace(part, norm=math.inf, error=part.error / scale_of(*width, whole.norm, math.inf))
    continuous = part.target.expression is not None and part.target.expression.is_continuous
    return [sup, asked] if continuous else [asked]


def _same_function(request: Request, entries: Sequence[int]) -> Any:
    """What requests of the same function have in common, whatever their variables are called."""
    expression, box = request.target.expression, request.target.box
    if expression is None:
        return tuple(entries), request.norm
    return expression.nodes, expression.outputs, box.low.tobytes(), box.high.tobytes(), request.error, request.norm

