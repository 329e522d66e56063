"""Targets that switch on hyperplanes: one cluster per region."""

from maxaffine.heads.head import Example, Head

HEAD = Head(
    name="regions",
    summary="one cluster per region between the planes, all on the same keys",
    serves="functions of two or three variables whose kinks and jumps lie on planes",
    search="regions.search:search",
    seen="regions.seen_search:search_regions",
    examples=(Example("abs(x + 2*y - .3)*cos(x)", {"x": (-1, 1), "y": (-1, 1)}, 1e-3),),
)
