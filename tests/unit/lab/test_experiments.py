"""The experiments explicit-weights and mean-field: the literal batch, the verdict rules, and a small run of each."""

import json
import math

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.cli.app import main
from maxaffine.core.errors import Refused
from maxaffine.lab import mean_field, mean_field_rules
from maxaffine.lab.experiment import Context
from maxaffine.lab.explicit_weights import EXPERIMENT, literal, verdict


def compiled(error=0.5):
    return ma.compile("sin(x) + cos(y)", ma.Box(x=(-math.pi, math.pi), y=(-math.pi, math.pi)), error=error, method="lookup")


def test_the_batched_form_is_the_definition_applied_to_the_literal_matrices():
    layer = compiled()
    weights = layer.matrices("self", "Q")
    x = np.random.default_rng(0).uniform(-math.pi, math.pi, (50, 2))
    whole = np.array([weights(point[:, None])[0, 0] for point in x])
    assert np.abs(literal(weights, x) - whole).max() < 1e-13
    assert np.abs(literal(weights, x) - layer(x)).max() < 1e-13


def test_the_batched_form_refuses_a_layout_whose_keys_depend_on_the_input():
    with pytest.raises(Refused, match="depend on the input"):
        literal(compiled(1.0).matrices("self", "K"), np.zeros((1, 2)))


def row(**changes):
    values = {"tokens": 4, "cells": [2, 2], "parameters": 9, "sharpness": 7.0, "bound": 0.9, "rounding": 0.0, "measured": 0.5,
              "points": 10, "deviation": 0.0}  # fmt: skip
    return {"unit": {"construction": "compiled", "error": 1.0, "part": 0}, "values": {**values, **changes}}


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, "reproduced"),
        ({"measured": 0.91}, "not reproduced"),
        ({"bound": 1.1}, "not reproduced"),
        ({"deviation": 1e-9}, "not reproduced"),
        ({"deviation": 1e-9, "rounding": 2e-9}, "reproduced"),
    ],
)
def test_explicit_weights_are_judged_by_their_rule(changes, outcome):
    assert verdict([row(**changes), row(**changes)], EXPERIMENT.parameters).outcome == outcome


def test_a_small_run_of_explicit_weights_ends_in_its_verdict(tmp_path, capsys):
    small = ["--set", "errors=1.0", "--set", "points=2000", "--set", "checked=5"]
    assert main(["lab", "run", "explicit-weights", "--quick", *small, "--out", str(tmp_path / "run"), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["verdict"]["outcome"] == "reproduced" and record["verdict"]["numbers"]["points in all"] == 6000
    assert [line[1] for line in record["table"]["rows"]] == ["continuity", "lipschitz", "compiled"]
    assert (tmp_path / "run" / "figure.png").stat().st_size > 10_000


RULES = [
    ("risk", {"a": {"exact": 1.0, "paper": 1.005}}, "holds"),
    ("risk", {"a": {"exact": 1.0, "paper": 1.005}, "b": {"exact": 1.0, "paper": 0.5}}, "holds in part"),
    ("risk", {"b": {"exact": 1.0, "paper": 0.5}}, "fails"),
    ("transition", {"400": {"below": 0.1, "above": 0.7}, "1600": {"below": 0.01, "above": 0.64}}, "holds"),
    ("transition", {"1600": {"below": 0.01, "above": 0.9}, "400": {"below": 0.1, "above": 0.7}}, "holds in part"),
    ("transition", {"1600": {"below": 0.2, "above": 0.9}, "400": {"below": 0.1, "above": 0.7}}, "fails"),
    ("optimality", {"largest_slope": -1e-9, "smallest_eigenvalue": -1e-15}, "holds"),
    ("optimality", {"largest_slope": 1e-9, "smallest_eigenvalue": 0.1}, "fails"),
    ("bayes", {"800": {"bayes": 0.1, "softmax": 0.2}, "100": {"bayes": 0.2, "softmax": 0.3}}, "holds"),
    ("bayes", {"800": {"bayes": 0.1, "softmax": 0.4}, "100": {"bayes": 0.2, "softmax": 0.3}}, "holds in part"),
    ("bayes", {"800": {"bayes": 0.3, "softmax": 0.4}, "100": {"bayes": 0.2, "softmax": 0.3}}, "fails"),
    ("stationary", {"g": [{"overlaps": [1, -1, 0, 0, 0], "kind": "saddle"}]}, "holds"),
    ("stationary", {"g": [{"overlaps": [0.3, -1, 0, 0, 0], "kind": "saddle"}]}, "holds in part"),
    ("stationary", {"g": [{"overlaps": [0.3, -1, 0, 0, 0], "kind": "minimum"}]}, "fails"),
    ("initialisation", {"population": {"g": {"learned": 20, "of": 20}}, "sampled": {"g": 1.0}}, "holds"),
    ("initialisation", {"population": {"g": {"learned": 17, "of": 20}}, "sampled": {"g": 0.25}}, "holds in part"),
    ("initialisation", {"population": {"g": {"learned": 5, "of": 20}}, "sampled": {"g": 0.25}}, "fails"),
    ("length", {"e^10": {"defect": 1e-15}}, "holds"),
    ("length", {"e^10": {"defect": 1e-3}}, "fails"),
    ("linear", {"linear": 0.249, "null": 0.25, "oracle": 1e-9}, "holds"),
    ("linear", {"linear": 0.2, "null": 0.25, "oracle": 1e-9}, "fails"),
    ("experiment", {"g": {"a": 1.0, "b": 0.96}}, "holds"),
    ("experiment", {"g": {"a": 1.0, "b": 0.9}}, "holds in part"),
    ("experiment", {"g": {"a": 0.0, "b": 0.9}}, "fails"),
]


@pytest.mark.parametrize(("name", "numbers", "wanted"), RULES)
def test_mean_field_claims_are_judged_by_their_rules(name, numbers, wanted):
    assert mean_field_rules.judge(name, numbers, "said") == wanted


def test_every_mean_field_rule_is_written_down_and_every_claim_has_one():
    from maxaffine.meanfield.claims import CLAIMS

    assert set(CLAIMS) == set(mean_field_rules.WORDS)
    assert all(words in mean_field.EXPERIMENT.rule for words in mean_field_rules.WORDS.values())


def test_training_of_mean_field_is_split_into_blocks_without_changing_it(tmp_path):
    parameters = {**mean_field.EXPERIMENT.parameters, "seeds": 2, "block": 1, "steps": 10, "every": 5}
    context = Context("cpu", None, tmp_path)
    one = [unit for unit in mean_field.units(parameters) if unit["kind"] == "training"][:2]
    both = next(unit for unit in mean_field.units({**parameters, "block": 2}) if unit["kind"] == "training")
    apart = [{"unit": unit, "values": dict(mean_field.run(unit, parameters, context).values)} for unit in one]
    together = [{"unit": both, "values": dict(mean_field.run(both, parameters, context).values)}]
    assert mean_field_rules.trained(apart) == mean_field_rules.trained(together)
