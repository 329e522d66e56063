"""Exact decompositions of an expression, shared with the checker."""
