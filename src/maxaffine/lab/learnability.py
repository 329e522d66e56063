"""Learnability: does training find what the construction writes down, at the same number of tokens?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.lab import trends
from maxaffine.lab.experiment import (
    INCOMPLETE,
    NOT_REPRODUCED,
    REPRODUCED,
    Context,
    Experiment,
    Parameters,
    Result,
    Row,
    Table,
    Unit,
    Verdict,
)

Array = NDArray[np.float64]

TITLES = {"lookup": "lookup (the paper's construction)", "spectral": "spectral head", "trained": "trained from scratch"}
NEAR = 0.25  # cells: matching distance up to which two sets of centres count as the same partition
STAY = 0.1  # cells: displacement up to which a construction was not left
GAIN = 0.9  # share of its L2 error above which a construction was not improved


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """One unit per target and number of tokens; all seeds and all starts are one stack."""
    found = []
    for key in ("plane", "space"):
        for target in parameters[f"{key}_targets"]:
            for side in parameters[f"{key}_sides"]:
                tokens = int(side) ** (2 if key == "plane" else 3)
                found.append({"id": f"{target}-{tokens}", "target": target, "side": int(side), "tokens": tokens})
    return found


def run(unit: Unit, parameters: Parameters, context: Context) -> Result:
    """Errors and geometry of both constructions, of heads trained from scratch, and of training started at either."""
    import torch

    from maxaffine.lab import free_keys, plane

    f = free_keys.function(str(unit["target"]))
    side, seeds = int(unit["side"]), int(parameters["seeds"])
    built = {"lookup": free_keys.lookup(f, side), "spectral": free_keys.spectral(f, side)}
    generator = np.random.default_rng([0, 12])
    points = generator.uniform(-1, 1, (int(parameters["test_points"]), f.dimension))
    points[: len(points) // 8] = np.sign(points[: len(points) // 8]) * (1 - 0.02 * np.abs(points[: len(points) // 8]))  # corners
    wanted = torch.from_numpy(f(points)).to(context.device)

    def errors(weights: dict[str, Any]) -> dict[str, Array]:
        z = torch.from_numpy(points).to(context.device).expand(len(weights["values"]), -1, -1)
        with torch.no_grad():
            away = (free_keys.predict(weights, z) - wanted).abs()
        inner = away[:, len(points) // 8 :]
        return {"sup": away.amax(dim=1).cpu().numpy(), "l2": inner.square().mean(dim=1).sqrt().cpu().numpy()}

    spread = torch.from_numpy(generator.uniform(-1, 1, (4000, f.dimension))).to(context.device)
    fixed = free_keys.stack(list(built.values()), context.device)
    where, live = free_keys.centres(fixed, spread.expand(2, -1, -1))
    values: dict[str, Any] = {"spacing": 2.0 / side}
    for i, name in enumerate(built):
        found = errors(fixed)
        values[name] = {"sup": float(found["sup"][i]), "l2": float(found["l2"][i]), "live": float(live[i])}
    free = free_keys.stack([free_keys.scratch(side, f.dimension, seed) for seed in range(seeds)], context.device)
    begun = free_keys.stack([one for one in built.values() for _ in range(seeds)], context.device)
    before, _ = free_keys.centres(free, spread.expand(seeds, -1, -1))
    batch = int(parameters["batch"])
    draws = [np.random.default_rng([seed, 13]) for seed in range(seeds)]
    steps = int(parameters["steps"])

    def loss(_: int) -> torch.Tensor:
        drawn = np.array([one.uniform(-1, 1, (batch, f.dimension)) for one in draws])
        z = torch.from_numpy(drawn).to(context.device)
        y = torch.from_numpy(f(drawn.reshape(-1, f.dimension)).reshape(seeds, batch)).to(context.device)
        first = (free_keys.predict(free, z) - y).square().mean(dim=1)
        second = (free_keys.predict(begun, z.repeat(2, 1, 1)) - y.repeat(2, 1)).square().mean(dim=1)
        return torch.cat([first, second])

    rate = float(parameters["rate"])
    groups = [{"params": list(free.values()), "lr": rate}, {"params": list(begun.values()), "lr": 0.1 * rate}]
    method = torch.optim.Adam(groups, fused=True)
    for step, each in plane.descend([*free.values(), *begun.values()], loss, steps, method, cool=True):
        if step and step % 200 == 0:
            context.report("mean squared error from scratch", float(each[:seeds].mean()))
    after, alive = free_keys.centres(free, spread.expand(seeds, -1, -1))
    moved, _ = free_keys.centres(begun, spread.expand(2 * seeds, -1, -1))
    last = {name: errors(weights) for name, weights in (("free", free), ("begun", begun))}
    width = 2.0 / side
    values["trained"] = {
        **{name: column.tolist() for name, column in last["free"].items()},
        "live": alive.tolist(),
        "inverse_temperature": free["log_temperature"].detach().exp().view(-1).cpu().tolist(),
        "distance_to_lookup": [free_keys.matching_distance(one, where[0]) / width for one in after],
        "distance_to_spectral": [free_keys.matching_distance(one, where[1]) / width for one in after],
        "distance_at_start": [free_keys.matching_distance(one, where[0]) / width for one in before],
    }
    for i, name in enumerate(built):
        part = slice(i * seeds, (i + 1) * seeds)
        shift = np.sqrt(((moved[part] - where[i]) ** 2).sum(axis=2).mean(axis=1)) / width
        ended = {key: column[part].tolist() for key, column in last["begun"].items()}
        values[f"from {name}"] = {**ended, "moved": shift.tolist()}
    tensors = {"trained_centres": after, "lookup_centres": where[0], "spectral_centres": where[1]}
    return Result(values, tensors)


def _mean(row: Row, which: str, quantity: str) -> float:
    return float(np.mean(row["values"][which][quantity]))


def verdict(results: Sequence[Row], parameters: Parameters) -> Verdict:
    """The rule below."""
    if len(results) < len(units(parameters)):
        return Verdict(INCOMPLETE, "Some targets or numbers of tokens are missing.", {"units": len(results)})
    total = len(results)
    reaches = sum(_mean(row, "trained", "l2") <= _mean(row, "lookup", "l2") for row in results)
    near = sum(_mean(row, "trained", "distance_to_lookup") <= NEAR for row in results)
    stays = sum(
        _mean(row, "from lookup", "moved") <= STAY and _mean(row, "from lookup", "l2") >= GAIN * _mean(row, "lookup", "l2")
        for row in results
    )
    beats = sum(_mean(row, "trained", "l2") <= _mean(row, "spectral", "l2") for row in results)
    kept = sum(_mean(row, "from spectral", "l2") <= 2 * _mean(row, "spectral", "l2") for row in results)
    gain = float(np.median([_mean(row, "lookup", "l2") / _mean(row, "trained", "l2") for row in results]))
    loss = float(np.median([_mean(row, "trained", "l2") / _mean(row, "spectral", "l2") for row in results]))
    improved = float(np.median([_mean(row, "lookup", "l2") / _mean(row, "from lookup", "l2") for row in results]))
    numbers: dict[str, float | int | str] = {
        "cases": total,
        "training reaches the lookup's L2 error": reaches,
        "its partition is the lookup's": near,
        "training started at the lookup stays": stays,
        "training reaches the spectral head's L2 error": beats,
        "training started at the spectral head keeps its error within a factor 2": kept,
        "median L2 error, lookup over trained": round(gain, 4),
        "median L2 error, trained over spectral": round(loss, 4),
        "median L2 error, lookup over training started there": round(improved, 4),
        "median matching distance to the lookup, cells": round(
            float(np.median([_mean(row, "trained", "distance_to_lookup") for row in results])), 4
        ),
    }
    for target in dict.fromkeys(row["unit"]["target"] for row in results):
        ahead = [
            str(row["unit"]["tokens"])
            for row in results
            if row["unit"]["target"] == target and _mean(row, "trained", "l2") <= _mean(row, "spectral", "l2")
        ]
        numbers[f"{target}: tokens at which training is ahead of the spectral head"] = ", ".join(ahead) or "none"
    said = (
        f"Of {total} targets and sizes, training from scratch reaches the lookup's L2 error in {reaches} (median: {gain:.3g} "
        f"times smaller) and the spectral head's in {beats} (median: {loss:.3g} times its error); its partition is the lookup's "
        f"in {near}; started at the lookup it stays in {stays} (median gain: a factor {improved:.3g}), started at the spectral "
        f"head it keeps the error within a factor 2 in {kept}."
    )
    if reaches == near == stays == total:
        return Verdict(REPRODUCED, f"Training finds the construction. {said}", numbers)
    return Verdict(NOT_REPRODUCED, f"Training does not find the construction. {said}", numbers)


def table(results: Sequence[Row], parameters: Parameters) -> Table:
    """Errors and geometry, case by case; errors in halves of the target's range."""
    header = (
        "target", "tokens", "L2: lookup", "spectral", "trained", "from lookup", "from spectral", "sup: lookup", "spectral",
        "trained", "matching distance to lookup (cells)", "at the start", "moved from lookup (cells)", "moved from spectral",
        "live tokens",
    )  # fmt: skip
    rows: list[tuple[str | float | int, ...]] = []
    for row in results:
        values = row["values"]
        cells: list[str | float | int] = [str(row["unit"]["target"]), int(row["unit"]["tokens"])]
        cells += [f"{values[name]['l2']:.3g}" for name in ("lookup", "spectral")]
        cells += [_interval(values[name]["l2"]) for name in ("trained", "from lookup", "from spectral")]
        cells += [f"{values[name]['sup']:.3g}" for name in ("lookup", "spectral")] + [_interval(values["trained"]["sup"])]
        cells += [_interval(values["trained"][name]) for name in ("distance_to_lookup", "distance_at_start")]
        cells += [_interval(values[f"from {name}"]["moved"]) for name in ("lookup", "spectral")]
        rows.append((*cells, f"{_mean(row, 'trained', 'live'):.2f}"))
    return Table(header, tuple(rows))


def _interval(samples: Sequence[float]) -> str:
    mean, half = trends.mean_and_interval(samples)
    return f"{float(mean):.3g} ± {float(half):.1g}"


def draw(results: Sequence[Row], parameters: Parameters, path: Path) -> None:
    """A column per target: L2 error against tokens, then how far centres of attention moved."""
    from maxaffine.lab.figures import band, figure, logarithmic, save, title

    targets = list(dict.fromkeys(row["unit"]["target"] for row in results))
    curves = {
        "trained": ("#0072b2", "trained from scratch", "-"),
        "from lookup": ("#e69f00", "trained, started at the lookup", "-"),
        "from spectral": ("#cc79a7", "trained, started at the spectral head", "-"),
    }
    with figure(2, max(len(targets), 2), (12.0, 8.0)) as (canvas, grid):
        for column, target in enumerate(targets):
            rows = [row for row in results if row["unit"]["target"] == target]
            tokens = [row["unit"]["tokens"] for row in rows]
            axes = grid[0][column]
            for name, colour, dash in (("lookup", "#d55e00", "--"), ("spectral", "#009e73", "--")):
                reached = [row["values"][name]["l2"] for row in rows]
                axes.plot(tokens, reached, color=colour, ls=dash, marker="s", ms=4, label=TITLES[name])
            for name, (colour, label, dash) in curves.items():
                samples = np.array([row["values"][name]["l2"] for row in rows]).T
                band(axes, tokens, samples, colour, label, log=True, ls=dash, marker="o", ms=4)
            logarithmic(axes)
            axes.set_title(str(target))
            axes.set_ylabel("L2 error / half the range" if column == 0 else "")
            axes = grid[1][column]
            distances = (
                ("trained", "distance_at_start", "#6b7280", "random sites to the lookup's centres"),
                ("trained", "distance_to_lookup", "#0072b2", "learned to the lookup's centres"),
                ("from lookup", "moved", "#e69f00", "moved away from the lookup"),
                ("from spectral", "moved", "#cc79a7", "moved away from the spectral head"),
            )
            for name, quantity, colour, label in distances:
                samples = np.array([row["values"][name][quantity] for row in rows]).T
                band(axes, tokens, samples, colour, label, marker="o", ms=4)
            axes.set_ylim(bottom=0)
            logarithmic(axes, True, False)
            axes.set_xlabel("tokens N")
            for axes in (grid[0][column], grid[1][column]):
                axes.set_xticks(tokens, [str(count) for count in tokens])
                axes.set_xticks([], minor=True)
            axes = grid[1][column]
            axes.set_ylabel("distance of centres, in cells" if column == 0 else "")
        handles = [line for axes in (grid[0][0], grid[1][0]) for line in axes.get_legend_handles_labels()[0]]
        canvas.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8)
        title(canvas, "Trained against constructed heads with the same number of tokens", verdict(results, parameters))
        save(canvas, path)


PROTOCOL = """\
**Targets** of the gallery: sin_plus_cos and franke (2-D; 16, 36, 64, 144 tokens), ishigami and hartmann_3 (3-D; 27, 64, 125
tokens), on their boxes scaled to [-1, 1]^D, values scaled to [-1, 1].

**Constructed.** The lookup: cells of a P^D grid, values at the centres, the sharpness of the sup-norm theorem. The spectral
head: the compiler's keys for P tokens per direction, values by its ridge least squares. Both by the planners of the compiler,
float64.

**Trained.** l_j = R (p_j . z - |p_j|^2 / 2 + beta_j), F = sum softmax_j(l) c_j with everything learned: sites, offsets, one
R, values. From scratch: sites uniform in the cube, R = 1 / (width of a cell)^2, values 0. Adam, rate 0.02 cooled along half a
cosine, 2,000 steps on fresh batches of 256, mean squared error, float64, 5 seeds as one stack. Started at a construction: the
same with a tenth of the rate.

**Measured.** L2 error on uniform points, sup error on those and on points next to corners. Geometry: a token's centre is the
mean of z weighted by the attention it gets, which is the same for all ways of writing the same head; learned and constructed
centres are compared by the root mean square distance of the best one-to-one matching, in widths of a cell of the P^D grid,
beside that of the random start; displacement from a construction is token by token. Live tokens are those with the largest
weight somewhere.
"""

RULE = """\
Over all targets and numbers of tokens, means over seeds: `reproduced` if in every case training from scratch reaches an L2
error at most the lookup's, its centres of attention lie within 0.25 cells of the lookup's (root mean square, best matching),
and training started at the lookup stays there (centres move at most 0.1 cells and the L2 error keeps at least 0.9 of its
value). Otherwise `not reproduced`. The spectral head is reported beside it and does not decide.
"""

EXPERIMENT = Experiment(
    name="learnability",
    version=1,
    claim="The max-affine lookup that the construction writes down is what training finds: at the same number of tokens gradient "
    "descent reaches its error with its partition, and stays when started there.",
    paper="arXiv 2504.19901, section 3 proves existence by construction and leaves training open",
    protocol=PROTOCOL,
    rule=RULE,
    parameters={
        "seeds": 5,
        "plane_targets": ["sin_plus_cos", "franke"],
        "plane_sides": [4, 6, 8, 12],
        "space_targets": ["ishigami", "hartmann_3"],
        "space_sides": [3, 4, 5],
        "steps": 2000,
        "batch": 256,
        "rate": 0.02,
        "test_points": 16_000,
    },
    quick={
        "seeds": 2,
        "plane_targets": ["sin_plus_cos"],
        "plane_sides": [4, 6],
        "space_targets": ["ishigami"],
        "space_sides": [3],
        "steps": 200,
        "test_points": 4000,
    },
    units=units,
    run=run,
    verdict=verdict,
    draw=draw,
    table=table,
)
