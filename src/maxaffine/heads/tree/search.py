"""Trees of clusters: cells as large as their pieces allow, proved piece by piece."""

import itertools
import math
from collections.abc import Iterator

import numpy as np

from maxaffine.core import closest
from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.expression.expression import Expression
from maxaffine.heads.fitting import from_unit_box
from maxaffine.heads.head import Example, Head
from maxaffine.heads.lookup import plan as lookup
from maxaffine.heads.search import Search
from maxaffine.heads.tree.plan import TreePlan, build_tree, tree_plan
from maxaffine.heads.tree.prove import certify_tree
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.query import LEANS
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.covering import TooManyBoxes
from maxaffine.request import Request
from maxaffine.target.box import Box

MOST = {1: 1_500, 2: 40_000, 3: 12_000}  # tokens
# of the error, for the pieces on points; what is proved is larger by Ehlich and Zeller's constants
AIMS = {1: (0.92, 0.8, 0.6), 2: (0.86, 0.75, 0.6), 3: (0.74, 0.66, 0.55)}


def _steep(expression: Expression, box: Box) -> bool:
    """Whether the slope is infinite at a corner of the box: no ellipse of analyticity goes around one there."""
    corners = np.array(list(itertools.product(*zip(box.low, box.high, strict=True))))
    with np.errstate(all="ignore"):
        return bool(np.isinf(expression.gradient().evaluate(corners)).any())


class Trees(Head[TreePlan]):
    """Cells as large as their pieces allow; for a callable they are observed only."""

    name = "tree"
    summary = "cells of a 2^D-tree, each a cluster with affine values"
    serves = "functions of up to three variables with local features"
    slow = True
    examples = (Example("sqrt(.1 + x**2 + y**2)", {"x": (-1, 1), "y": (-1, 1)}, 3e-2),)

    def why_not(self, request: Request) -> str | None:
        """Few variables, one output token, the sup norm, no jumps."""
        target = request.target
        if target.box.dimension > 3 or target.n_out != 1 or math.isfinite(request.norm):
            return "only for up to three variables and one output token, in the sup norm"
        if target.expression is None and (request.require == "proved" or lookup.provable(request.evidence)):
            return "not proved for callables"
        if request.target.query:
            return LEANS
        if target.expression is not None and not target.expression.is_continuous:
            return "trees cannot follow jumps"
        if target.expression is not None and _steep(target.expression, target.box):
            return "its slope is not bounded at a corner of the box, where no piece is proved"
        return None

    def propose(self, search: Search) -> Iterator[TreePlan]:
        """Trees for smaller and smaller errors on points."""
        request = search.request
        dimension = request.target.box.dimension
        most = search.most(MOST[dimension])
        within = from_unit_box(request.target.box)

        def f(z: Array) -> Array:
            return request.target.values(within(z)).reshape(len(z), -1)

        size = float(np.abs(f(np.random.default_rng(request.seed).uniform(-1.0, 1.0, size=(2000, dimension)))).max()) or 1.0
        for aim in AIMS[dimension]:
            with closest.fits_of(True):
                plan = tree_plan(f, dimension, aim * request.error, size, request.dtype, most)
            if plan is None:
                raise Refused(f"no tree of at most {most:,} tokens fits the target on points")
            yield plan
            if isinstance(search.failure, TooManyBoxes):
                return

    def build(self, plan: TreePlan, request: Request) -> GroupedLayer:
        """One group of clusters, a cell each."""
        return build_tree(plan, request.target, request.dtype)

    def prove(self, layer: GroupedLayer, plan: TreePlan, request: Request, runtime: str) -> Certificate:
        """Piece by piece where each answers."""
        return certify_tree(layer, request.target, request.error, runtime)
