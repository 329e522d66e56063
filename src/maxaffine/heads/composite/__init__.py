"""Sums and products of heads along one direction each."""

from maxaffine.heads.head import Example, Head

SUMS = Head(
    name="sums",
    summary="clusters along one direction each beside product keys, tokens added up",
    serves="sums whose non-smooth terms each depend on one direction",
    search="composite.sums_search:search",
    examples=(Example("abs(sin(5*x)) + cos(y)**2", {"x": (-1, 1), "y": (-1, 1)}, 1e-3),),
)
PRODUCTS = Head(
    name="products",
    summary="clusters along every factor's direction, all combinations of them",
    serves="products of one-direction factors, and sums containing one",
    search="composite.products_search:search",
    examples=(Example("abs(sin(7*x))*exp(y)", {"x": (-1, 1), "y": (-1, 1)}, 1e-3),),
)
