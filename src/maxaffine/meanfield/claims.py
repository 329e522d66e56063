"""Every headline claim of the paper, checked by running the exact theory against it; claims.toml has the words."""

import math
import tomllib
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from maxaffine.core.progress import Progress, silent
from maxaffine.meanfield.baselines import bayes_risk, best_lambda, best_linear_risk, null_risk
from maxaffine.meanfield.dynamics import step_overlaps
from maxaffine.meanfield.experiment import GAMMAS, compare, paper_settings, run_seeds
from maxaffine.meanfield.landscape import hessian_oracle, stationary_points
from maxaffine.meanfield.limit import MeanField, PaperRisk
from maxaffine.meanfield.problem import Overlaps, Problem
from maxaffine.meanfield.risk import Risk, RiskTable, SoftmaxRisk

Verdict = Literal["holds", "holds in part", "fails"]
Found = tuple[Verdict, dict[str, Any], dict[str, Any]]  # verdict, numbers, and what the words of the finding need
ORACLE = Overlaps(1.0, 1.0)


@dataclass(frozen=True)
class Claim:
    """A claim, how it is checked, what was found, in one word and in numbers."""

    claim: str
    check: str
    finding: str
    verdict: Verdict
    numbers: dict[str, Any]


def _risk(progress: Progress, seeds: int) -> Found:
    cases = {
        "retrieval": (0.05, 1.0, 0.6, Overlaps(0.8, 0.5, 0.1, 0.0, 0.1)),
        "uncondensed": (0.3, 0.5, 0.8, Overlaps(0.5, 0.6)),
        "condensed": (0.1, 1.0, 0.95, ORACLE),
        "transition": (0.1, 1.0, 0.8, Overlaps(math.sqrt(0.2) / 0.6, 0.5)),
    }
    rows = {}
    for i, (name, (alpha, beta, gamma, o)) in enumerate(cases.items()):
        exact = SoftmaxRisk(Problem.from_alpha(2000, alpha, gamma), beta=beta).risk(o)
        limit = MeanField(alpha, beta, gamma, 2000)
        rows[name] = {"exact": exact, "corrected": limit.risk_corrected(o), "paper": limit.risk_paper(o)}
        progress("risk formula", i + 1, len(cases))
    off = {name: row["paper"] - row["exact"] for name, row in rows.items()}
    return "holds in part", rows, {"off": off, "corrected": rows["condensed"]["corrected"] - rows["condensed"]["exact"]}


def _transition(progress: Progress, seeds: int) -> Found:
    gamma, beta = 0.8, 1.0
    threshold = MeanField(0.1, beta, gamma, 1).alpha_softmax
    rows = {}
    dims = (100, 400, 1600)
    for i, d in enumerate(dims):
        sides = {"below": 0.6, "above": 1.6}
        problems = {side: Problem.from_alpha(d, factor * threshold, gamma) for side, factor in sides.items()}
        rows[str(d)] = {side: SoftmaxRisk(problem, beta=beta).risk(ORACLE) for side, problem in problems.items()}
        progress("transition", i + 1, len(dims))
    limit = gamma**2 + MeanField(1.6 * threshold, beta, gamma, dims[-1]).participation
    falls = ", ".join(f"{row['below']:.1e}" for row in rows.values())
    return "holds in part", rows, {"falls": falls, "above": rows["1600"]["above"], "limit": limit, "null": gamma**2}


def _optimality(progress: Progress, seeds: int) -> Found:
    slopes, eigenvalues = [], []
    lengths = (2.0, 5.0, 20.0, 1e3, 1e6, 1e9)
    for i, length in enumerate(lengths):
        for d, gamma, lam in product((4, 20, 100, 300), (0.2, 0.5, 0.8, 0.95, 0.99), (0.1, 1.0, 5.0, 20.0)):
            risk = SoftmaxRisk(Problem(d, length, gamma), lam=lam)
            eigenvalues.append(hessian_oracle(risk).smallest)
            slopes += [risk.value_and_gradient(Overlaps(mu, 1.0))[1].mu for mu in (-0.9, -0.3, 0.0, 0.3, 0.9)]
        progress("oracle", i + 1, len(lengths))
    numbers = {"settings": len(eigenvalues), "largest_slope": max(slopes), "smallest_eigenvalue": min(eigenvalues)}
    return "holds" if max(slopes) <= 0 and min(eigenvalues) > -1e-12 else "fails", numbers, numbers


def _bayes(progress: Progress, seeds: int) -> Found:
    limit = MeanField(0.2, 1.0, 0.8, 1)
    rows = {}
    dims = (100, 400, 800)
    for i, d in enumerate(dims):
        problem = Problem.from_alpha(d, limit.alpha, limit.gamma)
        rows[str(d)] = {
            "bayes": bayes_risk(problem), "softmax": best_lambda(problem)[1], "projected": bayes_risk(problem, "projected")
        }  # fmt: skip
        progress("Bayes", i + 1, len(dims))
    risks = {who: ", ".join(f"{row[who]:.3f}" for row in rows.values()) for who in ("bayes", "softmax")}
    return "holds in part", rows, {"limit": limit, **risks}


def _stationary(progress: Progress, seeds: int) -> Found:
    rows = {}
    kinds: dict[str, int] = {}
    for name, gamma in GAMMAS.items():
        table = RiskTable(SoftmaxRisk(Problem(100, 20, gamma), beta=1.0))
        points = stationary_points(table, planar=True)
        rows[name] = [{"overlaps": list(p.overlaps), "kind": p.kind, "risk": p.risk} for p in points]
        for point in points:
            if not (abs(point.overlaps.mu) == 1 and abs(point.overlaps.nu) == 1):
                kinds[point.kind] = kinds.get(point.kind, 0) + 1
        progress("stationary points", len(rows), len(GAMMAS))
    attractors = kinds.get("minimum", 0)
    told = ", ".join(f"{count} of type {kind}" for kind, count in sorted(kinds.items()))
    return "holds in part" if attractors == 0 else "fails", rows, {"kinds": told, "attractors": attractors}


def _invariance(progress: Progress, seeds: int) -> Found:
    risk = SoftmaxRisk(Problem(100, 20, 0.5), beta=1.0)
    leak = 0.0
    for mu, nu in ((0.1, 0.0), (-0.4, 0.7), (0.9, -0.3)):
        o = Overlaps(mu, nu)
        for _ in range(20):
            o = step_overlaps(o, risk.value_and_gradient(o)[1], 0.1)
            leak = max(leak, abs(o.eta), abs(o.zeta), abs(o.rho))
    return "holds" if leak == 0 else "fails", {}, {"leak": leak}


def uniform_overlaps(d: int, seed: int) -> Overlaps:
    """The overlaps of u and v uniform on the sphere of R^d."""
    u, v = np.random.default_rng([seed, 7]).standard_normal((2, d))
    return Overlaps.from_vectors(u, v, np.eye(d)[0], np.eye(d)[1])


def steps_to_learn(risk: Risk, judge: Risk, start: Overlaps, step: float, limit: int, level: float) -> int | None:
    """Steps of gradient descent on ``risk`` until ``judge`` finds the risk below ``level``, or None within ``limit``."""
    o = start
    for k in range(limit + 1):
        if (k % 10 == 0 or risk is judge) and judge.value_and_gradient(o)[0] < level:
            return k
        o = step_overlaps(o, risk.value_and_gradient(o)[1], step)
    return None


def _initialisation(progress: Progress, seeds: int) -> Found:
    rows: dict[str, Any] = {}
    for name, gamma in GAMMAS.items():
        problem = Problem(100, 20, gamma)
        table = RiskTable(SoftmaxRisk(problem, beta=1.0))
        paper = PaperRisk(MeanField.of(problem, 1.0), problem)
        starts = [uniform_overlaps(100, seed) for seed in range(20)]
        taken = []
        for i, start in enumerate(starts):
            taken.append(steps_to_learn(table, table, start, 0.01, 20_000, 0.01))
            progress(f"random starts, gamma = {name}", i + 1, len(starts))
        by_paper = [steps_to_learn(paper, table, start, 0.01, 5_000, 0.01) for start in starts]
        good = [k for k in taken if k is not None]
        rows[name] = {
            "learned": len(good), "of": len(starts), "median_steps": float(np.median(good)) if good else None,
            "slowest": max(good, default=None), "driven_by_paper": sum(k is not None for k in by_paper),
        }  # fmt: skip
    return "holds in part", rows, {"first": rows["1/sqrt(2)"], "second": rows["1/2"]}


def _length(progress: Progress, seeds: int) -> Found:
    rows = {}
    for power in (10, 50, 100, 200):
        risk = SoftmaxRisk(Problem(1000, 1 + math.exp(power), 0.5), beta=1.0)
        rows[f"e^{power}"] = {"defect": risk.self_check(1.0), "risk": risk.risk(ORACLE)}
        progress("lengths", len(rows), 4)
    return "holds", rows, {"risk": rows["e^200"]["risk"], "worst": max(row["defect"] for row in rows.values())}


def _linear(progress: Progress, seeds: int) -> Found:
    problem = Problem(100, 20, 0.5)
    oracle = SoftmaxRisk(problem, beta=1.0).risk(ORACLE)
    numbers = {"linear": best_linear_risk(problem), "null": null_risk(problem), "oracle": oracle}
    return "holds", numbers, numbers


def _experiment(progress: Progress, seeds: int) -> Found:
    rows = {}
    for name, gamma in GAMMAS.items():
        settings = paper_settings(gamma, steps=600, starts=("uniform", Overlaps(0.3, 0.0)), every=100)
        rows[name] = compare(settings, run_seeds(settings, range(seeds), progress=progress), ("uniform", "mu0 = 0.3"))
    entry = rows["1/sqrt(2)"][1]
    at = entry["steps"].index(200)
    words = {name: entry[name]["median"][at] for name in ("test", "exact", "paper")}
    learned = [rows[name][0]["learned"] for name in ("1/sqrt(2)", "1/2")]
    return "fails", rows, {"seeds": seeds, "learned": learned, "entry": entry, **words}


_FUNCTIONS = (
    _risk, _transition, _optimality, _bayes, _stationary, _invariance, _initialisation, _length, _linear, _experiment
)  # fmt: skip
CLAIMS = {function.__name__.strip("_"): function for function in _FUNCTIONS}
WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def check(name: str, progress: Progress = silent, seeds: int = 0) -> Claim:
    """Check one claim; ``seeds`` simulations where there are any."""
    verdict, numbers, found = CLAIMS[name](progress, seeds)
    words = WORDS[name]
    return Claim(words["claim"], words["check"].format(seeds=seeds), words["finding"].format(**found), verdict, numbers)


def check_claims(names: list[str] | None = None, seeds: int = 4, progress: Progress = silent) -> list[Claim]:
    """Check the named claims (all by default); ``seeds`` simulations for the experiment."""
    wanted = list(CLAIMS) if names is None else names
    found = []
    for i, name in enumerate(wanted):
        found.append(check(name, progress, seeds))
        progress("claims", i + 1, len(wanted))
    return found
