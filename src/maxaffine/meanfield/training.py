"""Empirical training: Riemannian gradient descent on a data set, or on a fresh batch at every step; resumable.

Several starting points are trained on the same data at once: they cost little more than one, since reading the tokens is
most of the work. A run is fixed by its settings alone. Its state is one .npz file without pickles, replaced whole;
stopping and resuming gives the same bits as one run.
"""

import json
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.core.progress import Progress, silent
from maxaffine.core.records import canonical_json, replace_atomically
from maxaffine.meanfield.data import SLOPES, Data, loss_and_gradient, losses, sample, stream
from maxaffine.meanfield.problem import Overlaps, Problem, positive, whole

Start = Overlaps | Literal["uniform"]


@dataclass(frozen=True)
class Settings:
    """Everything that fixes a run. ``method``: "gd" on one data set of n samples, "sgd" with n fresh ones per step.

    ``starts``: overlaps, or "uniform" for u and v uniform on the sphere.
    """

    problem: Problem
    beta: float
    n: int
    step: float
    steps: int
    starts: tuple[Start, ...] = ("uniform",)
    seed: int = 0
    method: Literal["gd", "sgd"] = "gd"
    every: int = 50
    test: int = 10_000
    link: str = "linear"

    def __post_init__(self) -> None:
        positive("beta", self.beta, "give a normalised inverse temperature such as 1")
        positive("step", self.step, "give a step size such as 0.01")
        whole("n", self.n, 1, "give a number of samples such as 1000")
        whole("steps", self.steps, 0, "give a number of steps")
        whole("every", self.every, 1, "1 records every step")
        if whole("test", self.test, 0, "0 leaves the test risk out") == 1:
            raise BadInput("`test` (=1) must be 0 or at least 2; one sample has no standard error.")
        whole("seed", self.seed, 0, "give a seed such as 0")
        whole("L", self.problem.L, 2, "only a whole number of tokens can be simulated")
        if self.method not in ("gd", "sgd"):
            raise BadInput(f"`method` (={self.method!r}) must be 'gd' (one data set) or 'sgd' (fresh batches).")
        if self.link not in SLOPES:
            raise BadInput(f"`link` (={self.link!r}) cannot be trained; choose one of {', '.join(SLOPES)}.")
        if not self.starts:
            raise BadInput("`starts` is empty; give at least one starting point, such as 'uniform' or Overlaps(0.3, 0).")
        for start in self.starts:
            if isinstance(start, str):
                if start != "uniform":
                    raise BadInput(f"`starts` contains {start!r}; give overlaps, or 'uniform'.")
            else:
                Overlaps(*start).check()

    @property
    def lam(self) -> float:
        """beta sqrt(d)."""
        return self.beta * math.sqrt(self.problem.d)

    def to_json(self) -> dict[str, Any]:
        """Plain values; two settings are the same run exactly when these agree."""
        plain = asdict(self)
        plain["problem"] = self.problem.to_json()
        plain["starts"] = [start if isinstance(start, str) else list(start) for start in self.starts]
        return plain


@dataclass(frozen=True)
class Record:
    """What was measured: step (k,), overlaps (k, layers, 5), and train, test, test_error (k, layers); losses with eps^2."""

    steps: Array
    overlaps: Array
    train: Array
    test: Array
    test_error: Array

    def last(self, layer: int = 0) -> Overlaps:
        """The overlaps of one layer at the end."""
        return Overlaps(*self.overlaps[-1, layer].tolist())


def initial_layers(settings: Settings) -> tuple[Array, Array]:
    """u and v (layers, d) of the starting points."""
    d = settings.problem.d
    rng = stream(settings.seed, "init")
    us, vs = [], []
    for start in settings.starts:
        if isinstance(start, str):
            pair = rng.standard_normal((2, d))
            u, v = pair / np.linalg.norm(pair, axis=1, keepdims=True)
        else:
            _, _, u, v = Overlaps(*start).to_vectors(d)
        us.append(u)
        vs.append(v)
    return np.array(us), np.array(vs)


class Run:
    """A run from its start or its state file, in the namespace `xp`: NumPy here, PyTorch in torch_training.py."""

    xp: Any = np
    block = 1024  # samples that are worked on at a time

    def __init__(self, settings: Settings, key: dict[str, Any], start: tuple[Array, Array], state: Path | str | None) -> None:
        self.settings, self.key, self.state = settings, key, state  # the key says which run a state file belongs to
        self.k = 0  # the next step
        self.u: Any = start[0]  # (layers, d)
        self.v: Any = start[1]
        self.rows: list[tuple[Any, ...]] = []  # recorded so far
        if state is not None and Path(state).exists():
            self.resume(state)

    def resume(self, path: Path | str) -> None:
        """Go on from a state file of this run, with layers of the same shape; another run's is refused."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            stored = json.loads(str(arrays["settings"]))
            steps, *parts = (arrays[field.name] for field in fields(Record))
            k, u, v = int(arrays["k"]), arrays["u"], arrays["v"]
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as problem:
            raise BadInput(f"`state` (={str(path)!r}) is not a saved run ({problem}); remove it to start anew.") from None
        wanted = json.loads(canonical_json(self.key))
        if stored != wanted:
            named = sorted(name for name in wanted if not isinstance(stored, dict) or stored.get(name) != wanted[name])
            raise BadInput(
                f"`state` (={str(path)!r}) belongs to a run with other settings ({', '.join(named)}); "
                "name another file, or repeat the settings."
            )
        if not (u.shape == v.shape == self.u.shape and np.all(np.isfinite(u)) and np.all(np.isfinite(v))):
            raise BadInput(f"`state` (={str(path)!r}) holds layers of the wrong shape; remove it to start anew.")
        self.k, self.u, self.v, self.rows = k, u, v, list(zip(map(float, steps), *parts, strict=True))

    def draw(self, purpose: str, count: int, index: int = 0) -> Data:
        """So many samples for one purpose."""
        return sample(self.settings.problem, count, stream(self.settings.seed, purpose, index), self.settings.link)

    def measured(self, loss: Any, held_out: Data | None) -> tuple[Array, ...]:
        """Overlaps, training loss, and mean and standard error of the losses on held-out data (None: NaN)."""
        u, v = self.u, self.v
        overlaps = np.stack([u[:, 0], v[:, 1], u[:, 1], v[:, 0], (u * v).sum(axis=1)], axis=1)
        if held_out is None:
            return overlaps, loss, np.full(len(u), math.nan), np.full(len(u), math.nan)
        each = losses(held_out, u, v, self.settings.lam, self.settings.link)
        return overlaps, loss, each.mean(axis=1), each.std(axis=1, ddof=1) / math.sqrt(each.shape[1])

    def step(self, x: Any, gradient: Any) -> Any:
        """(x - step P_x gradient)/|.|, row by row."""
        moved = x - self.settings.step * (gradient - (gradient * x).sum(-1)[..., None] * x)
        return moved / self.xp.linalg.norm(moved, axis=-1)[..., None]

    def layers(self) -> tuple[Array, Array]:
        """u and v as NumPy arrays."""
        return self.u, self.v

    def record(self) -> Record:
        """The rows as arrays."""
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(fields(Record))
        return Record(*(np.array(column) for column in columns))

    def save(self) -> None:
        """Write the state file, where there is one, whole or not at all, without pickle."""
        u, v = self.layers()
        parts = {"settings": np.array(canonical_json(self.key)), "k": np.array(self.k), "u": u, "v": v}

        def write(temporary: Path) -> None:
            with temporary.open("wb") as handle:
                np.savez(handle, allow_pickle=False, **parts, **vars(self.record()))

        if self.state is not None:
            replace_atomically(self.state, write)

    def go(self, stop_at: int | None, save_every: int, progress: Progress, words: str) -> Record:
        """Train to the end, or to ``stop_at``, with the state saved; what was measured."""
        settings = self.settings
        last = settings.steps if stop_at is None else min(whole("stop_at", stop_at, 0, "give a step"), settings.steps)
        data = self.draw("train", settings.n) if settings.method == "gd" else None
        held_out = self.draw("test", settings.test) if settings.test else None
        while True:
            k = self.k
            batch = data if data is not None else self.draw("batch", settings.n, k)
            loss, grad_u, grad_v = loss_and_gradient(batch, self.u, self.v, settings.lam, settings.link, self.xp, self.block)
            due = k % settings.every == 0 or k == settings.steps
            if due and not (self.rows and self.rows[-1][0] == k):
                self.rows.append((float(k), *self.measured(loss, held_out)))
            progress(words, k, settings.steps)
            if k >= last:
                break
            self.u, self.v = self.step(self.u, grad_u), self.step(self.v, grad_v)
            self.k = k + 1
            if self.k % save_every == 0:
                self.save()
        self.save()
        return self.record()


def train(
    settings: Settings, *, state: Path | str | None = None, stop_at: int | None = None, save_every: int = 500,
    progress: Progress = silent,
) -> Record:  # fmt: skip
    """Run the training, from the state file if it exists; ``stop_at`` ends early with the state saved."""
    run = Run(settings, settings.to_json(), initial_layers(settings), state)
    return run.go(stop_at, save_every, progress, f"training, seed {settings.seed}")
