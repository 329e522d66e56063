"""That two expressions are the same real function on a box, by canonical forms of the checker's own.

Both are expanded into sums of monomials (canonical.py), by rules whose conditions are proved on the box; they are the same where
the difference of their forms is 0 (vanishing.py).  That says so wherever both are defined, and both are shown to be defined.
Whatever is not shown is refused: there are equal functions of which this cannot tell.
"""

from maxaffine.checker.canonical import Forms
from maxaffine.checker.monomials import WHY
from maxaffine.checker.proved import NotProved
from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.expression.expression import Expression
from maxaffine.target.target import Target


def doubt_rewritten(target: Target) -> None:
    """NotProved unless the expression of a target is the published one where that was rewritten (target/rewritten.py)."""
    if target.published is None or target.expression is None:
        return
    for k in range(target.expression.count):
        try:
            doubt_same(target.published.output(k), target.expression.output(k), target.box.low, target.box.high)
        except NotProved as failure:
            raise NotProved(f"its target was rewritten, and is not shown to be what was written: {failure}") from None


def doubt_same(target: Expression, other: Expression, low: Array, high: Array) -> None:
    """NotProved unless both expressions of one output are shown to be the same function on the box."""
    if target.names != other.names or target.count != 1 or other.count != 1:
        raise NotProved(WHY)
    try:
        forms = Forms(target.names, low, high)
        second, first = forms.of(other), forms.of(target)  # the sum of products first: its parts are enclosed more tightly
        same = forms.same(first, second)
        forms.settle_pending()
    except (BadInput, RecursionError, OverflowError, MemoryError):
        raise NotProved(WHY) from None
    if not same:
        raise NotProved(WHY)
