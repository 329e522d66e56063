"""Smooth targets re-proved: the target's groups read off its expression again, each by Ehlich and Zeller, and the leak between.

The sum of the groups is compared with the target at random points.  In the column of group g, another group h has at most
e^{log Z_h - log Z_g - bias} of the weight.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from maxaffine.checker.certificate import stated_reserve
from maxaffine.checker.literal_groups import Frame, leak, literal_bound
from maxaffine.checker.product_group import ProductGroup
from maxaffine.checker.proved import DOUBLE, Form, NotProved, Proved
from maxaffine.checker.reader import Layer
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import compute_format
from maxaffine.structure.groups import Group, groups_of, rotated_group, whole_group
from maxaffine.target.target import Target

FRACTION = re.compile(r"-?[0-9]{1,40}(/[1-9][0-9]{0,39})?")


def check_spectral(tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """Sum over the groups of sup |F_g - f_g|, the leak between groups, and rounding."""
    if target.expression is None or target.n_out != 1:
        raise NotProved("its target is not one that spectral layers are proved for.")
    layer = Layer.read(tensors, record["layer"], target)
    groups = _match(target, record["plan"]["groups"])
    if len(layer.groups) != len(groups) or layer.affine_part is not None:
        raise NotProved("the layer's groups are not those of its plan.")
    bias, parts, total = layer.bias if len(groups) > 1 else 0.0, [], 0.0
    for g, group in enumerate(groups):
        part = ProductGroup.of(layer, g, group, bias)
        bound, top = part.prove(error / len(groups))
        total += bound
        parts.append(replace(part, extent=top))
    levels = [part.normaliser() for part in parts] if len(parts) > 1 else []
    total += leak(levels, [part.extent for part in parts], layer.bias, [0.0] * len(parts))
    size = sum(part.extent for part in parts)
    total += (compute_format(layer.dtype).unit + (len(groups) + 4) * DOUBLE) * size
    # A runtime may evaluate polynomials that are off by what the record reserves, and by 2^-42 of the groups' size.
    total += stated_reserve(record) + 2.0**-42 * size

    def literal(form: Form, claimed: float) -> float:
        frame = Frame.of(layer, form)
        return literal_bound(frame, total, [part.column(frame) for part in parts])

    return Proved(total, "Chebyshev points and ellipses, group by group", literal)


def _fraction(text: Any) -> Fraction:
    """A fraction of a file; forms such as 1e999999999 would take for ever."""
    if not isinstance(text, str) or FRACTION.fullmatch(text) is None:
        raise NotProved("a direction is not written as a fraction.")
    return Fraction(text)


def _match(target: Target, rows: Any) -> list[Group]:
    """The expression's groups in the file's order; every one exactly once, and together the target."""
    assert target.expression is not None
    own = groups_of(target.expression) if target.d_out == 1 else (whole_group(target.expression),)
    found = {group.directions: group for group in own}
    wanted = [tuple(tuple(_fraction(c) for c in w) for w in row["directions"]) for row in rows]
    if len(wanted) == 1 and wanted[0] not in found:  # one group of other directions: the target rewritten in them
        turned = rotated_group(target.expression, wanted[0])
        if turned is not None:
            found = {wanted[0]: turned}
    if sorted(wanted) != sorted(found):
        raise NotProved("its groups are not those of its target.")
    groups = [found[key] for key in wanted]
    x = target.box.sample(64, np.random.default_rng(11))
    f = target.enclose(x, x)
    total: Interval | None = None
    for group in groups:
        t = [group.range(point, point) for point in x]
        assert group.expression is not None
        value = group.expression.enclose(Interval.stack(t, axis=0))
        total = value if total is None else total + value
    assert total is not None
    slack = 1e-9 * (1.0 + np.abs(total.lo))
    if np.any(total.hi + slack < f.lo[:, :, 0]) or np.any(total.lo - slack > f.hi[:, :, 0]):
        raise NotProved("the sum of its groups is not its target.")
    return groups
