"""Clusters along one direction: kinks, jumps, singular ends and local detail."""

from maxaffine.heads.head import Example, Head

HEAD = Head(
    name="axis",
    summary="cells along one direction, each a small cluster of keys",
    serves="functions of one variable or of one direction w . x, plus an affine function",
    search="axis.search:search",
    examples=(Example("abs(sin(7*x))", {"x": (-1, 1)}, 1e-4),),
)
