"""Learnability: does training find what the construction writes down, at the same number of tokens?"""

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.lab import trends
from maxaffine.lab.experiment import Cells, Context, Experiment, Numbers, Parameters, Result, Row, Rows, Table, Unit, Verdict
from maxaffine.lab.figures import band, figure
from maxaffine.report.style import BLUE, GREEN, ORANGE, PURPLE, QUIET, RED, logarithmic

NEAR = 0.25  # cells: matching distance up to which two sets of centres count as the same partition
STAY = 0.1  # cells: displacement up to which a construction was not left
GAIN = 0.9  # share of its L2 error above which a construction was not improved


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """One unit per target and number of tokens; all seeds and all starts are one stack."""
    found = []
    for key, dimension in (("plane", 2), ("space", 3)):
        for target, side in itertools.product(parameters[f"{key}_targets"], parameters[f"{key}_sides"]):
            tokens = int(side) ** dimension
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
    found = errors(fixed)
    for i, name in enumerate(built):
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


def _ratio(results: Rows, above: str, below: str) -> float:
    """The median over cases of the ratio of two L2 errors."""
    return float(np.median([_mean(row, above, "l2") / _mean(row, below, "l2") for row in results]))


def _mean(row: Row, which: str, quantity: str) -> float:
    return float(np.mean(row["values"][which][quantity]))


def verdict(results: Rows, parameters: Parameters) -> Verdict:
    """The rule of the experiment, applied."""
    if len(results) < len(units(parameters)):
        return Verdict("incomplete", "Some targets or numbers of tokens are missing.", {"units": len(results)})
    total = len(results)
    ahead = [row for row in results if _mean(row, "trained", "l2") <= _mean(row, "spectral", "l2")]
    reaches = sum(_mean(row, "trained", "l2") <= _mean(row, "lookup", "l2") for row in results)
    near = sum(_mean(row, "trained", "distance_to_lookup") <= NEAR for row in results)
    stays = sum(
        _mean(row, "from lookup", "moved") <= STAY and _mean(row, "from lookup", "l2") >= GAIN * _mean(row, "lookup", "l2")
        for row in results
    )
    kept = sum(_mean(row, "from spectral", "l2") <= 2 * _mean(row, "spectral", "l2") for row in results)
    gain, loss = _ratio(results, "lookup", "trained"), _ratio(results, "trained", "spectral")
    improved = _ratio(results, "lookup", "from lookup")
    distance = float(np.median([_mean(row, "trained", "distance_to_lookup") for row in results]))
    numbers: Numbers = {
        "cases": total,
        "training reaches the lookup's L2 error": reaches,
        "its partition is the lookup's": near,
        "training started at the lookup stays": stays,
        "training reaches the spectral head's L2 error": len(ahead),
        "training started at the spectral head keeps its error within a factor 2": kept,
        "median L2 error, lookup over trained": round(gain, 4),
        "median L2 error, trained over spectral": round(loss, 4),
        "median L2 error, lookup over training started there": round(improved, 4),
        "median matching distance to the lookup, cells": round(distance, 4),
    }
    for target in dict.fromkeys(row["unit"]["target"] for row in results):
        tokens = ", ".join(str(row["unit"]["tokens"]) for row in ahead if row["unit"]["target"] == target)
        numbers[f"{target}: tokens at which training is ahead of the spectral head"] = tokens or "none"
    said = (
        f"Of {total} targets and sizes, training from scratch reaches the lookup's L2 error in {reaches} (median: {gain:.3g} "
        f"times smaller) and the spectral head's in {len(ahead)} (median: {loss:.3g} times its error); its partition is the "
        f"lookup's in {near}; started at the lookup it stays in {stays} (median gain: a factor {improved:.3g}), started at the "
        f"spectral head it keeps the error within a factor 2 in {kept}."
    )
    if reaches == near == stays == total:
        return Verdict("reproduced", f"Training finds the construction. {said}", numbers)
    return Verdict("not reproduced", f"Training does not find the construction. {said}", numbers)


def table(results: Rows, parameters: Parameters) -> Table:
    """Errors and geometry, case by case; errors in halves of the target's range."""
    columns = (
        ("L2: lookup", "lookup", "l2"), ("spectral", "spectral", "l2"), ("trained", "trained", "l2"),
        ("from lookup", "from lookup", "l2"), ("from spectral", "from spectral", "l2"), ("sup: lookup", "lookup", "sup"),
        ("spectral", "spectral", "sup"), ("trained", "trained", "sup"),
        ("matching distance to lookup (cells)", "trained", "distance_to_lookup"),
        ("at the start", "trained", "distance_at_start"),
        ("moved from lookup (cells)", "from lookup", "moved"), ("moved from spectral", "from spectral", "moved"),
    )  # fmt: skip
    rows: list[Cells] = []
    for row in results:
        found = [row["values"][which][quantity] for _, which, quantity in columns]
        cells = [trends.in_words(one) if isinstance(one, list) else f"{one:.3g}" for one in found]
        rows.append((str(row["unit"]["target"]), int(row["unit"]["tokens"]), *cells, f"{_mean(row, 'trained', 'live'):.2f}"))
    return Table(("target", "tokens", *(column[0] for column in columns), "live tokens"), rows)


def draw(results: Rows, parameters: Parameters, path: Path) -> None:
    """A column per target: L2 error against tokens, then how far centres of attention moved."""
    errors = (
        ("lookup", RED, "lookup (the paper's construction)"),
        ("spectral", GREEN, "spectral head"),
        ("trained", BLUE, "trained from scratch"),
        ("from lookup", ORANGE, "trained, started at the lookup"),
        ("from spectral", PURPLE, "trained, started at the spectral head"),
    )
    distances = (
        ("trained", "distance_at_start", QUIET, "random sites to the lookup's centres"),
        ("trained", "distance_to_lookup", BLUE, "learned to the lookup's centres"),
        ("from lookup", "moved", ORANGE, "moved away from the lookup"),
        ("from spectral", "moved", PURPLE, "moved away from the spectral head"),
    )
    targets = list(dict.fromkeys(row["unit"]["target"] for row in results))
    what = "Trained against constructed heads with the same number of tokens"
    with figure(path, what, verdict(results, parameters), 2, max(len(targets), 2), (12.0, 8.0)) as (canvas, grid):
        for (upper, lower), target in zip(grid.T, targets, strict=False):
            rows = [row for row in results if row["unit"]["target"] == target]
            tokens = [row["unit"]["tokens"] for row in rows]
            for name, colour, label in errors:
                reached = np.array([row["values"][name]["l2"] for row in rows])
                if reached.ndim == 1:
                    upper.plot(tokens, reached, color=colour, ls="--", marker="s", ms=4, label=label)
                else:
                    band(upper, tokens, reached.T, colour, label, log=True, ls="-", marker="o", ms=4)
            logarithmic(upper)
            upper.set_title(str(target))
            for name, quantity, colour, label in distances:
                samples = np.array([row["values"][name][quantity] for row in rows]).T
                band(lower, tokens, samples, colour, label, marker="o", ms=4)
            lower.set_ylim(bottom=0)
            logarithmic(lower, True, False)
            lower.set_xlabel("tokens N")
            for axes in (upper, lower):
                axes.set_xticks(tokens, [str(count) for count in tokens])
                axes.set_xticks([], minor=True)
        grid[0][0].set_ylabel("L2 error / half the range")
        grid[1][0].set_ylabel("distance of centres, in cells")
        handles = [line for axes in (grid[0][0], grid[1][0]) for line in axes.get_legend_handles_labels()[0]]
        canvas.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8)


EXPERIMENT = Experiment.described(__file__, units, run, verdict, draw, table)
