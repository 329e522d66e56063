"""Plans that aim ever farther below the error, for sums and products, whose parts share it."""

from collections.abc import Callable, Iterator

from maxaffine.heads.found import P
from maxaffine.heads.search import Search

AIMS = (0.97, 0.9, 0.8, 0.62)  # of the error, for all parts together


def aimed(plan_for: Callable[[float], P | None], search: Search) -> Iterator[P]:
    """Plans with fewer than `fewest` tokens; else a reason why there is none."""
    before, fewest = 0, search.fewest
    for aim in AIMS:
        plan = plan_for(aim * search.request.error)
        if plan is None:
            dtype = search.request.dtype
            search.note(f"a part needs more tokens than there may be, or values larger than {dtype} can add up")
            return
        if fewest is not None and plan.cells >= fewest:
            search.note(f"{plan.cells:,} tokens are no fewer than {fewest:,}")
            return
        if plan.cells != before or aim >= AIMS[1]:
            before = plan.cells
            yield plan
