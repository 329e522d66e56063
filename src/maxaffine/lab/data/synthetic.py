"""Small synthetic images of the same format as a data set, for quick runs where the real one is not at hand.

Every class is a smooth random pattern; an image is its class's pattern, shifted by up to two pixels, dimmed, with pixel
noise, as unsigned bytes.  They can be told apart by a small net, and they are nobody's data: whoever uses them says so.
"""

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.lab.data.catalogue import DataSet
from maxaffine.lab.data.files import Bytes

TRAIN, TEST, CLASSES = 4000, 1000, 10
SEED = {"mnist": 101, "fashion-mnist": 102, "cifar10": 103}


def images(entry: DataSet) -> tuple[Bytes, Bytes, Bytes, Bytes]:
    """Train images (4000, h, w, c), train labels, test images (1000, h, w, c), test labels; the same at every call."""
    rng = np.random.default_rng(SEED[entry.name])
    height, width, channels = entry.shape
    coarse = rng.normal(size=(CLASSES, 5, 5, channels))
    patterns = _smooth(coarse, height, width)
    patterns = (patterns - patterns.min()) / np.ptp(patterns)
    count = TRAIN + TEST
    labels = rng.integers(0, CLASSES, count)
    shifts = rng.integers(-2, 3, (count, 2))
    strength = rng.uniform(0.7, 1.0, (count, 1, 1, 1))
    rows = (np.arange(height)[None, :] + shifts[:, :1]) % height
    columns = (np.arange(width)[None, :] + shifts[:, 1:]) % width
    moved = patterns[labels[:, None, None], rows[:, :, None], columns[:, None, :]]
    noisy = moved * strength + 0.08 * rng.normal(size=moved.shape)
    pixels = np.clip(np.rint(255 * noisy), 0, 255).astype(np.uint8)
    names = labels.astype(np.uint8)
    return pixels[:TRAIN], names[:TRAIN], pixels[TRAIN:], names[TRAIN:]


def _smooth(coarse: Array, height: int, width: int) -> Array:
    """Periodic cosine interpolation of a coarse grid: (classes, 5, 5, c) to (classes, height, width, c)."""
    fine: Array = np.einsum("hi,kijc->khjc", _weights(height, coarse.shape[1]), coarse)
    return np.ascontiguousarray(np.einsum("wj,khjc->khwc", _weights(width, coarse.shape[2]), fine))


def _weights(size: int, knots: int) -> Array:
    position = np.arange(size)[:, None] * knots / size - np.arange(knots)[None, :]
    distance = np.abs((position + knots / 2) % knots - knots / 2)
    return np.where(distance < 1, 0.5 + 0.5 * np.cos(np.pi * distance), 0.0)
