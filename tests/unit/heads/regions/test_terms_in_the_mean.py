"""L_p bounds on regions: the heights of jumps and what kinks mix are counted in full, by certificate and checker."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.checker import check
from maxaffine.checker.regions import beyond_a_jump
from maxaffine.heads.regions.plan import build_regions
from maxaffine.heads.regions.prove import certify_regions_integral
from maxaffine.layer.file import to_tensors
from maxaffine.runtime import chooser


@pytest.mark.parametrize(("text", "norm", "soft", "most"), [
    ("sign(x-.3*y)", 1.0, {"jump": 40.0}, 1.8), ("sign(x-.3*y)+abs(x+y)", 2.0, {"jump": 1e7, "kink": 0.5}, 3.0),
])  # fmt: skip
def test_soft_layers_come_close_to_their_bounds(text, norm, soft, most):
    """Steepness chosen plane by plane, so that one term alone is the error; half of that term would be below the truth."""
    made = ma.compile(text, ma.Box(x=(-1, 1), y=(-1, 1)), error=1e-2, norm=norm, method="regions")
    plan = made.prove.args[1]
    slopes = list(plan.slopes)
    jumps = {crossing.plane for crossing in plan.arrangement.crossings if crossing.jumps}
    plan = replace(plan, steepness=tuple(soft["jump" if i in jumps else "kink"] for i in range(len(plan.steepness))))
    layer = build_regions(plan, made.target, "float64")
    line = -1.0 + 2.0 * (np.arange(900) + 0.5) / 900
    x = np.stack([m.ravel() for m in np.meshgrid(line, line, indexing="ij")], axis=1)
    away = np.abs(chooser.evaluate(layer, x) - made.target.values(x))[:, 0, 0]
    true = float((away**norm).mean() * 4.0) ** (1.0 / norm)
    bound = certify_regions_integral(layer, plan, norm, 1.0, slopes).bound
    assert true * 0.99 <= bound <= most * true
    tensors, description = to_tensors(layer)
    _, record = made._record()
    verdict = check(tensors, {**record, "layer": description, "plan": plan.to_json(), "error": most * true})
    assert true * 0.99 <= verdict.bound <= 1.1 * most * true


@pytest.mark.parametrize("p", [1.0, 2.5])
@pytest.mark.parametrize(("beyond", "drift"), [(1, 0.0), (5, 0.0), (5, 0.4), (1, 0.9)])
def test_the_checker_counts_regions_beyond_a_jump_and_errors_of_scores(beyond, drift, p):
    """Against a fine sum of min(1, C e^{2 d - 2 lam |h|})^p over the box, for jumps of height two."""
    low, high, lam = np.array([-1.0, -2.0]), np.array([2.0, 1.0]), 15.0
    plane = (Fraction(1), Fraction(-3, 10), Fraction(1, 10))
    found = 2.0 * (beyond_a_jump(plane, lam, [1] * beyond + [-1], high - low, drift, p) * 9.0) ** (1.0 / p)
    axes = [a + 3.0 * (np.arange(1200) + 0.5) / 1200 for a in low]
    h = np.abs(axes[0][:, None] - 0.3 * axes[1] + 0.1)
    true = 2.0 * (float((np.minimum(1.0, beyond * np.exp(2 * drift - 2 * lam * h)) ** p).mean()) * 9.0) ** (1.0 / p)
    assert 0.995 * true <= found <= 1.5 * true
