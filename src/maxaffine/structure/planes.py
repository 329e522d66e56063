"""Switches on hyperplanes: the planes, the regions between them, and the branch of the target on each.

Every switch that changes sides inside the box must have an affine argument with rational coefficients.  Arguments that are
multiples of one another share a plane.  Regions are the sign vectors of the planes with interior points in the box, complete
and exact (core/polytopes.py).  Everything here is an identity; nothing is sampled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from maxaffine.core.polytopes import Polytope, TooLarge
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph, Node
from maxaffine.structure.switches import Copies, Switch, affine_form, copy, forced, rewritten, switches
from maxaffine.target.box import Box

Plane = tuple[Fraction, ...]  # coefficients of x, then the constant

MOST_REGIONS = 64
MOST_SWITCHES = 6
SIDED = frozenset({"abs", "max", "min", "sign", "negative", "nonpositive"})


class NotRegions(Exception):
    """A target whose switches are not all on hyperplanes."""


@dataclass(frozen=True)
class Crossing:
    """A switch whose argument is `ratio` times the function of plane number `plane`."""

    switch: Switch
    plane: int
    ratio: Fraction

    @property
    def jumps(self) -> bool:
        """Whether the target may be discontinuous there."""
        return self.switch.kind == "jump"


@dataclass(frozen=True)
class Arrangement:
    """Planes, the switches on them, choices that hold on the whole box, and the regions as sign vectors."""

    expression: Expression
    planes: tuple[Plane, ...]
    crossings: tuple[Crossing, ...]
    settled: Mapping[int, int]
    regions: tuple[tuple[int, ...], ...]

    def choices(self, signs: tuple[int, ...]) -> dict[int, int]:
        """What every switch chooses where the planes have these signs."""
        found = dict(self.settled)
        for one in self.crossings:
            found[one.switch.place] = signs[one.plane] * (1 if one.ratio > 0 else -1)
        return found

    def branch(self, signs: tuple[int, ...]) -> Expression:
        """The target where the planes have these signs, and its continuation elsewhere."""
        return forced(self.expression, self.choices(signs))

    def opened(self, crossing: Crossing, choices: Mapping[int, int]) -> Expression:
        """The target with the value of one switch as a further variable v, all others chosen."""
        return self._rewritten(crossing, choices, self.expression.outputs)

    def sides(self, crossing: Crossing, choices: Mapping[int, int]) -> Expression:
        """The values that a switch chooses from, all others chosen: u for abs(u), a and b for max(a, b)."""
        return self._rewritten(crossing, choices, self.expression.nodes[crossing.switch.place].args)

    def _rewritten(self, crossing: Crossing, choices: Mapping[int, int], wanted: Sequence[int]) -> Expression:
        at, text, names = crossing.switch.place, f"({self.expression.text}) with a switch opened", (*self.expression.names, "v")

        def opened(graph: Graph, place: int, *_: object) -> int | None:
            return graph.variable(self.expression.dimension) if place == at else None

        return rewritten(self.expression, opened, choices, text=text, names=names, wanted=wanted)

    def others(self, crossing: Crossing) -> list[dict[int, int]]:
        """Every combination of choices of the other switches."""
        found = [dict(self.settled)]
        for one in self.crossings:
            if one is not crossing:
                found = [{**known, one.switch.place: side} for known in found for side in (-1, 1)]
        return found


def arrangement(expression: Expression, box: Box) -> Arrangement:
    """The planes and regions of a target; NotRegions where it has none, or other switches besides."""
    expression = rewritten(expression, _split)
    whole = Polytope.box([float(a) for a in box.low], [float(b) for b in box.high])
    planes: list[Plane] = []
    crossings: list[Crossing] = []
    settled: dict[int, int] = {}
    for switch in switches(expression):
        if not switch.chosen:
            if switch.kind == "jump":
                raise NotRegions(f"{switch.op} is not a switch between two branches")
            continue
        form = affine_form(switch.argument)
        if form is None or form.exact is None or switch.op not in SIDED:
            raise NotRegions(f"{switch.argument.text} is not affine with rational coefficients, or {switch.op} has more sides")
        row = (*form.exact[0], form.exact[1])
        negative, positive = whole.sides(row)
        if not (negative and positive):
            if switch.kind == "jump" and whole.face(row) is not None:
                raise NotRegions(f"{switch.argument.text} vanishes on an edge of the box, where the target jumps")
            settled[switch.place] = 1 if positive else -1
            continue
        lead = next(c for c in row[:-1] if c)
        plane = tuple(c / lead for c in row)
        if plane not in planes:
            planes.append(plane)
        crossings.append(Crossing(switch, planes.index(plane), lead))
    if not planes:
        raise NotRegions("nothing switches inside the box")
    if len(crossings) > MOST_SWITCHES:
        raise NotRegions(f"it has {len(crossings)} switches, more than {MOST_SWITCHES}")
    parts: list[tuple[Polytope, tuple[int, ...]]] = [(whole, ())]
    try:
        for plane in planes:
            parts = [
                (part, (*signs, side))
                for polytope, signs in parts
                for part, side in zip(polytope.cut(plane), (-1, 1), strict=True)
                if part is not None and part.spans()
            ]
            if len(parts) > MOST_REGIONS:
                raise NotRegions(f"it has more than {MOST_REGIONS} regions")
    except TooLarge as failure:
        raise NotRegions(str(failure)) from None
    return Arrangement(expression, tuple(planes), tuple(crossings), settled, tuple(signs for _, signs in parts))


def _split(graph: Graph, _: int, node: Node, args: Copies) -> int | bool:
    """abs of a product as the product of abs, even powers as they are."""
    place = copy(graph, node, args)
    if isinstance(place, bool) or graph.nodes[place].op != "abs":
        return place
    inside = graph.nodes[graph.nodes[place].args[0]]
    scale, parts = graph.one, inside
    if inside.op == "lin" and len(inside.args) == 3 and graph.is_zero(inside.args[0]):  # c times a product
        scale, parts = graph.apply("abs", inside.args[1]), graph.nodes[inside.args[2]]
    if parts.op != "prod":
        return place
    total = scale
    for base, n in zip(parts.args, parts.data, strict=True):
        total = graph.multiply(total, graph.integer_power(base if n % 2 == 0 else graph.apply("abs", base), n))
    return total
