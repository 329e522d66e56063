"""Indicators of convex sets: polygons of single tokens, in L_p."""

from maxaffine.heads.level.search import Level

HEAD = Level()
