"""Kinks along curves: polygons of single tokens beside smooth heads."""

from maxaffine.heads.curved.search import Curved

HEAD = Curved()
