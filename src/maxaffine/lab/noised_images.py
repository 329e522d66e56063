"""Images as tokens, with Gaussian noise of many levels at once or with labels flipped at many ratios. Needs torch.

    x~ = (x + sigma xi) / c,     c = 1, or sqrt(1 + sigma^2 dim / E|x|^2) so that E|x~|^2 = E|x|^2 at every level

The noise xi belongs to the image and is shared by all levels; only x and xi are stored, and x~ exists batch by batch.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.lab.stacked import Feed, Shape

Labelled = tuple[NDArray[np.uint8], NDArray[np.integer]]  # images (N, H, W, C) and labels (N,)

PATCH = {"mnist": 7, "fashion-mnist": 7, "cifar10": 4}
HIDDEN = {"mnist": 128, "fashion-mnist": 256, "cifar10": 512}


def patches(images: Tensor, side: int) -> Tensor:
    """Tokens (N, n_tok, side side C) of images (N, H, W, C), patch by patch in reading order."""
    count, height, width, channels = images.shape
    if height % side or width % side:
        raise BadInput(f"images of {height} x {width} pixels cannot be cut into patches of {side} x {side}.")
    cut = images.reshape(count, height // side, side, width // side, side, channels).permute(0, 1, 3, 2, 4, 5)
    return cut.reshape(count, (height // side) * (width // side), side * side * channels)


def shape_of(name: str, image: tuple[int, ...]) -> Shape:
    """The sizes of the model for a data set whose images are (H, W, C)."""
    side = PATCH[name]
    return Shape((image[0] // side) * (image[1] // side), side * side * image[2], HIDDEN[name])


def flipped(labels: NDArray[np.integer], ratios: Array, seed: int, classes: int = 10) -> NDArray[np.int64]:
    """Labels (L, N): at every ratio that share of the labels, in expectation, is another class, each of them equally likely.

    Flips are nested: what is wrong at one ratio is equally wrong at every larger one.
    """
    generator = np.random.default_rng([seed, 2])
    chance = generator.random(len(labels))
    other = (labels.astype(np.int64) + generator.integers(1, classes, len(labels))) % classes
    return np.where(chance[None, :] < ratios[:, None], other[None, :], labels.astype(np.int64)[None, :])


@dataclass(frozen=True)
class Images:
    """One data set on a device: clean tokens in [0, 1] or standardised, and labels."""

    train: Tensor  # (N, n_tok, d_tok) float32
    train_labels: Tensor  # (N,) int64
    test: Tensor
    test_labels: Tensor

    @property
    def energy_per_number(self) -> float:
        """E|x|^2 / dim over the training images."""
        return sum(float(part.double().square().sum()) for part in self.train.split(4096)) / self.train.numel()


def prepare(name: str, train: Labelled, test: Labelled, standardise: bool, device: str) -> Images:
    """Tokens on the device; standardised channel by channel with the statistics of the clean training images."""
    tokens = []
    shift = scale = None
    for images, _ in (train, test):
        pixels = torch.from_numpy(np.array(images)).to(device).float() / 255.0
        if standardise:
            if shift is None or scale is None:
                shift = pixels.double().mean(dim=(0, 1, 2)).float()
                scale = pixels.double().std(dim=(0, 1, 2), correction=0).float()
            pixels = (pixels - shift) / scale
        tokens.append(patches(pixels, PATCH[name]))
    labels = [torch.from_numpy(np.asarray(part[1], dtype=np.int64)).to(device) for part in (train, test)]
    return Images(tokens[0], labels[0], tokens[1], labels[1])


class Noise:
    """Standard Gaussian noise of the shape of the training tokens, from (seed, epoch), made on the device."""

    def __init__(self, like: Tensor, seed: int):
        self.seed = seed
        self.tensor = torch.empty_like(like)
        self.generator = torch.Generator(device=like.device)
        self.redraw(0)

    def redraw(self, epoch: int) -> None:
        """Fill in place, so that a recorded step reads the new noise."""
        self.generator.manual_seed(1_000_003 * (self.seed + 1) + epoch)
        self.tensor.normal_(generator=self.generator)


def scales(sigmas: Array, energy_per_number: float) -> Array:
    """1 / c per level: sqrt(1 / (1 + sigma^2 dim / E|x|^2))."""
    return np.asarray(1.0 / np.sqrt(1.0 + sigmas**2 / energy_per_number))


def _per_level(values: Array, device: torch.device) -> Tensor:
    return torch.from_numpy(values.astype(np.float32)).to(device).view(-1, 1, 1, 1)


def noised(tokens: Tensor, labels: Tensor, noise: Tensor, sigmas: Array, scale: Array | None) -> Feed:
    """Batches of x~ at every level; labels (N,) are shared."""
    sigma = _per_level(sigmas, tokens.device)

    def inputs(index: Tensor) -> Tensor:
        return torch.addcmul(tokens.index_select(0, index)[None], sigma, noise.index_select(0, index)[None])

    return _feed(inputs, labels, len(sigmas), scale)


def clean(tokens: Tensor, labels: Tensor, levels: int, scale: Array | None) -> Feed:
    """Batches of clean inputs at every level; labels (N,) are shared, (L, N) belong to the levels."""
    return _feed(lambda index: tokens.index_select(0, index)[None].expand(levels, -1, -1, -1), labels, levels, scale)


def _feed(inputs: Callable[[Tensor], Tensor], labels: Tensor, levels: int, scale: Array | None) -> Feed:
    factor = None if scale is None else _per_level(scale, labels.device)

    def feed(index: Tensor) -> tuple[Tensor, Tensor]:
        found = inputs(index) if factor is None else inputs(index) * factor
        chosen = labels.index_select(labels.dim() - 1, index)
        return found, chosen if labels.dim() == 2 else chosen.expand(levels, -1)

    return feed
