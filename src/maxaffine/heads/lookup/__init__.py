"""Lookups: the paper's construction, cells with one value each."""

from maxaffine.heads.lookup.search import Lookup

HEAD = Lookup()
