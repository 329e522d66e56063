"""Trees of cells: local heads side by side."""

from maxaffine.heads.head import Example, Head

HEAD = Head(
    name="tree",
    summary="cells of a 2^D-tree, each a cluster with affine values",
    serves="functions of up to three variables with local features",
    search="tree.search:search",
    slow=True,
    examples=(Example("sqrt(.1 + x**2 + y**2)", {"x": (-1, 1), "y": (-1, 1)}, 3e-2),),
)
