"""Experiments on max-margin selection and softmax ramps: their rules on made-up outcomes, and small runs of the cheap ones."""

import json

import numpy as np
import pytest

from maxaffine.cli.app import main
from maxaffine.lab import margin_basins, margin_data, margin_rate, ramp_sharpening, ramp_trained
from maxaffine.lab.experiment import Context
from maxaffine.lab.folder import checked_units
from maxaffine.lab.registry import EXPERIMENTS, find, resolve

OURS = [name for name in EXPERIMENTS if name.startswith(("margin-", "ramp-"))]


@pytest.mark.parametrize("name", OURS)
def test_every_experiment_has_its_units_and_quick_is_a_part_of_full(name):
    experiment = find(name)
    full, quick = (checked_units(experiment, resolve(experiment, flag)) for flag in (False, True))
    assert 0 < len(quick) < len(full)
    assert all(getattr(experiment, part).strip() for part in ("claim", "paper", "protocol", "rule"))


def test_outcomes_decide_as_the_rules_say():
    said = margin_data.by_outcomes(["pass"] * 3, "All", "", {})
    assert said.outcome == "reproduced" and said.numbers["pass"] == 3
    assert margin_data.by_outcomes(["pass", "fail", "not yet"], "All", "slack", {}).outcome == "not reproduced"
    assert margin_data.by_outcomes(["pass", "not yet"], "All", "slack", {}).outcome == "reproduced, but explained by slack"


def rate(**changes):
    return {"unit": {}, "values": {"room": 0.5, "slope": 1.001, "gap": 0.999, **changes}}


def test_rates_are_judged_where_the_slack_is_above_a_tenth():
    assert margin_rate.verdict([rate(), rate(room=0.01, slope=0.8)], {}).outcome == "reproduced"
    assert margin_rate.verdict([rate(), rate(slope=0.8)], {}).outcome == "not reproduced"
    assert margin_rate.verdict([rate(), rate(gap=1.05)], {}).outcome.startswith("reproduced, but explained by")
    assert margin_rate.verdict([rate(room=0.0)], {}).outcome == "incomplete"


def basin(n, best, data=None):
    return {"unit": {"n": n, "data": data}, "values": {"global": best, "not": 0.0, "choices": 1}}


def test_basins_of_three_inputs_need_not_be_global():
    rows = [basin(None, 0.69, "single-local"), basin(1, 1.0), basin(3, 0.8)]
    assert margin_basins.verdict(rows, {}).outcome.startswith("reproduced, but explained by inputs without a support pair")
    assert margin_basins.verdict([*rows[:2], basin(3, 1.0)], {}).outcome == "reproduced"
    assert margin_basins.verdict([rows[0], basin(1, 0.9), rows[2]], {}).outcome == "not reproduced"
    assert margin_basins.verdict([basin(None, 0.5, "single-local"), *rows[1:]], {}).outcome == "not reproduced"


def sharpening(way, growth):
    return {"unit": {"way": way, "rho": 5.44}, "values": {"first": 0.06, "last": 0.06 * growth, "rho": [5.44, 9.0]}}


def test_over_sharpening_is_judged_against_regression():
    def outcome(selected, said):
        return ramp_sharpening.verdict([sharpening("selection", selected), sharpening("regression", said)], {"end": 1e12}).outcome

    assert outcome(7.0, 1.2) == "reproduced" and "regression loses" in outcome(7.0, 3.0)
    assert "slow sharpening" in outcome(3.0, 1.0) and outcome(1.2, 1.0) == "not reproduced"


def test_selection_sharpens_a_ramp_head_and_regression_keeps_it(tmp_path):
    parameters = {**ramp_sharpening.EXPERIMENT.parameters, "end": 1e6}
    unit = {"p": 4, "rho": 5.44, "points": 3}
    found = {
        way: ramp_sharpening.run({**unit, "way": way}, parameters, Context("cpu", None, tmp_path)).values
        for way in ("selection", "regression")
    }
    assert found["selection"]["last"] > 3 * found["selection"]["first"] and np.all(np.diff(found["selection"]["rho"]) > -1e-9)
    assert found["regression"]["last"] < 2 * found["regression"]["first"]


def test_trained_curves_never_confirm_the_theorem():
    rows = [
        {"unit": {"setting": "truncated", "axis": axis, "heads": 1, "p": 60, "range": 50.0, axis: value, "seed": seed},
         "values": {"mse": 1.0 / value, "target": 32.0 / value}}
        for axis in ("heads", "p", "range") for value in (60, 120) for seed in (0, 1)
    ]  # fmt: skip
    for heads in (1, 4):
        unit = {"setting": "sequence", "axis": "sequence", "heads": heads, "seed": 0}
        rows.append({"unit": unit, "values": {"mse": 1.0, "target": 1.0}})
    said = ramp_trained.verdict(rows, {})
    assert said.outcome == "not reproduced" and "neither confirm nor refute" in said.sentence
    assert said.numbers["slope against p"] == pytest.approx(-1)


def test_a_quick_run_of_ramp_rate_is_recorded_with_every_variable(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["lab", "run", "ramp-rate", "--quick", "--set", "steps=4,64", "--set", "rhos=5.44", "--out", "run"]) == 0
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["verdict"]["outcome"] == "reproduced" and all(record["card"].values())
