"""The same training in PyTorch, for many seeds at once, on a GPU or a CPU. Needs the extra ``maxaffine[torch]``.

Data and starting points are drawn by NumPy exactly as in training.py, so both routes train the same layers on the same
samples; the sums differ in rounding only.
"""

import importlib
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.core.progress import Progress, silent
from maxaffine.meanfield.data import Data, sample, stream
from maxaffine.meanfield.training import Record, Run, Settings, initial_layers


def load_torch() -> Any:
    """The torch module, or a sentence that says how to get it."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise BadInput(
            "`backend` (='torch') needs PyTorch, which is not installed; install the extra maxaffine[torch], "
            "or leave the backend at 'numpy'."
        ) from None


def _device(torch: Any, name: str | None) -> Any:
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise BadInput(f"`device` (={name!r}) is not a torch device; give 'cpu' or 'cuda'.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadInput(f"`device` (={name!r}) is not there: torch sees no GPU; give 'cpu'.")
    return device


class _Samples:
    """The data sets of all seeds on the device: tokens (seeds, n L, d), labels (seeds, n)."""

    def __init__(self, torch: Any, data: Sequence[Data], device: Any) -> None:
        n, length, d = data[0].tokens.shape
        self.n, self.length = n, length
        self.tokens = torch.empty((len(data), n * length, d), dtype=torch.float64, device=device)
        self.y = torch.empty((len(data), n), dtype=torch.float64, device=device)
        for i, part in enumerate(data):
            self.tokens[i] = torch.from_numpy(part.flat)
            self.y[i] = torch.from_numpy(part.y)


class _TensorRun(Run):
    """All seeds at once: layers (seeds, layers, d), worked on in blocks of so many samples of every seed."""

    def __init__(
        self, torch: Any, device: Any, each: Sequence[Settings], key: dict[str, Any], block: int, state: Path | str | None
    ) -> None:
        start = np.array([initial_layers(one) for one in each])  # (seeds, 2, layers, d)
        super().__init__(each[0], key, (start[:, 0], start[:, 1]), state)
        self.torch, self.device, self.each, self.block = torch, device, each, block
        self.u, self.v = (torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in (self.here.u, self.here.v))

    def draw(self, purpose: str, count: int, index: int = 0) -> _Samples:
        def one(settings: Settings) -> Data:
            return sample(settings.problem, count, stream(settings.seed, purpose, index), settings.link)

        with ThreadPoolExecutor() as pool:
            return _Samples(self.torch, list(pool.map(one, self.each)), self.device)

    def _forward(self, samples: _Samples) -> Iterator[tuple[Any, ...]]:
        """Tokens, softmax weights, values, their slopes, outputs and errors, block by block."""
        torch, link, length = self.torch, self.settings.link, samples.length
        seeds, layers, _ = self.u.shape
        directions = torch.cat([self.u, self.v], dim=1).transpose(1, 2)
        for start in range(0, samples.n, self.block):
            stop = min(start + self.block, samples.n)
            tokens = samples.tokens[:, start * length : stop * length]
            both = torch.bmm(tokens, directions)  # (seeds, block L, 2 layers)
            both = both.reshape(seeds, -1, length, 2 * layers)
            weights = torch.softmax(self.settings.lam * both[..., :layers], dim=2)
            a = both[..., layers:]
            if link == "linear":
                values, slopes = a, torch.ones_like(a)
            elif link == "quadratic":
                values, slopes = a * a, 2 * a
            else:
                values, slopes = torch.relu(a), (a > 0).to(a.dtype)
            f = (weights * values).sum(dim=2)  # (seeds, block, layers)
            yield tokens, weights, values, slopes, f, f - samples.y[:, start:stop, None]

    def loss_and_gradient(self, data: _Samples) -> tuple[Any, Any, Any]:
        torch, (seeds, layers, _) = self.torch, self.u.shape
        total = torch.zeros((seeds, layers), dtype=self.u.dtype, device=self.device)
        gradient = torch.zeros_like(torch.cat([self.u, self.v], dim=1))
        for tokens, weights, values, slopes, f, error in self._forward(data):
            total += (error**2).sum(dim=1)
            pull = (2 / data.n) * error[:, :, None, :] * weights
            parts = torch.cat([self.settings.lam * pull * (values - f[:, :, None, :]), pull * slopes], dim=3)
            gradient += torch.bmm(parts.reshape(seeds, -1, 2 * layers).transpose(1, 2), tokens)
        return total / data.n, gradient[:, :layers], gradient[:, layers:]

    def measured(self, loss: Any, held_out: _Samples | None) -> tuple[Array, ...]:
        torch, u, v = self.torch, self.u, self.v
        overlaps = torch.stack([u[..., 0], v[..., 1], u[..., 1], v[..., 0], (u * v).sum(dim=2)], dim=-1)
        if held_out is None:
            risk = error = torch.full_like(loss, math.nan)
        else:
            squares = torch.cat([error**2 for *_, error in self._forward(held_out)], dim=1)
            risk, error = squares.mean(dim=1), squares.std(dim=1) / math.sqrt(held_out.n)
        return tuple(part.cpu().numpy() for part in (overlaps, loss, risk, error))

    def step(self, x: Any, gradient: Any) -> Any:
        tangent = gradient - (gradient * x).sum(dim=2, keepdim=True) * x
        moved = x - self.settings.step * tangent
        return moved / moved.norm(dim=2, keepdim=True)

    def layers(self) -> tuple[Array, Array]:
        return self.u.cpu().numpy(), self.v.cpu().numpy()


def train_seeds(
    settings: Settings, seeds: Sequence[int], *, device: str | None = None, block: int = 4000, state: Path | str | None = None,
    stop_at: int | None = None, save_every: int = 500, progress: Progress = silent,
) -> list[Record]:  # fmt: skip
    """Train the settings for every seed at once; one Record per seed. ``settings.seed`` is replaced.

    ``block`` samples of every seed are worked on at a time; state files and ``stop_at`` are as in training.train.
    """
    torch = load_torch()
    where = _device(torch, device)
    if not seeds:
        raise BadInput("`seeds` is empty; give at least one seed.")
    key = {**settings.to_json(), "seed": list(seeds), "backend": "torch"}
    run = _TensorRun(torch, where, [replace(settings, seed=seed) for seed in seeds], key, block, state)
    with torch.no_grad():
        together = run.go(stop_at, save_every, progress, f"training {len(seeds)} seeds on {where}")
    parts = (together.overlaps, together.train, together.test, together.test_error)
    return [Record(together.steps, *(part[:, i] for part in parts)) for i in range(len(seeds))]
