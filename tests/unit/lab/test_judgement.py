"""Tests of curves, and the verdict of norms under noise on made-up ones."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from maxaffine.lab import trends
from maxaffine.lab.norms_judgement import table, verdict
from maxaffine.lab.norms_under_noise import EXPERIMENT, units

SIGMA = np.linspace(0, 0.72, 25)
PARAMETERS = dict(EXPERIMENT.parameters)


def rows(norm: Any, rescaled_norm: Any, rescaled_logits: Any, synthetic: bool = False, only: str = "") -> list[dict[str, Any]]:
    """Results in which the norms of the primary run, and norms and logits of C1, follow given curves."""
    found = []
    for unit in units(PARAMETERS):
        if unit["variant"] not in ("primary", "c1") or (only and unit["variant"] != only):
            continue
        curve = np.asarray(norm if unit["variant"] == "primary" else rescaled_norm) * (1 + 0.01 * unit["seed"])
        values: dict[str, Any] = {"synthetic": synthetic, "sigma": SIGMA.tolist(), "train_logit_std": list(rescaled_logits)}
        values |= {name: curve.tolist() for name in ("key_frobenius", "query_frobenius", "product_frobenius")}
        found.append({"unit": unit, "values": values})
    return found


FALLING, RISING = np.exp(-SIGMA), np.exp(SIGMA)
WAVY = 1 + 0.1 * np.sin(9 * SIGMA)


def test_declining_norms_whose_logits_decline_in_c1_are_reproduced_as_blur() -> None:
    found = verdict(rows(FALLING, FALLING, FALLING), PARAMETERS)
    assert found.outcome == "reproduced" and "survives C1" in found.sentence
    assert found.numbers["Spearman primary MNIST key_frobenius"] == -1.0


def test_declining_norms_are_explained_by_growing_inputs_where_c1_stops_both_declines() -> None:
    found = verdict(rows(FALLING, WAVY, RISING), PARAMETERS)
    assert found.outcome == "reproduced, but explained by the growth of the inputs under noise"


def test_declining_norms_whose_logits_do_not_decline_in_c1_are_reproduced_without_blur() -> None:
    found = verdict(rows(FALLING, FALLING, RISING), PARAMETERS)
    assert found.outcome == "reproduced" and "not shown" in found.sentence


def test_one_data_set_that_does_not_decline_is_enough_to_refute() -> None:
    results = rows(FALLING, FALLING, FALLING)
    for row in results:
        if row["unit"]["dataset"] == "cifar10" and row["unit"]["variant"] == "primary":
            row["values"]["query_frobenius"] = RISING.tolist()
    found = verdict(results, PARAMETERS)
    assert found.outcome == "not reproduced"
    assert found.numbers["Spearman primary CIFAR-10 query_frobenius"] == 1.0


def test_missing_units_are_incomplete_and_missing_controls_leave_the_reason_open() -> None:
    results = rows(FALLING, FALLING, FALLING)
    assert verdict(results[1:], PARAMETERS).outcome == "incomplete"
    assert "not tested" in verdict(rows(FALLING, FALLING, FALLING, only="primary"), PARAMETERS).sentence


def test_variants_that_do_not_decide_are_named_where_they_decline() -> None:
    results = rows(RISING, RISING, RISING)
    for unit in units(PARAMETERS):
        if unit["variant"] in ("c3", "adamw"):
            curve = (FALLING if unit["variant"] == "c3" else WAVY).tolist()
            values = {"sigma": SIGMA.tolist(), "key_frobenius": curve, "query_frobenius": curve}
            results.append({"unit": unit, "values": values})
    found = verdict(results, PARAMETERS)
    assert found.outcome == "not reproduced"
    assert found.numbers["other variants that decline on all three"] == "C3 (all but W_Q and W_K frozen)"


def test_synthetic_data_never_decide_and_say_so_loudly() -> None:
    found = verdict(rows(FALLING, FALLING, FALLING, synthetic=True), PARAMETERS)
    assert found.outcome == "incomplete" and found.sentence.startswith("SYNTHETIC DATA")


def test_a_reduced_run_says_so() -> None:
    assert "reduced run" in verdict(rows(FALLING, FALLING, FALLING), {**PARAMETERS, "epochs": 5}).sentence


def test_the_table_has_a_row_per_variant_data_set_and_quantity() -> None:
    assert len(table(rows(FALLING, WAVY, RISING), PARAMETERS).rows) == 2 * 3 * 4


def test_units_have_five_seeds_in_the_primary_run_three_elsewhere_and_distinct_names() -> None:
    found = units(PARAMETERS)
    assert len({unit["id"] for unit in found}) == len(found) == 5 * 3 + 6 * 3 * 3 + 3
    assert sum(unit["variant"] == "primary" for unit in found) == 15


def test_spearman_agrees_with_scipy_also_with_ties() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        x, y = generator.integers(0, 6, 15), generator.standard_normal(15).round(1)
        assert trends.spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
    assert trends.spearman([1, 2, 3], [5, 5, 5]) == 0.0


def test_the_decreasing_fit_is_the_projection_on_decreasing_curves() -> None:
    generator = np.random.default_rng(1)
    y = generator.standard_normal(12)
    fit = trends.decreasing_fit(y)
    assert (np.diff(fit) <= 1e-12).all()
    best = ((y - fit) ** 2).sum()
    for _ in range(300):  # no other decreasing curve is nearer
        other = np.sort(fit + 0.3 * generator.standard_normal(12))[::-1]
        assert ((y - other) ** 2).sum() >= best - 1e-12
    assert trends.decreasing_r2(FALLING) == 1.0
    assert trends.decreasing_r2(RISING) == pytest.approx(0.0, abs=1e-12)


def test_slopes_increases_signs_and_intervals() -> None:
    assert trends.log_log_slope(SIGMA + 0.1, 3 * (SIGMA + 0.1) ** -2.0, 0.3) == pytest.approx(-2)
    assert np.isnan(trends.log_log_slope([0.1, 0.2], [1.0, 2.0], 0.3))
    assert trends.increases([3, 2, 2.5, 1]) == 1
    assert trends.sign_test(5, 5) == 1 / 32 and trends.sign_test(0, 3) == 1.0
    mean, half = trends.mean_and_interval([[1.0], [2.0], [3.0]])
    low, high = stats.t.interval(0.95, 2, loc=2, scale=1 / np.sqrt(3))
    assert mean[0] == 2 and half[0] == pytest.approx((high - low) / 2)
