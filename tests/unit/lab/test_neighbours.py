"""Experiments on max-margin selection and softmax ramps: their rules on made-up outcomes, and small runs of the cheap ones."""

import json

import numpy as np
import pytest

from maxaffine.cli.app import main
from maxaffine.lab import margin_basins, margin_data, margin_rate, ramp_layers, ramp_sharpening, ramp_trained
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


def basin(n, best, data=None, held=0, certified=0, vacuous=1):
    shares = {"global": best, "local": 0.9 - best, "tied": 0.1, "not": 0.0}
    told = {"choices": 1, "several": 1, "vacuous": vacuous, "starts": 40, "held": held, "certified": certified}
    return {"unit": {"n": n, "data": data}, "values": {**shares, **told}}


def test_basins_of_three_inputs_need_not_be_global():
    rows = [basin(None, 0.69, "single-local"), basin(1, 1.0), basin(3, 0.8)]
    assert margin_basins.verdict(rows, {}).outcome.startswith("reproduced, but explained by inputs without a support pair")
    assert margin_basins.verdict([*rows[:2], basin(3, 1.0)], {}).outcome == "reproduced"
    assert margin_basins.verdict([rows[0], basin(1, 0.9), rows[2]], {}).outcome == "not reproduced"
    assert margin_basins.verdict([basin(None, 0.5, "single-local"), *rows[1:]], {}).outcome == "not reproduced"
    assert margin_basins.verdict([*rows, basin(3, 0.8, vacuous=0)], {}).outcome == "not reproduced"
    still = margin_basins.verdict([*rows, basin(3, 0.8, held=5)], {})
    assert still.outcome.startswith("reproduced, but") and "160 starts 5 are still" in still.sentence
    assert margin_basins.verdict([*rows, basin(3, 0.8, held=5, certified=1)], {}).outcome == "not reproduced"


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
    rows = []
    for unit in ramp_trained.units({**ramp_trained.EXPERIMENT.quick, "seeds": 2}):
        size = unit.get("p", 30) * unit.get("heads", 1)
        rows.append({"unit": unit, "values": {"mse": 1.0 / size, "target": 32.0 / size, "spread": 64.0, "apart": 0.5}})
    said = ramp_trained.verdict(rows, {})
    assert said.outcome == "not reproduced" and "neither confirm nor refute" in said.sentence
    for axis, slope in (("heads", -1), ("p", -1), ("range", 0), ("sequence heads", -1), ("sequence p", -1)):
        assert said.numbers[f"slope against {axis}"] == pytest.approx(slope, abs=1e-12)
    assert [row[:3] for row in ramp_trained.table(rows, {}).rows[:2]] == [("heads", 1, 2), ("heads", 4, 2)]
    found = next(row for row in rows if row["unit"]["setting"] == "truncated")
    found["values"]["target"] = 0.9 * (0.0619 * found["unit"]["range"] / found["unit"]["p"]) ** 2
    assert ramp_trained.verdict(rows, {}).outcome == "reproduced"


def test_the_trained_layers_are_those_of_the_paper():
    torch = pytest.importorskip("torch")
    model = ramp_layers.attention_model(4, 3, 6, 2, 32, 1)
    (mapping, attention, *_), x = model, torch.randn(5, 4, 3)
    z = mapping(x)
    assert z.shape == (5, 6, 32) and model(x).shape == (5, 4, 32)
    assert torch.equal(z[:, 4:], mapping.extra.expand(5, 2, 32))  # tokens that no input changes
    moved = x.clone()
    moved[:, 0] += 1.0
    assert torch.equal(mapping(moved)[:, 1:], z[:, 1:])  # and none that mixes two of them
    q, k, v = (one(z).reshape(5, 6, 2, 16).transpose(1, 2) for one in (attention.query, attention.key, attention.value))
    weights = torch.softmax(q @ k.transpose(2, 3) / 4.0, dim=-1)
    assert torch.allclose(attention(z), attention.out((weights @ v).transpose(1, 2).reshape(5, 6, 32)), atol=1e-5)
    maps, _ = ramp_layers.map_model(4, 3, 1.5, 0).attention(x)
    assert torch.allclose(maps.sum(dim=-1), torch.ones(5, 4))


def test_a_quick_run_of_ramp_rate_is_recorded_with_every_variable(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["lab", "run", "ramp-rate", "--quick", "--set", "steps=4,64", "--set", "rhos=5.44", "--out", "run"]) == 0
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["verdict"]["outcome"] == "reproduced" and all(record["card"].values())
