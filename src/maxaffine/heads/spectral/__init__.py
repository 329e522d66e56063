"""Spectral heads: few keys per direction of a smooth function, values fitted."""

from maxaffine.heads.spectral.search import Spectral

HEAD = Spectral()
