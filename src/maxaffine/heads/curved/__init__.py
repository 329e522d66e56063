"""Kinks along curves: polygons of single tokens beside smooth heads."""

from maxaffine.heads.head import Example, Head

HEAD = Head(
    name="curved",
    summary="a smooth head, and a convex polygon of single tokens for the kink",
    serves="functions of a few variables with one kink along a convex curve or the graph of a function",
    search="curved.search:search",
    examples=(Example("max(x**2 + y**2, .5)", {"x": (-1, 1), "y": (-1, 1)}, 3e-2),),
)
