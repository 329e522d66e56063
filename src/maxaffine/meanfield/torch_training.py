"""The same training in PyTorch, for many seeds at once, on a GPU or a CPU. Needs the extra ``maxaffine[torch]``.

Data and starting points are drawn by NumPy exactly as in training.py, so both routes train the same layers on the same
samples; the sums differ in rounding only.
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.core.progress import Progress, silent
from maxaffine.meanfield.data import Data, forward, sample, stream
from maxaffine.meanfield.training import Record, Run, Settings, initial_layers


def _torch_on(name: str | None) -> tuple[Any, Any]:
    """The torch module and the device of that name (a GPU where there is one), or a sentence that says what is missing."""
    try:
        import torch
    except ImportError:
        raise BadInput(
            "`backend` (='torch') needs PyTorch, which is not installed; install the extra maxaffine[torch], "
            "or leave the backend at 'numpy'."
        ) from None
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise BadInput(f"`device` (={name!r}) is not a torch device; give 'cpu' or 'cuda'.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadInput(f"`device` (={name!r}) is not there: torch sees no GPU; give 'cpu'.")
    return torch, device


class _TensorRun(Run):
    """All seeds at once: layers (seeds, layers, d), worked on in blocks of so many samples of every seed."""

    def __init__(
        self, torch: Any, device: Any, each: Sequence[Settings], key: dict[str, Any], block: int, state: Path | str | None
    ) -> None:
        start = np.array([initial_layers(one) for one in each])  # (seeds, 2, layers, d)
        super().__init__(each[0], key, (start[:, 0], start[:, 1]), state)
        self.xp, self.device, self.each, self.block = torch, device, each, block
        self.u, self.v = (torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in (self.u, self.v))

    def draw(self, purpose: str, count: int, index: int = 0) -> Data:
        def one(settings: Settings) -> Data:
            return sample(settings.problem, count, stream(settings.seed, purpose, index), settings.link)

        with ThreadPoolExecutor() as pool:
            parts = list(pool.map(one, self.each))
        tokens = self.xp.empty((len(parts), *parts[0].tokens.shape), dtype=self.xp.float64, device=self.device)
        for i, part in enumerate(parts):
            tokens[i] = self.xp.from_numpy(part.tokens)
        labels = self.xp.from_numpy(np.array([part.y for part in parts])).to(self.device)
        return Data(tokens, labels, np.array([part.secret for part in parts]))

    def measured(self, loss: Any, held_out: Data | None) -> tuple[Array, ...]:
        torch, u, v, settings = self.xp, self.u, self.v, self.settings
        overlaps = torch.stack([u[..., 0], v[..., 1], u[..., 1], v[..., 0], (u * v).sum(dim=2)], dim=-1)
        if held_out is None:
            risk = error = torch.full_like(loss, math.nan)
        else:
            blocks = forward(held_out, u, v, settings.lam, settings.link, torch, self.block)
            squares = torch.cat([error**2 for *_, error in blocks], dim=1)
            risk, error = squares.mean(dim=1), squares.std(dim=1) / math.sqrt(squares.shape[1])
        return tuple(part.cpu().numpy() for part in (overlaps, loss, risk, error))

    def layers(self) -> tuple[Array, Array]:
        return self.u.cpu().numpy(), self.v.cpu().numpy()


def train_seeds(
    settings: Settings, seeds: Sequence[int], *, device: str | None = None, block: int = 4000, state: Path | str | None = None,
    stop_at: int | None = None, save_every: int = 500, progress: Progress = silent,
) -> list[Record]:  # fmt: skip
    """Train the settings for every seed at once; one Record per seed. ``settings.seed`` is replaced.

    ``block`` samples of every seed are worked on at a time; state files and ``stop_at`` are as in training.train.
    """
    torch, where = _torch_on(device)
    if not seeds:
        raise BadInput("`seeds` is empty; give at least one seed.")
    key = {**settings.to_json(), "seed": list(seeds), "backend": "torch"}
    run = _TensorRun(torch, where, [replace(settings, seed=seed) for seed in seeds], key, block, state)
    with torch.no_grad():
        together = run.go(stop_at, save_every, progress, f"training {len(seeds)} seeds on {where}")
    parts = (together.overlaps, together.train, together.test, together.test_error)
    return [Record(together.steps, *(part[:, i] for part in parts)) for i in range(len(seeds))]
