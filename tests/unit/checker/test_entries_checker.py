"""Entries re-proved: what computing a softmax may do to its logits is counted, term by term."""

import numpy as np

from maxaffine.checker.entries import axis_weights
from maxaffine.checker.entry_layer import EntryLayer
from maxaffine.core.rounding import compute_format


def test_the_rounding_of_the_shift_by_the_maximum_is_counted() -> None:
    """One large score and many small ones: the difference is rounded by far more than the small ones themselves."""
    offsets = np.concatenate([[100.3], np.random.default_rng(0).uniform(-1e-3, 0.0, 500)]).astype(np.float32)
    exact, one = offsets.astype(np.float64), np.ones(1)
    columns = np.zeros((len(exact), 1, 1))
    layer = EntryLayer(one, one, [np.zeros(len(exact))], [exact], columns, 1.0, "float32", 0.0, None, object())
    found = axis_weights(layer, 0, np.zeros(1))
    counted = found.shaken[0] / found.weights[0]
    rounded = np.abs((offsets[0] - offsets).astype(np.float64) - (exact[0] - exact))
    assert rounded.max() > 30.0 * compute_format("float32").unit
    assert np.all(rounded <= counted)
