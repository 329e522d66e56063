"""Experiment 8, failure signatures: does `ma.diagnose` see injected faults, spare sound layers, and give advice that helps?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.lab.experiment import Context, Experiment, Parameters, Result, Row, Table, Unit, Verdict

Array = NDArray[np.float64]

FAULTS = ("none", "fuzzy", "coarse", "dead", "saturated", "outside")


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """One per fault and seed."""
    return [
        {"id": f"{fault}-{seed}", "fault": fault, "seed": seed} for fault in FAULTS for seed in range(int(parameters["seeds"]))
    ]


def target(seed: int) -> tuple[Any, float]:
    """A random smooth function of two variables on the square of side 2, and a bound of its slope along an axis."""
    rng = np.random.default_rng([seed, 17])
    waves, phases = rng.uniform(-3.0, 3.0, size=(3, 2)), rng.uniform(0.0, 6.3, size=3)
    sizes = rng.uniform(0.3, 1.0, size=3)

    def f(x: Array) -> Array:
        return np.asarray(np.sin(x @ waves.T + phases) @ sizes)

    return f, float((sizes[:, None] * np.abs(waves)).sum(axis=0).max())


def grid(cells: int, centre: float, half: float) -> Array:
    """Centres of a square grid."""
    line = centre + half * ((2.0 * np.arange(cells) + 1.0) / cells - 1.0)
    return np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)


def logits(x: Array, sites: Array, sharpness: float, width: float) -> Array:
    """sharpness (s . x - |s|^2 / 2) / width^2: a lookup's logits, uncentred as a careless layer has them."""
    return np.asarray(sharpness * (x @ sites.T - np.square(sites).sum(axis=1) / 2.0) / width**2)


def run(unit: Unit, parameters: Parameters, context: Context) -> Result:
    """A lookup with one fault, what is diagnosed, and the error before and after the advice."""
    from maxaffine.report.diagnosis import diagnose, softmax

    seed, fault = int(unit["seed"]), str(unit["fault"])
    f, slope = target(seed)
    error = float(parameters["error"])
    cells = int(np.ceil(2.0 * slope / error))
    rng = np.random.default_rng([seed, FAULTS.index(fault)])
    sharpness, count, half, shift = float(parameters["sharpness"]), cells, 1.0, 0.0
    used = rng.uniform(-1.0, 1.0, size=(int(parameters["queries"]), 2))
    if fault == "fuzzy":
        sharpness /= 40.0
    elif fault == "coarse":
        count = max(2, cells // 8)
    elif fault == "dead":
        used[:, 0] = rng.uniform(0.2, 1.0, size=len(used))
    elif fault == "saturated":
        shift = 3000.0
    elif fault == "outside":
        half, count = 2.0, 2 * cells
    dtype = "float32" if fault == "saturated" else "float64"

    def layer(x: Array, sharper: float, finer: int) -> tuple[Array, Array, Array]:
        sites = grid(finer, 0.0, half)
        scores = logits(x + shift, sites + shift, sharper, 2.0 * half / finer)
        if dtype == "float32":
            scores = scores.astype(np.float32).astype(np.float64)
        return scores, f(sites), sites

    def wrong(sharper: float, finer: int) -> float:
        scores, values, _ = layer(used, sharper, finer)
        return float(np.abs(softmax(scores) @ values - f(used)).max())

    scores, values, sites = layer(used, sharpness, count)
    found = diagnose(scores, values[:, None], sites=sites + shift, queries=used + shift, error=error, dtype=dtype)
    fired = [signature.name for signature in found if signature.fired]
    before = wrong(sharpness, count)
    after = before
    if fault in ("fuzzy", "coarse") and fault in fired:
        advice = next(signature.advice for signature in found if signature.name == fault)
        number = float(advice.split(" by " if fault == "fuzzy" else ">= ")[1].split(" ")[0])
        after = wrong(sharpness * number, count) if fault == "fuzzy" else wrong(sharpness, int(np.ceil(count * number)))
    context.report("error", after)
    return Result({
        "fired": fired, "before": before, "after": after, "tokens": len(sites),
        "values": {signature.name: signature.value for signature in found},
    })  # fmt: skip


def verdict(results: Sequence[Row], parameters: Parameters) -> Verdict:
    """The rule below."""
    numbers: dict[str, float | int | str | bool] = {}
    good = True
    for fault in FAULTS:
        rows = [row["values"] for row in results if row["unit"]["fault"] == fault]
        if fault == "none":
            share = float(np.mean([bool(values["fired"]) for values in rows]))
            numbers["sound layers with a signature"] = share
            good = good and share <= 0.05
            continue
        share = float(np.mean([fault in values["fired"] for values in rows]))
        numbers[f"{fault}: faults seen"] = share
        good = good and share >= 0.95
        if fault in ("fuzzy", "coarse"):
            ratio = float(np.median([values["after"] / values["before"] for values in rows]))
            numbers[f"{fault}: error after the advice / before"] = ratio
            good = good and ratio <= 0.5
    if good:
        sentence = "Every injected fault is named, sound layers stay silent, and advice at least halves errors."
        return Verdict("reproduced", sentence, numbers)
    sentence = "Some fault is missed, a sound layer is accused, or advice does not help; see the numbers."
    return Verdict("not reproduced", sentence, numbers)


def table(results: Sequence[Row], parameters: Parameters) -> Table:
    """How often each signature fired under each fault."""
    names = FAULTS[1:]
    rows: list[tuple[str | float | int, ...]] = []
    for fault in FAULTS:
        mine = [row["values"] for row in results if row["unit"]["fault"] == fault]
        shares = [f"{np.mean([name in values['fired'] for values in mine]):.2f}" for name in names]
        middle = [float(np.median([values[key] for values in mine])) for key in ("before", "after")]
        rows.append((fault, len(mine), *shares, *middle))
    return Table(("fault", "layers", *(f"{name} fired" for name in names), "error", "after advice"), tuple(rows))


def draw(results: Sequence[Row], parameters: Parameters, path: Path) -> None:
    """Which signature fires under which fault, and errors before and after advice."""
    from maxaffine.lab import figures
    from maxaffine.report.style import CURVES, INK

    names = FAULTS[1:]
    with figures.figure(1, 2, (12.0, 4.6)) as (canvas, grid_of_axes):
        left, right = grid_of_axes[0]
        shares = np.array([
            [np.mean([name in row["values"]["fired"] for row in results if row["unit"]["fault"] == fault]) for name in names]
            for fault in FAULTS
        ])  # fmt: skip
        left.imshow(shares, cmap="viridis", vmin=0, vmax=1, aspect="auto")
        for (i, j), share in np.ndenumerate(shares):
            left.annotate(f"{share:.2f}", (j, i), ha="center", va="center", color="white" if share < 0.6 else INK)
        left.set(title="Share of layers on which a signature fired", xlabel="signature", ylabel="injected fault")
        left.set_xticks(range(len(names)), names)
        left.set_yticks(range(len(FAULTS)), FAULTS)
        for i, fault in enumerate(("fuzzy", "coarse")):
            rows = [row["values"] for row in results if row["unit"]["fault"] == fault]
            right.plot([v["before"] for v in rows], [v["after"] for v in rows], "o", color=CURVES[i], label=fault)
        ends = np.array([1e-3, 3.0])
        right.plot(ends, ends, color=INK, lw=0.8)
        right.plot(ends, ends / 2, "--", color=INK, lw=0.8)
        right.set(title="Error before and after the advice (dashed: halved)", xlabel="before", ylabel="after")
        figures.logarithmic(right)
        right.legend()
        figures.title(canvas, "Failure signatures", verdict(results, parameters))
        figures.save(canvas, path)


PROTOCOL = """
**Layers.** Lookups on a square grid for random sums of three waves on [-1, 1]^2, cells from the slope so that half a cell's
variation is about `error`, sharpness `sharpness`. **Faults**, one at a time: `fuzzy` (sharpness divided by 40), `coarse` (a
sixth of the cells per axis), `dead` (all queries in two fifths of the square), `saturated` (float32 logits of a box moved
to 3000, not centred), `outside` (a grid over a square of twice the side); and `none`. **Diagnosed** by `ma.diagnose` from
logits and values at `queries` random queries, with the error asked. **Advice** of `fuzzy` and `coarse` is carried out
literally: logits times the number given, cells per axis times the number given.
"""

RULE = (
    "Reproduced if each fault is named by its own signature on at least 95% of the layers that have it, at most 5% of sound "
    "layers have any signature, and the advice for `fuzzy` and `coarse` at least halves the sup error in the median; otherwise "
    "not reproduced."
)

EXPERIMENT = Experiment(
    name="failure-signatures",
    version=1,
    claim="The ways in which a partition fails, fuzzy cells, cells too coarse, unused keys, saturated logits, keys outside the "
    "data, can be told apart from the layer's logits and values alone.",
    paper="asked by the reproduction of arXiv 2504.19901; the paper names fuzzy partitions and oscillation within a cell",
    protocol=PROTOCOL,
    rule=RULE,
    parameters={"seeds": 20, "error": 0.35, "sharpness": 20.0, "queries": 8000},
    quick={"seeds": 3, "queries": 8000},
    units=units,
    run=run,
    verdict=verdict,
    draw=draw,
    table=table,
)
