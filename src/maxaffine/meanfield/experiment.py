"""The paper's experiment, run many times: test risk, exact risk at the measured overlaps, and the paper's formula.

d = 100, L = 20, beta = 1, eps = 0.1, step 0.01, n = 1000 training and 10,000 test samples. The paper states neither the
initialisation nor the number of steps, and two values of gamma (1/2 in one place, 1/sqrt(2) in another): both are run, from
several stated starts, for 3000 steps.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.core.progress import Progress, silent
from maxaffine.meanfield.data import loss_and_gradient, sample, stream
from maxaffine.meanfield.limit import MeanField
from maxaffine.meanfield.problem import Overlaps, Problem
from maxaffine.meanfield.risk import RiskTable, SoftmaxRisk
from maxaffine.meanfield.training import Record, Settings, Start, train

Backend = Literal["numpy", "torch"]

GAMMAS = {"1/sqrt(2)": math.sqrt(0.5), "1/2": 0.5}
STARTS: dict[str, Start] = {
    "uniform on both spheres": "uniform",
    "mu0 = 0.1, nu0 = 0": Overlaps(0.1, 0.0),
    "mu0 = 0.2, nu0 = 0": Overlaps(0.2, 0.0),
    "mu0 = 0.3, nu0 = 0": Overlaps(0.3, 0.0),
    "mu0 = 0.5, nu0 = 0.3": Overlaps(0.5, 0.3),
}
LEARNED = 0.1  # a run has learned when its exact excess risk is below this fraction of the null risk gamma^2


def paper_settings(gamma: float, **changes: Any) -> Settings:
    """The paper's experiment; keyword arguments change fields of Settings."""
    problem = Problem(100, 20, gamma, 0.1)
    base = Settings(problem, beta=1.0, n=1000, step=0.01, steps=3000, starts=tuple(STARTS.values()), every=50)
    return replace(base, **changes)


def run_seeds(
    settings: Settings, seeds: Sequence[int], backend: Backend = "numpy", device: str | None = None, progress: Progress = silent
) -> list[Record]:
    """One Record per seed, by either backend."""
    if backend == "torch":
        from maxaffine.meanfield.torch_training import train_seeds

        return train_seeds(settings, seeds, device=device, progress=progress)
    if backend != "numpy":
        raise BadInput(f"`backend` (={backend!r}) must be 'numpy' or 'torch'.")
    records = []
    for i, seed in enumerate(seeds):
        records.append(train(replace(settings, seed=seed), progress=progress))
        progress("seeds", i + 1, len(seeds))
    return records


def _quantiles(values: Array) -> dict[str, list[float]]:
    """Median and the 10 % and 90 % quantiles over seeds, of (steps, seeds)."""
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9], axis=1)
    return {"low": _digits(low), "median": _digits(middle), "high": _digits(high)}


def _digits(values: Array) -> list[float]:
    return [float(f"{value:.5g}") for value in np.asarray(values).tolist()]


def compare(settings: Settings, records: Sequence[Record], names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """For every start: test risk, exact risk and paper's formula along training, all with eps^2, and who learned.

    ``z``: (test - exact)/standard error of the test risk, over checkpoints where the excess risk is still above a tenth of
    the null risk. Later the loss is made of rare misses and the standard error of one test set says little, so the
    deviation is also pooled: ``pooled_z`` is the mean of test - exact over seeds in units of its own standard error.
    ``paper``: Corollary 1 with alpha = log(L-1)/d; ``paper0``: with alpha = 0, its own limit for a fixed L.
    """
    problem, noise = settings.problem, settings.problem.eps**2
    table = RiskTable(SoftmaxRisk(problem, beta=settings.beta))
    limits = {"paper": MeanField.of(problem, settings.beta), "paper0": MeanField.of(problem, settings.beta, alpha=0.0)}
    null = problem.gamma**2
    out = []
    for i, start in enumerate(settings.starts):
        path = np.array([record.overlaps[:, i] for record in records])  # (seeds, steps, 5)
        points = [[Overlaps(*row) for row in seed.tolist()] for seed in path]
        exact = noise + np.array([[table.value_and_gradient(o)[0] for o in seed] for seed in points]).T
        measured = (np.array([getattr(record, name)[:, i] for record in records]).T for name in ("train", "test", "test_error"))
        trains, tests, errors = measured
        apart = tests - exact
        z = (apart / errors)[exact - noise > LEARNED * null]
        pooled = apart.mean(axis=1) / np.maximum(apart.std(axis=1) / math.sqrt(max(len(records) - 1, 1)), 1e-300)
        entry: dict[str, Any] = {
            "start": names[i] if names is not None else start if isinstance(start, str) else list(start),
            "seeds": len(records),
            "steps": [int(k) for k in records[0].steps],
            "train": _quantiles(trains), "test": _quantiles(tests), "exact": _quantiles(exact),
            "mu": _quantiles(path[:, :, 0].T), "nu": _quantiles(path[:, :, 1].T),
            "z_rms": float(np.sqrt(np.mean(z**2))) if z.size else None,
            "z_max": float(np.abs(z).max()) if z.size else None,
            "z_count": int(z.size),
            "pooled_z": _digits(pooled) if len(records) > 1 else None,
            "final": {
                "mu": _digits(path[:, -1, 0]), "nu": _digits(path[:, -1, 1]), "train": _digits(trains[-1]),
                "test": _digits(tests[-1]), "exact": _digits(exact[-1]),
            },
            "learned": int(np.sum(exact[-1] - noise < LEARNED * null)),
        }  # fmt: skip
        for name, limit in limits.items():
            entry[name] = _quantiles(noise + np.array([[limit.risk_paper(o) for o in seed] for seed in points]).T)
        out.append(entry)
    return out


def success_grid(
    gamma: float, mus: Sequence[float], counts: Sequence[int], seeds: Sequence[int], steps: int = 3000,
    backend: Backend = "numpy", device: str | None = None, progress: Progress = silent,
) -> dict[str, Any]:  # fmt: skip
    """How often training learns from (mu0, nu0 = 0) with n samples: counts of seeds, (n, mu0)."""
    problem = Problem(100, 20, gamma, 0.1)
    table = RiskTable(SoftmaxRisk(problem, beta=1.0))
    starts: tuple[Start, ...] = tuple(Overlaps(mu, 0.0) for mu in mus)
    learned, steps_needed = [], []
    for done, n in enumerate(counts):
        settings = paper_settings(gamma, n=n, steps=steps, starts=starts, test=0, every=25)
        records = run_seeds(settings, seeds, backend, device, progress)
        risk = np.array(
            [[[table.value_and_gradient(Overlaps(*row))[0] for row in k] for k in record.overlaps.tolist()] for record in records]
        )  # (seeds, steps, mus)
        below = risk < LEARNED * gamma**2
        learned.append(below[:, -1].sum(axis=0).tolist())
        first = np.where(below.any(axis=1), records[0].steps[below.argmax(axis=1)], math.inf)
        steps_needed.append([None if math.isinf(x) else float(x) for x in np.median(first, axis=0)])
        progress("sample sizes", done + 1, len(counts))
    return {
        "gamma": gamma, "mu0": list(mus), "n": list(counts), "seeds": len(seeds), "steps": steps, "learned": learned,
        "median_steps": steps_needed,
    }  # fmt: skip


def gradient_noise(problem: Problem, beta: float, mu: float, samples: int = 2000, seed: int = 0) -> float:
    """n* = E|G_u|^2/|grad_u R|^2 at (mu, 0, 0, 0, 0): the sample size at which the noise of the u-gradient equals it.

    The numerator (tangent part, one sample) by Monte Carlo, the denominator exact: |R_mu| sqrt(1 - mu^2).
    """
    lam = beta * math.sqrt(problem.d)
    _, _, u, v = Overlaps(mu, 0.0).to_vectors(problem.d)
    data = sample(problem, samples, stream(seed, "train"))
    total = 0.0
    for i in range(samples):
        one = replace(data, tokens=data.tokens[i : i + 1], y=data.y[i : i + 1], secret=data.secret[i : i + 1])
        gradient = loss_and_gradient(one, u[None], v[None], lam)[1][0]
        total += float(gradient @ gradient - (gradient @ u) ** 2)
    slope = SoftmaxRisk(problem, beta=beta).gradient(Overlaps(mu, 0.0)).mu
    return total / samples / (slope * slope * (1 - mu * mu))


def paper_runs(
    gammas: Mapping[str, float], seeds: Sequence[int], backend: Backend = "numpy", device: str | None = None,
    progress: Progress = silent, **changes: Any,
) -> dict[str, list[dict[str, Any]]]:  # fmt: skip
    """The paper's experiment from all starts, compared, for every gamma; keyword arguments change fields of Settings."""
    each = {name: paper_settings(gamma, **changes) for name, gamma in gammas.items()}
    names = tuple(STARTS)
    return {name: compare(one, run_seeds(one, seeds, backend, device, progress), names) for name, one in each.items()}


def full_experiment(
    backend: Backend = "numpy", device: str | None = None, progress: Progress = silent
) -> dict[str, Any]:
    """Everything the docs report: both gammas, all starts, and success against initial overlap and sample size."""
    counts, mus = (250, 500, 1000, 2000, 4000, 8000, 16000), (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
    runs = paper_runs(GAMMAS, range(40), backend, device, progress)
    grids, noise = {}, {}
    for name, gamma in GAMMAS.items():
        settings = paper_settings(gamma)
        grids[name] = success_grid(gamma, mus, counts, range(1000, 1020), 3000, backend, device, progress)
        noise[name] = {"mu": list(mus), "n_star": [gradient_noise(settings.problem, settings.beta, mu) for mu in mus]}
    return {"settings": paper_settings(0.5).to_json(), "runs": runs, "success": grids, "gradient_noise": noise}
