"""Separated heads: both ways to take an expression apart, plans for smaller and smaller goals until one is proved.

Callables are fitted and observed (sampled.py): nothing is proved about them.
"""

import math
from collections.abc import Iterator

from maxaffine.core.deadline import OutOfTime
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import compute_format
from maxaffine.expression.expression import Expression
from maxaffine.heads.assemble import layer_of
from maxaffine.heads.found import PROOF, Found
from maxaffine.heads.head import Example, Head
from maxaffine.heads.lookup import plan as lookup
from maxaffine.heads.search import FITTED, Search
from maxaffine.heads.separated.look import look
from maxaffine.heads.separated.plan import SeparatedPlan
from maxaffine.heads.separated.planner import NotPlanned, Planner
from maxaffine.heads.separated.prove import certify_separated
from maxaffine.heads.separated.relative import certify_relative
from maxaffine.heads.separated.sampled import MOST_VARIABLES, SampledPlan, SampledSearch
from maxaffine.heads.separated.together import together
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.local_error import NotEnclosed
from maxaffine.proofs.observe import Observed
from maxaffine.request import Request
from maxaffine.structure.groups import groups_of
from maxaffine.structure.separate import CHOICES, NotSeparated, separate
from maxaffine.structure.separation import Separation
from maxaffine.target.calls import Calls

FEW = 2  # variables in which no separated head was seen to have fewer tokens than a head that is proved already
LISTED = 4  # variables up to which other heads serve callables
MANY = 30.0  # times |f| at its smallest, from which on errors relative to |f(x)| are best proved factor by factor
TRIALS = 2  # plans whose proof ends because the target could not be bounded near the box
GOALS = (0.8, 0.5, 0.25, 0.1)  # of the error, that plans aim at one after the other


AnyPlan = SeparatedPlan | SampledPlan


class Separated(Head[AnyPlan]):
    """Sums of products over blocks of directions; functions of sums among the factors as sums of exponentials."""

    name = "separated"
    summary = "a sum of products of functions of few directions each, one set of keys per direction; tokens are implied"
    serves = "formulas of many variables: products, quotients, powers, functions of a sum or of a product"
    examples = (
        Example("1/(1 + x**2 + y**2 + z**2 + v**2 + w**2)", dict.fromkeys("xyzvw", (-1.0, 1.0)), 1e-3),
        Example("a*b*sqrt(c)*tanh(d/(g*h))", dict.fromkeys("abcdgh", (1.0, 3.0)), 1e-2),
    )

    relative = True

    def why_not(self, request: Request) -> str | None:
        """The sup norm, one output, an expression of at least two variables or a callable that may be observed."""
        if math.isfinite(request.norm):
            return "only in the sup norm"
        if request.target.d_out != 1 or request.target.n_out != 1:
            return "only one output"
        if request.target.expression is None:
            return self._why_not_seen(request)
        return "only for two and more variables" if len(request.target.expression.used) < 2 else None

    def _why_not_seen(self, request: Request) -> str | None:
        if not self.observable(request):
            return "callables only where a layer may be observed and not proved"
        served = 2 <= request.target.box.dimension <= MOST_VARIABLES and request.breaks is None
        return None if served else f"callables only of 2 to {MOST_VARIABLES} variables"

    def observable(self, request: Request) -> bool:
        """Callables that a lookup does not prove."""
        return request.target.expression is None and request.require is None and not lookup.provable(request.evidence)

    def why_unproved(self, plan: AnyPlan, request: Request) -> str:
        """The house's words, and what would be needed, in few variables as well."""
        said = super().why_unproved(plan, request)
        return said if PROOF in said else f"{said}; {PROOF}"

    def observe(self, request: Request, found: Found) -> Observed | None:
        """Of what was fitted, also at points drawn towards centre, faces and corners."""
        return look(request, found) if isinstance(found.plan, SampledPlan) else None

    def early(self, request: Request) -> bool:
        """Where product keys with listed values would have four directions or more, or relative errors span decades.

        Of a callable where calls are few.
        """
        if self.why_not(request) is not None:
            return False
        if request.target.expression is None:
            calls = request.target.calls
            return request.target.box.dimension > LISTED and isinstance(calls, Calls) and calls.most is not None
        if _many(request):
            return True
        groups = groups_of(request.target.expression)
        return any(group.dimension > 3 and group.factors is None for group in groups)

    def propose(self, search: Search) -> Iterator[AnyPlan]:
        """Plans aimed at smaller and smaller errors, the one with the fewest stored numbers first.

        Where relative errors span decades, plans by relative errors of factors; elsewhere only where there are no others.
        """
        return _sampled(search) if search.request.target.expression is None else self._proposed(search)

    def _proposed(self, search: Search) -> Iterator[SeparatedPlan]:
        request, reasons = search.request, dict[str, None]()
        used = len(request.target.expression.used)  # type: ignore[union-attr]
        if search.fewest is not None and (used <= FEW or search.fewest <= 2**used):
            raise Refused("its tokens are a product over all directions, and another head has fewer")
        planners, unbounded = sorted(self._planners(request, reasons), key=lambda one: one.relative != _many(request)), 0
        for goal in GOALS:
            found = list[SeparatedPlan]()
            for planner in tuple(planners):
                if any(plan.relative != planner.relative for plan in found):
                    continue
                try:
                    asked = request.error if request.pointwise is None or not planner.relative else request.pointwise.error
                    found.append(planner.plan(goal * asked))
                except NotPlanned as why:
                    reasons[str(why)] = None
                    planners.remove(planner)  # smaller goals take more
            if found:
                yield min(found, key=lambda plan: plan.stored)
                unbounded += isinstance(search.failure, NotEnclosed)
            if unbounded == TRIALS:
                break  # smaller goals ask for larger ellipses or smaller cells
        if reasons:
            raise Refused("; ".join(reasons))

    def _planners(self, request: Request, reasons: dict[str, None]) -> Iterator[Planner]:
        expression, box = request.target.expression, request.target.box
        seen = list[Separation]()
        assert expression is not None
        for choice in CHOICES:
            if choice == "fours" and (seen or not _tangled(expression)):
                return  # slow to prove, and for what nothing else holds
            try:
                separation = separate(expression, box.low, box.high, choice)
            except NotSeparated as why:
                if choice != "sums" or not why.together:
                    reasons[together(why, request)] = None
                continue
            if separation not in seen:
                seen.append(separation)
                if not _too_small(request):
                    yield Planner(separation, choice, box.low, box.high, request.error, request.dtype, expression.names)
                if request.pointwise is not None:
                    try:
                        least = request.pointwise.error
                        yield Planner(separation, choice, box.low, box.high, least, request.dtype, expression.names, True)
                    except NotPlanned as why:
                        reasons[str(why)] = None

    def build(self, plan: AnyPlan, request: Request) -> GroupedLayer:
        """One group."""
        return layer_of([plan.build()], request.target, request.dtype)

    def prove(self, layer: GroupedLayer, plan: AnyPlan, request: Request, runtime: str) -> Certificate:
        """Factor by factor."""
        if isinstance(plan, SampledPlan):
            raise Refused(f"it was fitted to values of a callable; {PROOF}")
        if plan.relative and request.pointwise is not None:
            return certify_relative(layer, plan, request.pointwise, runtime)
        return certify_separated(layer, plan, request.error, runtime)


def _sampled(search: Search) -> Iterator[SampledPlan]:
    """Fits to a callable, as long as the one before was found to be off; then how close they came is noted."""
    request = search.request
    if search.fewest is not None:
        raise Refused("its tokens are a product over all directions, and another head has fewer")
    sought = SampledSearch(request.target, request.error, request.dtype, request.seed)
    try:
        for plan in sought.plans():
            yield plan
            if search.failure is not None and search.failure.nearest_error is not None:
                sought.refuted = min(sought.refuted, search.failure.nearest_error / request.error)
    except OutOfTime:
        search.note(sought.why())
        raise
    search.note(sought.why())


def _tangled(expression: Expression) -> bool:
    """Whether a part of a sum depends on more directions than other heads list values for."""
    return any(group.dimension > LISTED and group.factors is None for group in groups_of(expression))


def _many(request: Request) -> bool:
    """Whether an error relative to |f(x)| is asked for of a target that spans decades."""
    return request.pointwise is not None and request.largest > MANY * request.pointwise.least


def _too_small(request: Request) -> bool:
    """Whether the absolute error that stands for a relative one is lost in the rounding of the largest values."""
    unit = compute_format(request.dtype).unit
    return request.pointwise is not None and request.error < FITTED * unit * request.largest
