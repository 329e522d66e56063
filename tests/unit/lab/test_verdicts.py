"""Temperature sweep, noise against precision, learnability: every verdict on made-up results, and one tiny run of each."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxaffine.lab import learnability, noise_and_precision, norms_under_noise, temperature_sweep
from maxaffine.lab.experiment import Context, Experiment

SWEEP = dict(temperature_sweep.EXPERIMENT.parameters)
PRECISION = dict(noise_and_precision.EXPERIMENT.parameters)
LEARN = dict(learnability.EXPERIMENT.parameters)


def sweep(grows: bool = True, sharpens: bool = True, error: Any = None) -> list[dict[str, Any]]:
    rows = []
    held = temperature_sweep.temperatures(SWEEP)
    curve = 1 / held if error is None else error
    for unit in temperature_sweep.units(SWEEP):
        number = int(unit["id"][5:]) if unit["way"] == "held" else 0
        last = float(curve[number])
        values: dict[str, Any] = {"steps": [0, 10]}
        ups = {"product_norm": grows, "inverse_temperature": sharpens, "entropy": not sharpens}
        for name in (
            "product_norm",
            "inverse_temperature",
            "entropy",
            "margin_5",
            "margin_50",
            "margin_95",
            "l2_error",
            "sup_error",
        ):
            end = [2.0] * 5 if ups.get(name, True) else [0.5] * 5
            values[name] = [[1.0] * 5, [last] * 5 if name.endswith("error") else end]
        values["best_values"] = {"l2_error": 0.1, "sup_error": 0.2}
        rows.append({"unit": unit, "values": values})
    return rows


def test_the_sweep_is_reproduced_only_if_norms_grow_partitions_sharpen_and_sharper_is_better() -> None:
    judge = temperature_sweep.verdict
    assert judge(sweep(), SWEEP).outcome == "reproduced"
    finite = np.abs(np.log(temperature_sweep.temperatures(SWEEP) / 20))
    assert judge(sweep(error=finite), SWEEP).outcome == "reproduced, but explained by a best temperature that is finite"
    assert judge(sweep(grows=False), SWEEP).outcome == "not reproduced"
    assert "do not sharpen" in judge(sweep(sharpens=False), SWEEP).sentence
    assert judge(sweep()[1:], SWEEP).outcome == "incomplete"


def precision(dictionary: float = -2.0, plane: float = -2.0, factor: float = 1.0) -> list[dict[str, Any]]:
    rows = []
    for unit in noise_and_precision.units(PRECISION):
        sigma = noise_and_precision.levels_of(unit["task"], PRECISION)
        slope = dictionary if unit["task"].startswith("dictionary") else plane
        values = {"sigma": sigma, "best": sigma**-2.0, "inverse_temperature": factor * sigma**slope, "product_norm": sigma**-1.0}
        values["least_loss"] = np.where(sigma < 0.2, 0.0, 1.0)
        rows.append({"unit": unit, "values": {name: column.tolist() for name, column in values.items()}})
    return rows


def test_the_known_answer_is_judged_by_slope_and_ratio_and_the_plane_decides_between_two_outcomes() -> None:
    judge = noise_and_precision.verdict
    assert judge(precision(), PRECISION).outcome == "reproduced"
    assert judge(precision(dictionary=-2.09), PRECISION).outcome == "reproduced"
    assert judge(precision(dictionary=-2.2), PRECISION).outcome == "not reproduced"
    assert judge(precision(factor=1.4), PRECISION).outcome == "not reproduced"
    assert judge(precision(plane=-1.0), PRECISION).outcome.startswith("reproduced, but explained by a dictionary")
    assert judge(precision()[1:], PRECISION).outcome == "incomplete"


def test_levels_that_the_data_do_not_decide_do_not_count() -> None:
    rows = precision()
    for row in rows:
        if row["unit"]["task"].startswith("dictionary"):
            sigma = np.array(row["values"]["sigma"])
            row["values"]["inverse_temperature"] = np.where(sigma < 0.2, 1.0, sigma**-2.0).tolist()
    assert noise_and_precision.verdict(rows, PRECISION).outcome == "reproduced"


def test_the_best_inverse_temperature_on_the_plane_is_one_over_sigma_squared_for_small_cells_and_less_for_large() -> None:
    best = noise_and_precision.best_on_the_plane
    assert best(16, 0.5, 4000) == pytest.approx(4, rel=0.1)
    assert best(4, 0.05, 4000) < 0.1 / 0.05**2


def learn(trained: float = 0.1, distance: float = 0.1, moved: float = 0.01, after: float = 0.2) -> list[dict[str, Any]]:
    rows = []
    for unit in learnability.units(LEARN):
        values = {
            "spacing": 0.5,
            "lookup": {"l2": 0.2, "sup": 0.5, "live": 1.0},
            "spectral": {"l2": 0.01, "sup": 0.02, "live": 0.5},
            "trained": {
                "l2": [trained] * 5,
                "sup": [0.4] * 5,
                "live": [1.0] * 5,
                "distance_to_lookup": [distance] * 5,
                "distance_to_spectral": [1.0] * 5,
                "distance_at_start": [0.6] * 5,
            },
            "from lookup": {"l2": [after] * 5, "sup": [0.5] * 5, "moved": [moved] * 5},
            "from spectral": {"l2": [0.012] * 5, "sup": [0.03] * 5, "moved": [0.02] * 5},
        }
        rows.append({"unit": unit, "values": values})
    return rows


def test_learnability_needs_the_error_the_partition_and_a_start_that_stays() -> None:
    judge = learnability.verdict
    assert judge(learn(), LEARN).outcome == "reproduced"
    for change in ({"trained": 0.3}, {"distance": 0.5}, {"moved": 0.3}, {"after": 0.1}):
        assert judge(learn(**change), LEARN).outcome == "not reproduced", change
    assert judge(learn()[1:], LEARN).outcome == "incomplete"


TINY: dict[str, tuple[Experiment, dict[str, Any]]] = {
    "sweep": (
        temperature_sweep.EXPERIMENT,
        {"seeds": 2, "side": 3, "steps": 8, "held_steps": 4, "temperatures": 3, "moments": 4, "test_side": 9, "batch": 16},
    ),
    "precision": (
        noise_and_precision.EXPERIMENT,
        {"seeds": 1, "levels": 3, "steps": 4, "plane_steps": 3, "samples": 200, "side": 4, "batch": 16},
    ),
    "learnability": (
        learnability.EXPERIMENT,
        {"seeds": 2, "plane_targets": ["sin_plus_cos"], "plane_sides": [3], "space_targets": [], "steps": 3, "test_points": 400},
    ),
    "norms": (
        norms_under_noise.EXPERIMENT,
        {"seeds": 1, "variants": ["primary", "c3", "c4", "c5"], "levels": 2, "images": 16, "epochs": 1, "batch": 8, "entries": 8},
    ),
}


@pytest.mark.parametrize("name", TINY)
def test_a_tiny_run_repeats_bit_for_bit_is_judged_and_draws_its_figure(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from maxaffine.lab.data import DataSource

    experiment, changes = TINY[name]
    parameters = json.loads(json.dumps({**experiment.parameters, **changes}))
    context = Context("cpu", DataSource(None), tmp_path)
    units = experiment.units(parameters)
    results = [{"unit": unit, "values": dict(experiment.run(unit, parameters, context).values)} for unit in units]
    again = dict(experiment.run(units[-1], parameters, context).values)
    assert json.dumps(results[-1]["values"], sort_keys=True) == json.dumps(again, sort_keys=True)
    found = experiment.verdict(results, parameters)
    assert found.outcome != "incomplete" or name == "norms"
    assert ("SYNTHETIC" in found.sentence) == (name == "norms")
    assert experiment.table(results, parameters).rows
    experiment.draw(results, parameters, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
