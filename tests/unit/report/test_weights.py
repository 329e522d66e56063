"""What is told of a layer at one point: queries, logits, weights and what they add up to belong together."""

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.report.weights import asked

CASES = [
    ("sin(x) + cos(y)", {"error": 1e-6}), ("max(x, y)", {"error": 1e-4}), ("abs(sin(7*x)) + y", {"error": 1e-4}),
    ("sin(x) + cos(y)", {"error": 0.2, "method": "lookup", "dtype": "float32"}), ("sin(x) + y, max(x, y)", {"error": 1e-3}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "options"), CASES)
def test_weights_are_the_softmax_of_the_logits_and_add_up_to_the_value(text, options):
    layer = ma.compile(text, ma.Box(x=(-1, 1), y=(-1, 1)), **options)
    for x in layer.box.sample(3, np.random.default_rng(0)):
        columns = asked(layer, x)
        for column in columns:
            above = np.exp(column.logits - column.logits.max())
            np.testing.assert_allclose(column.weights, above / above.sum(), atol=1e-5)
        value = np.ravel(layer(x))
        added = np.sum([column.adds for column in columns], axis=0) if len(value) == 1 else np.ravel([c.adds for c in columns])
        np.testing.assert_allclose(added, value, atol=2e-6)
