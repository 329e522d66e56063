"""Targets that switch on hyperplanes: one cluster per region."""

from maxaffine.heads.regions.search import Regions

HEAD = Regions()
