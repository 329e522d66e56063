"""Piecewise affine targets: one token per piece."""

from maxaffine.heads.head import Example, Head

HEAD = Head(
    name="piecewise",
    summary="one token per affine piece, its score a convex lifting of the pieces",
    serves="continuous, piecewise affine functions of any number of variables",
    search="piecewise.search:search",
    seen="regions.seen_search:search_pieces",
    examples=(Example("max(x, y) + min(x - y, .5)", {"x": (-1, 1), "y": (-1, 1)}, 1e-6),),
)
