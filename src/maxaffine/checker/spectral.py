"""Smooth targets re-proved: the target's groups read off its expression again, each by Ehlich and Zeller, and the leak between.

The sum of the groups is compared with the target at random points.  In the column of group g, another group h has at most
e^{log Z_h - log Z_g - bias} of the weight.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from maxaffine.checker.certificate import stated_reserve
from maxaffine.checker.literal_groups import leak, literally
from maxaffine.checker.product_group import ProductGroup
from maxaffine.checker.proved import DOUBLE, NotProved, Proved
from maxaffine.checker.reader import Layer
from maxaffine.checker.target_parts import doubt_parts, expression_of, group_at
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import compute_format
from maxaffine.structure.groups import Group, groups_of, rotated_group, shared_groups, whole_group
from maxaffine.target.target import Target

FRACTION = re.compile(r"-?[0-9]{1,40}(/[1-9][0-9]{0,39})?")


def check_spectral(layer: Layer, record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """Sum over the groups of sup |F_g - f_g|, the leak between groups, and rounding."""
    groups = _match(target, record["plan"]["groups"])
    if len(layer.groups) != len(groups) or layer.affine_part is not None:
        raise NotProved("the layer's groups are not those of its plan.")
    bias, parts, total = layer.bias if len(groups) > 1 else 0.0, [], 0.0
    for g, group in enumerate(groups):
        part = ProductGroup.of(layer, g, group, bias)
        bound, top = part.prove(error / len(groups))
        total += bound
        parts.append(replace(part, extent=top))
    levels = [part.levels for part in parts] if len(parts) > 1 else []
    total += leak(levels, [part.extent for part in parts], layer.bias, [0.0] * len(parts))
    size = sum(part.extent for part in parts)
    total += (compute_format(layer.dtype).unit + (len(groups) + 4) * DOUBLE) * size
    # A runtime may evaluate polynomials that are off by what the record reserves, and by 2^-42 of the groups' size.
    total += stated_reserve(record) + 2.0**-42 * size

    literal = literally(layer, total, lambda frame: [part.column(frame) for part in parts])
    return Proved(total, "Chebyshev points and ellipses, group by group", literal)


def _fraction(text: Any) -> Fraction:
    """A fraction of a file; forms such as 1e999999999 would take for ever."""
    if not isinstance(text, str) or FRACTION.fullmatch(text) is None:
        raise NotProved("a direction is not written as a fraction.")
    return Fraction(text)


def _match(target: Target, rows: Any) -> list[Group]:
    """The expression's groups in the file's order; every one exactly once, and together the target."""
    expression = expression_of(target, "spectral layers", one_output=False)
    wanted = [tuple(tuple(_fraction(c) for c in w) for w in row["directions"]) for row in rows]
    if target.d_out == 1:
        own = groups_of(expression)
    else:  # sums over directions that the outputs share, or all in one group
        own = shared_groups(expression) if len(wanted) > 1 else (whole_group(expression),)
    found = {group.directions: group for group in own}
    if len(wanted) == 1 and wanted[0] not in found:  # one group of other directions: the target rewritten in them
        turned = rotated_group(expression, wanted[0])
        if turned is not None:
            found = {wanted[0]: turned}
    if sorted(wanted) != sorted(found):
        raise NotProved("its groups are not those of its target.")
    groups = [found[key] for key in wanted]
    zero = Interval.point(0.0)
    doubt_parts(target, lambda x: sum((group_at(group, x) for group in groups), zero), "the sum of its groups is not its target.")
    return groups
