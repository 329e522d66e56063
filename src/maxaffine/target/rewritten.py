"""Expressions rewritten where that shows that they are defined on the box: the same function, or its continuous extension."""

import numpy as np

from maxaffine.core.intervals import Interval
from maxaffine.expression.conjugate import conjugated
from maxaffine.expression.cosine_law import as_norms
from maxaffine.expression.expression import Expression
from maxaffine.expression.removable import extended
from maxaffine.target.box import Box


def continued(expression: Expression, box: Box) -> Expression:
    """The expression, with its removable singularities removed where it has some on the box and none then."""
    whole = Interval(box.low[None], box.high[None])
    if expression.defined(whole).all() or np.isfinite(expression.enclose(whole).magnitude).all():
        return expression
    other = extended(expression)
    return expression if other is None or not other.defined(whole).all() else other


def without_cancellation(expression: Expression, box: Box) -> Expression | None:
    """The same function with differences rewritten that may nearly cancel, where that shows that it is defined; else None."""
    whole = Interval(box.low[None], box.high[None])
    if expression.defined(whole).all():
        return None
    squares = as_norms(expression)
    if squares is not None and squares.defined(whole).all():
        return squares
    made = conjugated(expression if squares is None else squares)
    if made is None or not (made[1].enclose(whole).lo > 0.0).all() or not made[0].defined(whole).all():
        return None
    return made[0]
