"""Trees of cells: local heads side by side."""

from maxaffine.heads.tree.search import Trees

HEAD = Trees()
