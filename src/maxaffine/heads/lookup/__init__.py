"""Lookups: the paper's construction, cells with one value each."""

from maxaffine.heads.head import Example, Head

HEAD = Head(
    name="lookup",
    summary="one token per cell of a grid, the value of the cell",
    serves="anything with a Lipschitz constant, a modulus or an expression",
    search="lookup.search:search",
    examples=(Example("sin(3*x)", {"x": (-1, 1)}, 0.05),),
)
