"""A lookup where the time of a search is over: one that little more time allows, or the error that such a one is proved to.

Lookups are the heads whose time is known before they are made: so much for every cell, once facts about the target are derived.
"""

from maxaffine.core.deadline import OutOfTime, extended
from maxaffine.core.errors import Refused
from maxaffine.heads.found import Found
from maxaffine.heads.lookup.nearest import nearest
from maxaffine.heads.lookup.search import search
from maxaffine.request import Request

SECONDS_PER_CELL = 2e-6  # of a lookup that is built and proved, twice what is measured where the target costs little
SHARE = 0.25  # of `max_seconds`, that a lookup may take when they are over,
LEAST = 0.1  # and so many seconds in any case
SLACK = 5.0  # times that, after which it is left: another machine, another target
MOST = 1_000_000  # tokens of a lookup that is returned where others were asked for


def in_time(request: Request) -> tuple[Found | None, float | None]:
    """The lookup that little more time allows; else the nearest error that a lookup in that time, or one token, is proved to."""
    assert request.max_seconds is not None
    seconds = max(LEAST, SHARE * request.max_seconds)
    most = min(MOST, int(seconds / SECONDS_PER_CELL))
    found = None
    try:
        with extended(SLACK * seconds):
            found = nearest(request, most)
        with extended(SLACK * seconds):
            if found is not None and found <= request.error:
                return search(request), None
    except (OutOfTime, Refused):
        pass
    return None, found
