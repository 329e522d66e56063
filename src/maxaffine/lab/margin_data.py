"""The problems of the experiments on max-margin selection, by name: the paper's, random ones, and the sibling's."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.lab.experiment import REPRODUCED, Verdict
from maxaffine.margin.examples import multi, random_tokens, single, sphere_tokens
from maxaffine.margin.matrix import lift
from maxaffine.margin.problem import Tokens

HEIGHTS = (1.0, 0.5, 0.0, -0.5, -1.0, -1.5)  # of the paper's six starts


def problem_of(data: str, seed: int) -> tuple[Tokens, Array | None]:
    """The tokens, and the query to begin at; for the paper's data the seed is the number of the start."""
    if data in ("single", "single-local"):
        return single("local" if data == "single-local" else "global"), np.array([0.0, HEIGHTS[seed % 6]])
    if data == "multi":
        return multi(), np.array([HEIGHTS[seed % 6], 0.0])
    if data == "sibling":
        X, v, z = sphere_tokens(seed)
        return lift(X, z, X @ v), 0.1 * np.random.default_rng(seed).standard_normal(X.shape[2] ** 2)
    return random_tokens(seed), None


def counted(outcomes: Sequence[str]) -> dict[str, int]:
    """How many passed, failed, and are not decided."""
    return {"pass": outcomes.count("pass"), "not yet": outcomes.count("not yet"), "fail": outcomes.count("fail")}


def by_outcomes(outcomes: Sequence[str], what: str, late: str, numbers: dict[str, Any]) -> Verdict:
    """Reproduced where all pass, not where one fails, and explained where some are not decided in the time there was."""
    found = counted(outcomes)
    numbers = {**found, **numbers}
    if found["fail"]:
        return Verdict("not reproduced", f"{what}: {found['fail']} of {len(outcomes)} fail.", numbers)
    if found["not yet"]:
        told = f"{what}: {found['pass']} of {len(outcomes)} pass, none fails, {found['not yet']} are not decided."
        return Verdict(f"reproduced, but explained by {late}", told, numbers)
    return Verdict(REPRODUCED, f"{what}: all {len(outcomes)} pass.", numbers)
