"""Experiment 8, failure signatures: does `ma.diagnose` see injected faults, spare sound layers, and give advice that helps?"""

from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.lab.experiment import Context, Experiment, Numbers, Parameters, Result, Rows, Table, Unit, Verdict, select, sweep
from maxaffine.lab.figures import figure
from maxaffine.report.style import CURVES, INK, logarithmic, write_over

FAULTS = ("none", "fuzzy", "coarse", "dead", "saturated", "outside")
ADVISED = ("fuzzy", "coarse")  # faults whose advice is a number that can be carried out


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """One per fault and seed."""
    return sweep("{fault}-{seed}", fault=FAULTS, seed=range(int(parameters["seeds"])))


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
    if fault in ADVISED and fault in fired:
        advice = next(signature.advice for signature in found if signature.name == fault)
        number = float(advice.split(" by " if fault == "fuzzy" else ">= ")[1].split(" ")[0])
        after = wrong(sharpness * number, count) if fault == "fuzzy" else wrong(sharpness, int(np.ceil(count * number)))
    context.report("error", after)
    return Result({
        "fired": fired, "before": before, "after": after, "tokens": len(sites),
        "values": {signature.name: signature.value for signature in found},
    })  # fmt: skip


def shares(results: Rows, fault: str) -> list[float]:
    """The share of the layers with this fault on which each signature fired."""
    return [float(np.mean([name in values["fired"] for values in select(results, fault=fault)])) for name in FAULTS[1:]]


def verdict(results: Rows, parameters: Parameters) -> Verdict:
    """The rule of the experiment, applied."""
    sound = float(np.mean([bool(values["fired"]) for values in select(results, fault="none")]))
    numbers: Numbers = {"sound layers with a signature": sound}
    good = sound <= 0.05
    for place, fault in enumerate(FAULTS[1:]):
        share = numbers[f"{fault}: faults seen"] = shares(results, fault)[place]
        good = good and share >= 0.95
        if fault in ADVISED:
            ratio = float(np.median([values["after"] / values["before"] for values in select(results, fault=fault)]))
            numbers[f"{fault}: error after the advice / before"] = ratio
            good = good and ratio <= 0.5
    if good:
        sentence = "Every injected fault is named, sound layers stay silent, and advice at least halves errors."
        return Verdict("reproduced", sentence, numbers)
    sentence = "Some fault is missed, a sound layer is accused, or advice does not help; see the numbers."
    return Verdict("not reproduced", sentence, numbers)


def table(results: Rows, parameters: Parameters) -> Table:
    """How often each signature fired under each fault."""
    rows: list[Any] = []
    for fault in FAULTS:
        mine = select(results, fault=fault)
        middle = [float(np.median([values[key] for values in mine])) for key in ("before", "after")]
        rows.append((fault, len(mine), *(f"{share:.2f}" for share in shares(results, fault)), *middle))
    return Table(("fault", "layers", *(f"{name} fired" for name in FAULTS[1:]), "error", "after advice"), rows)


def draw(results: Rows, parameters: Parameters, path: Path) -> None:
    """Which signature fires under which fault, and errors before and after advice."""
    with figure(path, "Failure signatures", verdict(results, parameters), 1, 2, (12.0, 4.6)) as (_, panels):
        left, right = panels[0]
        seen = np.array([shares(results, fault) for fault in FAULTS])
        left.imshow(seen, cmap="viridis", vmin=0, vmax=1, aspect="auto")
        write_over(left, np.vectorize("{:.2f}".format)(seen), seen < 0.6)
        left.set(title="Share of layers on which a signature fired", xlabel="signature", ylabel="injected fault")
        left.set_xticks(range(len(FAULTS) - 1), FAULTS[1:])
        left.set_yticks(range(len(FAULTS)), FAULTS)
        for colour, fault in zip(CURVES, ADVISED, strict=False):
            rows = select(results, fault=fault)
            right.plot([v["before"] for v in rows], [v["after"] for v in rows], "o", color=colour, label=fault)
        ends = np.array([1e-3, 3.0])
        right.plot(ends, ends, color=INK, lw=0.8)
        right.plot(ends, ends / 2, "--", color=INK, lw=0.8)
        right.set(title="Error before and after the advice (dashed: halved)", xlabel="before", ylabel="after")
        logarithmic(right)
        right.legend()


EXPERIMENT = Experiment.described(__file__, units, run, verdict, draw, table)
