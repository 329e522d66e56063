"""Sums of products of functions of few directions each, functions of sums among them as sums of exponentials."""

from maxaffine.heads.separated.search import Separated

HEAD = Separated()
