"""The heads, one folder each.  `HEADS` is the only list of them, in the order in which `auto` asks: cheap tests first.

Lookups come last: they are asked where nothing else is proved.
"""

from typing import Any

from maxaffine.heads import (
    axis,
    composite,
    curved,
    level,
    lookup,
    outputs,
    piecewise,
    ramp,
    regions,
    separated,
    spectral,
    tree,
)
from maxaffine.heads.head import Example, Head

__all__ = ["HEADS", "Example", "Head"]

HEADS: dict[str, Head[Any]] = {
    head.name: head
    for head in (
        piecewise.HEAD,
        axis.HEAD,
        composite.SUMS,
        regions.HEAD,
        curved.HEAD,
        level.HEAD,
        spectral.HEAD,
        composite.PRODUCTS,
        separated.HEAD,
        outputs.HEAD,
        tree.HEAD,
        ramp.HEAD,
        lookup.HEAD,
    )
}
