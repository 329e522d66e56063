"""Sums and products of heads along one direction each."""

from maxaffine.heads.composite.products_search import Products
from maxaffine.heads.composite.sums_search import Sums

SUMS, PRODUCTS = Sums(), Products()
