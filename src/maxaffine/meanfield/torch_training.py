"""The same training in PyTorch, for many seeds at once, on a GPU or a CPU. Needs the extra ``maxaffine[torch]``.

Data and starting points are drawn by NumPy exactly as in training.py, so both routes train the same layers on the same
samples; the sums differ in rounding only.
"""

import importlib
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.core.errors import BadInput
from maxaffine.core.progress import Progress, silent
from maxaffine.meanfield.data import Data, sample, stream
from maxaffine.meanfield.problem import whole
from maxaffine.meanfield.training import Record, Settings, State, initial_layers, load_state, save_state


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


def _forward(torch: Any, samples: _Samples, u: Any, v: Any, lam: float, link: str, rows: slice) -> tuple[Any, ...]:
    """Tokens, softmax weights, values, their slopes and errors of a block of samples; u, v (seeds, layers, d)."""
    seeds, layers, _ = u.shape
    length = samples.length
    tokens = samples.tokens[:, rows.start * length : rows.stop * length]
    both = torch.bmm(tokens, torch.cat([u, v], dim=1).transpose(1, 2))  # (seeds, block L, 2 layers)
    both = both.reshape(seeds, -1, length, 2 * layers)
    weights = torch.softmax(lam * both[..., :layers], dim=2)
    a = both[..., layers:]
    if link == "linear":
        values, slopes = a, torch.ones_like(a)
    elif link == "quadratic":
        values, slopes = a * a, 2 * a
    else:
        values, slopes = torch.relu(a), (a > 0).to(a.dtype)
    f = (weights * values).sum(dim=2)  # (seeds, block, layers)
    return tokens, weights, values, slopes, f, f - samples.y[:, rows, None]


def _gradient(torch: Any, samples: _Samples, u: Any, v: Any, lam: float, link: str, block: int) -> tuple[Any, Any, Any]:
    seeds, layers, d = u.shape
    total = torch.zeros((seeds, layers), dtype=u.dtype, device=u.device)
    gradient = torch.zeros((seeds, 2 * layers, d), dtype=u.dtype, device=u.device)
    for start in range(0, samples.n, block):
        rows = slice(start, min(start + block, samples.n))
        tokens, weights, values, slopes, f, error = _forward(torch, samples, u, v, lam, link, rows)
        total += (error**2).sum(dim=1)
        pull = (2 / samples.n) * error[:, :, None, :] * weights
        parts = torch.cat([lam * pull * (values - f[:, :, None, :]), pull * slopes], dim=3)
        gradient += torch.bmm(parts.reshape(seeds, -1, 2 * layers).transpose(1, 2), tokens)
    return total / samples.n, gradient[:, :layers], gradient[:, layers:]


def _test(torch: Any, samples: _Samples | None, u: Any, v: Any, lam: float, link: str, block: int) -> tuple[Any, Any]:
    if samples is None:
        nothing = torch.full(u.shape[:2], math.nan, dtype=u.dtype, device=u.device)
        return nothing, nothing
    each = [
        _forward(torch, samples, u, v, lam, link, slice(start, min(start + block, samples.n)))[-1] ** 2
        for start in range(0, samples.n, block)
    ]
    squares = torch.cat(each, dim=1)
    return squares.mean(dim=1), squares.std(dim=1) / math.sqrt(samples.n)


def _sphere_step(x: Any, gradient: Any, step: float) -> Any:
    tangent = gradient - (gradient * x).sum(dim=2, keepdim=True) * x
    moved = x - step * tangent
    return moved / moved.norm(dim=2, keepdim=True)


def train_seeds(
    settings: Settings,
    seeds: Sequence[int],
    *,
    device: str | None = None,
    block: int = 4000,
    state: Path | str | None = None,
    stop_at: int | None = None,
    save_every: int = 500,
    progress: Progress = silent,
) -> list[Record]:
    """Train the settings for every seed at once; one Record per seed. ``settings.seed`` is replaced.

    ``block`` samples of every seed are worked on at a time; state files and ``stop_at`` are as in training.train.
    """
    torch = load_torch()
    where = _device(torch, device)
    if not seeds:
        raise BadInput("`seeds` is empty; give at least one seed.")
    each = [replace(settings, seed=seed) for seed in seeds]

    def draw(purpose: str, count: int, index: int = 0) -> _Samples:
        with ThreadPoolExecutor() as pool:
            data = list(pool.map(lambda one: sample(one.problem, count, stream(one.seed, purpose, index), one.link), each))
        return _Samples(torch, data, where)

    key = {**settings.to_json(), "seed": list(seeds), "backend": "torch"}
    last = settings.steps if stop_at is None else min(whole("stop_at", stop_at, 0, "give a step"), settings.steps)
    if state is not None and Path(state).exists():
        here = load_state(state, key, (len(seeds), len(settings.starts), settings.problem.d))
    else:
        layers = [initial_layers(one) for one in each]
        here = State(0, np.array([pair[0] for pair in layers]), np.array([pair[1] for pair in layers]), rows=[])
    u, v = torch.from_numpy(here.u).to(where), torch.from_numpy(here.v).to(where)
    lam, link = settings.lam, settings.link
    data = draw("train", settings.n) if settings.method == "gd" else None
    held_out = draw("test", settings.test) if settings.test else None

    def save() -> None:
        if state is not None:
            here.u, here.v = u.cpu().numpy(), v.cpu().numpy()
            save_state(state, key, here)

    with torch.no_grad():
        while True:
            k = here.k
            batch = data if data is not None else draw("batch", settings.n, k)
            loss, grad_u, grad_v = _gradient(torch, batch, u, v, lam, link, block)
            due = k % settings.every == 0 or k == settings.steps
            if due and not (here.rows and here.rows[-1][0] == k):
                risk, error = _test(torch, held_out, u, v, lam, link, block)
                overlaps = torch.stack([u[..., 0], v[..., 1], u[..., 1], v[..., 0], (u * v).sum(dim=2)], dim=-1)
                measured = [part.cpu().numpy() for part in (overlaps, loss, risk, error)]
                here.rows.append((float(k), measured[0], measured[1], measured[2], measured[3]))
                progress(f"training {len(seeds)} seeds on {where}", k, settings.steps)
            if k >= last:
                break
            u, v = _sphere_step(u, grad_u, settings.step), _sphere_step(v, grad_v, settings.step)
            here.k = k + 1
            if here.k % save_every == 0:
                save()
    save()
    together = here.record()
    return [
        Record(together.steps, together.overlaps[:, i], together.train[:, i], together.test[:, i], together.test_error[:, i])
        for i in range(len(seeds))
    ]
