"""Every headline claim of the paper, checked by running the exact theory against it."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
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
ORACLE = Overlaps(1.0, 1.0)


@dataclass(frozen=True)
class Claim:
    """A claim, how it is checked, what was found, in one word and in numbers."""

    claim: str
    check: str
    finding: str
    verdict: Verdict
    numbers: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


Found = tuple[str, Verdict, dict[str, Any]]  # finding, verdict, numbers


@dataclass(frozen=True)
class Check:
    """A claim and the way it is checked, in words and as a function."""

    claim: str
    check: str
    function: Callable[[Progress, int], Found]

    def __call__(self, progress: Progress, seeds: int) -> Claim:
        """Check it; ``seeds`` simulations where there are any."""
        return Claim(self.claim, self.check.format(seeds=seeds), *self.function(progress, seeds))


def _risk_formula(progress: Progress, seeds: int) -> Found:
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
    finding = (
        f"at d = 2000 off by {off['retrieval']:+.1e} in retrieval and {off['uncondensed']:+.1e} uncondensed, but by "
        f"{off['condensed']:+.3f} in the condensed phase without retrieval (the participation ratio is missing; the corrected "
        f"limit is off by {rows['condensed']['corrected'] - rows['condensed']['exact']:+.4f}) and by {off['transition']:+.3f} "
        "at the transition"
    )
    return finding, "holds in part", rows


def _transition(progress: Progress, seeds: int) -> Found:
    gamma, beta = 0.8, 1.0
    threshold = MeanField(0.1, beta, gamma, 1).alpha_softmax
    rows = {}
    dims = (100, 400, 1600)
    for i, d in enumerate(dims):
        below, above = (
            SoftmaxRisk(Problem.from_alpha(d, factor * threshold, gamma), beta=beta).risk(ORACLE) for factor in (0.6, 1.6)
        )
        rows[str(d)] = {"below": below, "above": above}
        progress("transition", i + 1, len(dims))
    limit = gamma**2 + MeanField(1.6 * threshold, beta, gamma, dims[-1]).participation
    falls = ", ".join(f"{rows[str(d)]['below']:.1e}" for d in dims)
    finding = (
        f"location right: at 0.6 times the threshold the oracle's risk falls {falls} for d = 100, 400, 1600; at 1.6 times it "
        f"tends to {rows['1600']['above']:.3f}, near gamma^2 + Y2 = {limit:.3f} and worse than null ({gamma**2:.2f}), "
        "not to gamma^2"
    )
    return finding, "holds in part", rows


def _optimality(progress: Progress, seeds: int) -> Found:
    worst_slope, worst_eigenvalue, count = -math.inf, math.inf, 0
    lengths = (2.0, 5.0, 20.0, 1e3, 1e6, 1e9)
    for i, length in enumerate(lengths):
        for d in (4, 20, 100, 300):
            for gamma in (0.2, 0.5, 0.8, 0.95, 0.99):
                for lam in (0.1, 1.0, 5.0, 20.0):
                    risk = SoftmaxRisk(Problem(d, length, gamma), lam=lam)
                    hessian = hessian_oracle(risk)
                    worst_eigenvalue = min(worst_eigenvalue, hessian.smallest)
                    slopes = [risk.value_and_gradient(Overlaps(mu, 1.0))[1].mu for mu in (-0.9, -0.3, 0.0, 0.3, 0.9)]
                    worst_slope = max(worst_slope, *slopes)
                    count += 1
        progress("oracle", i + 1, len(lengths))
    finding = (
        f"R decreases in mu at nu = 1 (proved: the brace of formula (M) is a sum of positive terms); over {count} settings the "
        f"largest slope is {worst_slope:.1e} and the smallest Hessian eigenvalue at the oracle {worst_eigenvalue:.1e}; "
        "global optimality is not proved"
    )
    numbers = {"settings": count, "largest_slope": worst_slope, "smallest_eigenvalue": worst_eigenvalue}
    fine: Verdict = "holds" if worst_slope <= 0 and worst_eigenvalue > -1e-12 else "fails"
    return finding, fine, numbers


def _bayes(progress: Progress, seeds: int) -> Found:
    gamma, alpha = 0.8, 0.2
    limit = MeanField(alpha, 1.0, gamma, 1)
    rows = {}
    dims = (100, 400, 800)
    for i, d in enumerate(dims):
        problem = Problem.from_alpha(d, alpha, gamma)
        rows[str(d)] = {
            "bayes": bayes_risk(problem),
            "softmax": best_lambda(problem)[1],
            "projected": bayes_risk(problem, "projected"),
        }
        progress("Bayes", i + 1, len(dims))
    falls, rises = (", ".join(f"{rows[str(d)][who]:.3f}" for d in dims) for who in ("bayes", "softmax"))
    finding = (
        f"softmax reaches zero risk up to alpha = {limit.alpha_softmax:.4f}, Bayes up to log(1/gamma) = {limit.alpha_bayes:.4f}; "
        f"between, at alpha = {alpha}, Bayes falls {falls} (d = 100, 400, 800) while the best softmax rises {rises}: "
        "an intermediate phase"
    )
    return finding, "holds in part", rows


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
    finding = (
        "at finite size there are further ones, for gamma = 1/sqrt(2) and 1/2 together "
        + ", ".join(f"{count} of type {kind}" for kind, count in sorted(kinds.items()))
        + " (one on the manifold: a saddle at mu = 0.2958, nu = -1 for gamma = 1/2; the others with u and v in the plane of "
        f"u*, v*, where the maximum that compactness demands lies too); {attractors} of them attract"
    )
    verdict: Verdict = "holds in part" if attractors == 0 else "fails"
    return finding, verdict, rows


def _invariance(progress: Progress, seeds: int) -> Found:
    risk = SoftmaxRisk(Problem(100, 20, 0.5), beta=1.0)
    leak = 0.0
    for mu, nu in ((0.1, 0.0), (-0.4, 0.7), (0.9, -0.3)):
        o = Overlaps(mu, nu)
        for _ in range(20):
            o = step_overlaps(o, risk.value_and_gradient(o)[1], 0.1)
            leak = max(leak, abs(o.eta), abs(o.zeta), abs(o.rho))
    finding = f"exact, by the symmetry (eta, zeta, rho) -> -(eta, zeta, rho); after 20 steps the largest of them is {leak:g}"
    return finding, "holds" if leak == 0 else "fails", {}


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
    first, second = rows["1/sqrt(2)"], rows["1/2"]
    finding = (
        "population gradient descent from uniform starts reaches excess risk 0.01 in 20,000 steps "
        f"{first['learned']}/{first['of']} (gamma 1/sqrt(2), median {first['median_steps']:.0f} steps, "
        f"slowest {first['slowest']}) and "
        f"{second['learned']}/{second['of']} (gamma 1/2; the rest wait on a plateau); driven by the paper's own risk "
        f"{first['driven_by_paper']} and {second['driven_by_paper']} of 20 in 5,000 steps. "
        "With n = 1000 samples most uniform starts memorise: see the last claim"
    )
    return finding, "holds in part", rows


def _length(progress: Progress, seeds: int) -> Found:
    defects = {}
    for power in (10, 50, 100, 200):
        risk = SoftmaxRisk(Problem(1000, 1 + math.exp(power), 0.5), beta=1.0)
        defects[f"e^{power}"] = {"defect": risk.self_check(1.0), "risk": risk.risk(ORACLE)}
        progress("lengths", len(defects), 4)
    worst = max(row["defect"] for row in defects.values())
    finding = (
        f"verified at d = 1000 for L up to e^200 = 7e86: the oracle retrieves (risk {defects['e^200']['risk']:.1e}); "
        f"sum rules hold to {worst:.0e}"
    )
    return finding, "holds", defects


def _linear(progress: Progress, seeds: int) -> Found:
    problem = Problem(100, 20, 0.5)
    linear, null, oracle = best_linear_risk(problem), null_risk(problem), SoftmaxRisk(problem, beta=1.0).risk(ORACLE)
    finding = f"best linear {linear:.4f} against null {null:.4f} and softmax oracle {oracle:.1e} (d = 100, L = 20, gamma = 1/2)"
    return finding, "holds", {"linear": linear, "null": null, "oracle": oracle}


def _experiment(progress: Progress, seeds: int) -> Found:
    rows = {}
    for name, gamma in GAMMAS.items():
        settings = paper_settings(gamma, steps=600, starts=("uniform", Overlaps(0.3, 0.0)), every=100)
        rows[name] = compare(settings, run_seeds(settings, range(seeds), progress=progress), ("uniform", "mu0 = 0.3"))
    entry = rows["1/sqrt(2)"][1]
    at = entry["steps"].index(200)
    finding = (
        "not reproduced quantitatively, and no initialisation is given: from uniform starts "
        f"{rows['1/sqrt(2)'][0]['learned']} and {rows['1/2'][0]['learned']} of {seeds} runs learned in 600 steps; from mu0 = 0.3 "
        f"{entry['learned']} of {seeds} do, and at step 200 the test risk is {entry['test']['median'][at]:.3f}, the exact "
        f"risk at the measured overlaps {entry['exact']['median'][at]:.3f}, the paper's formula "
        f"{entry['paper']['median'][at]:.3f}; the exact formula stays within {entry['z_max']:.1f} standard errors until the "
        "runs have learned"
    )
    return finding, "fails", rows


CLAIMS: dict[str, Check] = {
    "risk": Check("the risk is an explicit function of the overlaps (Prop. 1, Cor. 1)",
        "exact risk against Corollary 1 at d = 2000", _risk_formula),
    "transition": Check("sharp transition at c = psi (Prop. 2)",
        "oracle risk on both sides of the threshold for growing d", _transition),
    "optimality": Check("the oracle is optimal within the family",
        "slope in mu at nu = 1 and Hessian at the oracle, scanned", _optimality),
    "bayes": Check("Bayes-optimal if and only if c > psi", "bayes_risk against the best softmax oracle, gamma = 0.8", _bayes),
    "stationary": Check("stationary points are only (+-1, +-1, 0, 0, 0), the oracle the only attractor (Prop. 4, 10)",
        "roots on the manifold, and a search of the plane of u*, v*, paper's size", _stationary),
    "invariance": Check("the manifold eta = zeta = rho = 0 is invariant (Prop. 5)",
        "gradient descent from the manifold", _invariance),
    "initialisation": Check("no special initialisation is needed",
        "population gradient descent from uniform starts, 20 seeds", _initialisation),
    "length": Check("valid up to log L = O(d), where earlier work needed L = o(d)",
        "exact risk at d = 1000 for L to e^200", _length),
    "linear": Check("linear models fail", "best linear predictor, gamma^2 - gamma^4/(L - 1 + gamma^2)", _linear),
    "experiment": Check("the experiment agrees perfectly with the theory (Fig. 2)",
        "d = 100, L = 20, n = 1000, {seeds} seeds, 600 steps; compare --full runs it whole", _experiment),
}  # fmt: skip


def check_claims(names: list[str] | None = None, seeds: int = 4, progress: Progress = silent) -> list[Claim]:
    """Check the named claims (all by default); ``seeds`` simulations for the experiment."""
    wanted = list(CLAIMS) if names is None else names
    found = []
    for i, name in enumerate(wanted):
        found.append(CLAIMS[name](progress, seeds))
        progress("claims", i + 1, len(wanted))
    return found
