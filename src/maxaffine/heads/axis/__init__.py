"""Clusters along one direction: kinks, jumps, singular ends and local detail."""

from maxaffine.heads.axis.search import Axis

HEAD = Axis()
