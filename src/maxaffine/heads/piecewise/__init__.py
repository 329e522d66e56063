"""Piecewise affine targets: one token per piece."""

from maxaffine.heads.piecewise.search import Piecewise

HEAD = Piecewise()
