"""Sums of products over blocks in their literal form: one softmax over all combinations of keys, whose values are the products.

Logits that are off by eta each, that of a wrong query included, move a mean of values by (e^{2 eta} - 1) sum w |v| at most, and
sum w |v| is at most the sum over products of what it is block by block.
"""

import math
from collections.abc import Callable

import numpy as np

from maxaffine.checker.head import Head
from maxaffine.checker.head_rounding import LogitErrors, account
from maxaffine.checker.literal_groups import RESOLVED, Column, Coordinates, Frame, literally
from maxaffine.checker.product_group import product_column
from maxaffine.checker.proved import DOUBLE, Form, NotProved
from maxaffine.checker.reader import Layer, ProductKeys
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval


def literally_multiplied(layer: Layer, keys: ProductKeys, bound: float, size: float) -> Callable[[Form, float], float]:
    """What proves a bound of the literal form of a layer of one such group, whose products are at most `size` in all."""

    def column(frame: Frame) -> Column:
        return product_column(frame, keys, size, lambda: (0.0, 0.0)) if keys.plain else _column(frame, keys, size)

    return literally(layer, bound, lambda frame: [column(frame)])


def _column(frame: Frame, keys: ProductKeys, size: float) -> Column:
    form, E = frame.form, len(keys.axes)
    at = Coordinates.read(frame, keys.matrix)
    error = at.error(at.size)
    counted = LogitErrors(form.unit, E + 8.5 + (E + 2.0) * DOUBLE / form.unit, 72.0, 5.0 * frame.bias)
    largest = sum(float(np.abs(axis.a).max()) * 1.01 + float(np.abs(axis.b).max()) for axis in keys.axes) + frame.bias
    eta = sum(counted.largest(axis, E) for axis in keys.axes) + float(error @ [np.abs(axis.a).max() for axis in keys.axes])
    if not (largest < form.largest and eta < RESOLVED and np.all(error < 2.0**-9)):
        raise NotProved(f"its logits are not resolved in {form.name}.")
    held, blocks = _held(keys, counted), _moduli(keys)
    top = float(np.prod([block.reshape(-1, block.shape[-1]).max(axis=0) for block in blocks], axis=0).sum()) * 1.01
    formed = form.gamma(4 * len(blocks) + blocks[0].shape[-1] + E + 12) * held + frame.sums(held)
    lost = math.expm1(2.0 * eta) * held + formed * math.exp(2.0 * eta)
    return Column(lost * (1 + 1e-9) + frame.stray(top), size, eta, top, lambda: (0.0, 0.0))


def _held(keys: ProductKeys, counted: LogitErrors) -> float:
    """sum over products of prod over blocks of sup sum w |factor|."""
    whole, known = np.ones(_moduli(keys)[0].shape[-1]), dict[bytes, float]()
    for cut, block in zip(keys.cuts, _moduli(keys), strict=True):
        axes = keys.axes[cut]
        zero, ones = Interval.point(np.zeros(len(axes))), np.ones(len(axes))
        place = b"".join(axis.a.tobytes() + b"/" + axis.b.tobytes() for axis in axes)
        for r in range(block.shape[-1]):
            column = np.ascontiguousarray(block[..., r : r + 1])
            key = place + b"//" + column.tobytes()
            if key not in known:
                known[key] = account(Head(None, zero, ones, axes, column), np.zeros(len(axes)), counted).held
            whole[r] *= known[key]
    return float(whole.sum()) * (1 + 1e-9)


def _moduli(keys: ProductKeys) -> list[Array]:
    """|A_b + i B_b| of every block."""
    assert keys.factors is not None
    if keys.imaginary is None:
        return [np.abs(factor) for factor in keys.factors]
    return [np.asarray(np.hypot(a, b) * (1 + 1e-15)) for a, b in zip(keys.factors, keys.imaginary, strict=True)]
