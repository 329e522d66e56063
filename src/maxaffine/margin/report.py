"""Everything about one problem: where descent goes, how far it is, and a verdict on every claim by a fixed rule.

| claim | pass | fail | else |
|---|---|---|---|
| ATT-SVM is solved | all residuals < 1e-8 | some residual above | |
| the direction is p_mm | m(u)\\|p_mm\\| >= .999, locally optimal | the certificate falls while T grows tenfold | not yet |
| what is not locally optimal does not attract | every such choice met was left | held while T gap -> \\|p_mm\\|^2 | not yet |
| \\|p\\| grows like \\|p_mm\\| log T | within 3 %, locally optimal, least slack > .1 | off by > 10 %, T >= 1e12 | not yet |
| T times the loss gap tends to \\|p_mm\\|^2 | as above | as above | not yet |
| path and flow share a line | the offset's distance falls from R to 2R | it grows | |

Never judged by the cosine at a fixed number of steps: a run may stay at .999 of a direction that it leaves later.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.progress import Progress, silent
from maxaffine.margin.asymptote import Asymptote, asymptote
from maxaffine.margin.certificate import Certificate, certificate
from maxaffine.margin.descent import ngd
from maxaffine.margin.distance import NotSeparable
from maxaffine.margin.flow import gradient_flow, slope
from maxaffine.margin.gradient import log_attention
from maxaffine.margin.local import NEAR, Locality, is_locally_optimal
from maxaffine.margin.losses import loss_of
from maxaffine.margin.path import regularisation_path
from maxaffine.margin.problem import Tokens
from maxaffine.margin.svm import SOLVED, AttSvm, att_svm
from maxaffine.margin.trajectory import Trajectory

PASS, FAIL, NOT_YET = "pass", "fail", "not yet"
CERTAIN = 0.999
CLOSE, FAR = 0.03, 0.10
LONG = 1e12  # T before which no law is failed: its corrections fall like T^-slack
CANCELS = 1e-6  # a sum of pulls this small beside them is none
FLOOR = 1e-6  # an offset this close to its limit has arrived
STEP, BLOCK, BLOCKS = 0.5, 500, 40  # normalised descent until certified, up to |p| of about 1e4


@dataclass(frozen=True)
class Finding:
    """One claim, judged."""

    claim: str
    outcome: str
    sentence: str
    numbers: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """Of one run of gradient flow and one of normalised descent."""

    problem: Tokens
    run: Trajectory
    descent: Trajectory
    locality: Locality
    line: Asymptote | None
    now: Certificate  # of the flow at its end
    late: Certificate  # of normalised descent at its end
    findings: tuple[Finding, ...]

    @property
    def svm(self) -> AttSvm:
        """Of the tokens selected at the end."""
        assert self.locality.svm is not None  # a choice made by a query is separable
        return self.locality.svm

    def to_json(self) -> dict[str, Any]:
        """Everything that was found."""
        svm = self.svm
        return {
            "inputs": self.problem.shape[0], "tokens": self.problem.shape[1], "dimension": self.problem.shape[2],
            "loss": self.run.loss, "T": self.run.time[-1], "p": self.run.p[-1], "selected": self.run.selected,
            "status": self.locality.status.name.lower(), "p_mm": svm.p, "length": svm.length, "margin": svm.margin,
            "supports": svm.supports, "duals": svm.duals[svm.touching], "kkt": svm.kkt, "least_slack": _finite(svm.room),
            "near_supports": self.locality.near, "undetermined_inputs": self.locality.undetermined,
            "mass": 1.0 - self.run.leak[-1], "leak_bound": self.now.leak,
            "certificate": {"flow": self.now.least_cosine, "descent": self.late.least_cosine, "cosine": self.late.cosine},
            "asymptote": None if self.line is None else {"x": self.line.x, "offset": self.line.offset},
            "verdicts": [{"claim": f.claim, "verdict": f.outcome, "sentence": f.sentence, **f.numbers} for f in self.findings],
        }  # fmt: skip


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def examine(
    problem: Tokens, loss: str = "log", start: Any = None, end: float = 1e12, seed: int = 0, progress: Progress = silent
) -> Report:
    """Follow the flow to T = end, then normalised descent until its margin certifies the direction, and judge."""
    progress("gradient flow", 0, 3)
    run = gradient_flow(problem, loss, start, end)
    locality = is_locally_optimal(problem, run.selected)
    if not locality.attracts and _settled(problem, loss, run.p[-1]):
        raise Refused(_why_settled(problem, run))
    if locality.svm is None or not np.linalg.norm(run.p[-1]):
        raise Refused(
            f"at T = {end:g} attention has not chosen one token per input (the query is {np.linalg.norm(run.p[-1]):.3g} long): "
            "there is nothing to compare; give tokens with different keys and scores, or a larger end."
        )
    svm = locality.svm
    progress("normalised descent", 1, 3)
    descent = _certified(problem, run, svm)
    line = _line(problem, svm, loss, locality)
    now, late = certificate(run.p[-1], svm), certificate(descent.p[-1], svm)
    progress("regularisation path", 2, 3)
    findings = [_solved(svm), _direction(run, descent, locality, late), *_left(problem, run, descent)]
    findings += [_growth(run, svm, locality), _gap(run, svm, locality)]
    if line is not None and (run.selected == problem.best).all():
        findings += _path(problem, svm, line, loss, seed)
    progress("regularisation path", 3, 3)
    return Report(problem, run, descent, locality, line, now, late, tuple(findings))


def _settled(problem: Tokens, loss: str, p: Array) -> bool:
    """Whether the pulls of the tokens cancel: the query stays where it is, at a finite length."""
    a = np.exp(log_attention(problem.keys, p))
    said = (a * problem.scores).sum(axis=1)
    weights = a * (problem.scores - said[:, None]) * np.exp(loss_of(loss).log_slope(said))[:, None]
    pulls = weights[..., None] * (problem.keys - (a[..., None] * problem.keys).sum(axis=1, keepdims=True))
    size = float(np.linalg.norm(pulls, axis=-1).sum())
    return size > 0 and float(np.linalg.norm(pulls.sum(axis=(0, 1)))) <= CANCELS * size


def _why_settled(problem: Tokens, run: Trajectory) -> str:
    i = int(run.leak[-1].argmax())
    rest = f"where input {i} has {run.leak[-1][i]:.3g} of its attention on other tokens than {run.selected[i]}"
    told = f"there is no direction to compare: descent settles at a query of length {run.length[-1]:.3g}, {rest}; "
    try:
        att_svm(problem.keys, problem.best)
    except NotSeparable as failure:
        return f"{told}of the best tokens, {failure}"
    return f"{told}begin at another query."


def _certified(problem: Tokens, run: Trajectory, svm: AttSvm) -> Trajectory:
    """Normalised descent from the end of the flow until the margin certifies the direction."""
    time, p = [0.0], [run.p[-1]]
    for block in range(1, BLOCKS + 1):
        p.append(ngd(problem, run.loss, p[-1], STEP, BLOCK, every=BLOCK).p[-1])
        time.append(float(block * BLOCK))
        if certificate(p[-1], svm).least_cosine >= CERTAIN:
            break
    return Trajectory(problem, run.loss, np.array(time), np.array(p))


def _line(problem: Tokens, svm: AttSvm, loss: str, locality: Locality) -> Asymptote | None:
    try:
        return asymptote(problem, svm, loss) if locality.attracts else None
    except Refused:
        return None


def _solved(svm: AttSvm) -> Finding:
    worst = svm.residual
    sentence = f"|p_mm| = {svm.length:.6g}, {len(svm.supports)} support pairs; largest residual {worst:.1e}"
    return Finding("ATT-SVM is solved", PASS if worst < SOLVED else FAIL, sentence, {"residual": worst})


def _direction(run: Trajectory, descent: Trajectory, locality: Locality, late: Certificate) -> Finding:
    svm = locality.svm
    assert svm is not None
    before = int(np.searchsorted(run.time, run.time[-1] / 10 * (1 - 1e-9)))
    early, end = (certificate(run.p[k], svm).least_cosine for k in (before, -1))
    same = bool((descent.selected == run.selected).all())
    certified = late.least_cosine >= CERTAIN and locality.attracts and same
    outcome = PASS if certified else FAIL if end < early - 1e-12 and locality.attracts else NOT_YET
    reached = f"{end:.4f} at T = {run.time[-1]:.0e}, {late.least_cosine:.5f} after normalised descent"
    sentence = f"the margin alone certifies a cosine of {reached}"
    if outcome is NOT_YET:
        sentence += "; " + _why_not_yet(locality, same)
    return Finding("the direction is p_mm", outcome, sentence, {"certificate": late.least_cosine, "at T": end, "at T/10": early})


def _why_not_yet(locality: Locality, same: bool) -> str:
    if not locality.attracts:
        return f"the choice is {locality.status.value}"
    if not same:
        return "normalised descent went on to another choice"
    near = f", {len(locality.near)} pairs are nearly support pairs" if locality.near else ""
    return f"it is on its way{near}"


def _left(problem: Tokens, run: Trajectory, descent: Trajectory) -> list[Finding]:
    """Choices on the way that are not locally optimal: were they left?"""
    met = [tuple(row) for r in (run, descent) for row in log_attention(problem.keys, r.p).argmax(axis=-1).tolist()]
    seen = list(dict.fromkeys(met))
    wrong = [one for one in seen if not is_locally_optimal(problem, np.array(one)).attracts]
    claim = "what is not locally optimal does not attract"
    if not wrong:
        return []
    stays = met[-1] in wrong
    sentence = f"{len(wrong)} such choices were met, " + ("the last is still held" if stays else "all were left")
    svm = is_locally_optimal(problem, run.selected).svm
    # held, and the loss falls by the law: then it does attract
    settled = stays and svm is not None and abs(run.time[-1] * run.gap[-1] / svm.length**2 - 1) <= CLOSE
    return [Finding(claim, FAIL if settled else NOT_YET if stays else PASS, sentence, {"met": len(wrong)})]


def _law(claim: str, what: str, found: float, law: float, run: Trajectory, locality: Locality) -> Finding:
    assert locality.svm is not None
    off, room, long = abs(found / law - 1), locality.svm.room, run.time[-1] >= LONG * (1 - 1e-9)
    judged = room > NEAR and locality.attracts
    outcome = PASS if off <= CLOSE and judged else FAIL if off > FAR and judged and long else NOT_YET
    late = ""
    if not locality.attracts:
        late = "; it speaks of locally optimal choices, and this is none"
    elif room <= NEAR:
        late = f"; the least slack {room:.4f} is below {NEAR}, so the law comes late"
    elif off > FAR and not long:
        late = f"; T below {LONG:.0e} is too short to fail it"
    return Finding(claim, outcome, f"{what} {found:.5g}, the law says {law:.5g}{late}", {"found": found, "law": law})


def _growth(run: Trajectory, svm: AttSvm, locality: Locality) -> Finding:
    told = "slope over the last two decades"
    return _law("|p| grows like |p_mm| log T", told, slope(run), svm.length, run, locality)


def _gap(run: Trajectory, svm: AttSvm, locality: Locality) -> Finding:
    found, told = float(run.time[-1] * run.gap[-1]), f"at T = {run.time[-1]:.0e}"
    return _law("T times the loss gap tends to |p_mm|^2", told, found, svm.length**2, run, locality)


def _path(problem: Tokens, svm: AttSvm, line: Asymptote, loss: str, seed: int) -> list[Finding]:
    radii = np.array([16.0, 256.0, 512.0]) * max(1.0, svm.length)
    try:
        path = regularisation_path(problem, list(radii), loss, seed)
    except (Refused, NotSeparable) as failure:
        return [Finding("path and flow share a line", NOT_YET, str(failure))]
    off = [float(np.linalg.norm(one - line.offset)) for one in path.offset(svm.p)]
    fell = off[2] < off[1] or off[2] < FLOOR
    sentence = f"the path is {off[1]:.3g} from the flow's line at R = {radii[1]:.0f} and {off[2]:.3g} at {radii[2]:.0f}"
    return [Finding("path and flow share a line", PASS if fell else FAIL, sentence, {"at R": off[1], "at 2R": off[2]})]
