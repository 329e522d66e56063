"""Spectral heads: few keys per direction of a smooth function, values fitted."""

from math import pi

from maxaffine.heads.head import Example, Head

HEAD = Head(
    name="spectral",
    summary="few keys per direction, values fitted; groups of keys add up",
    serves="smooth functions, sums of functions of few directions each, products of one-variable functions",
    search="spectral.search:search",
    examples=(Example("sin(x) + cos(y)", {"x": (-pi, pi), "y": (-pi, pi)}, 1e-6),),
)
