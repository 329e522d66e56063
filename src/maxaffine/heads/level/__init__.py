"""Indicators of convex sets: polygons of single tokens, in L_p."""

from maxaffine.heads.head import Example, Head

HEAD = Head(
    name="level",
    summary="one token inside a polygon, one behind every edge",
    serves="in L_p, functions of two values, one of them on a convex set",
    search="level.search:search",
    examples=(Example("where(x**2 + y**2 < .5, 1, 0)", {"x": (-1, 1), "y": (-1, 1)}, 0.2, {"norm": 1.0}),),
)
