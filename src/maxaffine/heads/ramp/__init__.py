"""Ramp heads: the target's piecewise linear interpolant as a sum of softmax ramps along one direction."""

from maxaffine.heads.ramp.search import HEAD

__all__ = ["HEAD"]
