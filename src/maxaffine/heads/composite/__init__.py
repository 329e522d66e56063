"""Sums and products of heads along one direction each."""

from maxaffine.heads.composite.search import Products, Sums

SUMS, PRODUCTS = Sums(), Products()
