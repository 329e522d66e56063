"""Strips of heads whose keys run the other way: what is claimed about their weights holds there too."""

import numpy as np
import pytest

from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.spectral_keys import log_binomials
from maxaffine.proofs.head_bounds import strip_factor


@pytest.mark.parametrize("delta", [4.0, -4.0, -10.0])
@pytest.mark.parametrize("height", [0.05, 0.5, 1.0, 1.5])
def test_weights_on_a_strip_sum_to_at_most_what_is_claimed_whichever_way_the_keys_run(delta, height):
    n = 4
    keys = AxisKeys(delta * (np.arange(n + 1) - n / 2.0), log_binomials(n))
    z = np.linspace(-1, 1, 401)[:, None] + 1j * np.linspace(-height, height, 201)[None]
    terms = np.exp(np.multiply.outer(z, keys.slopes) + keys.offsets)
    largest = float((np.abs(terms).sum(axis=-1) / np.abs(terms.sum(axis=-1))).max())
    assert strip_factor(keys, delta, 0.0, 1.0, height) >= largest * (1 - 1e-12)
