"""Training query p and value v together: flow, normalised descent, and the path |v| <= kappa R, |p| <= R (labels, X tokens).

    L(v, p) = mean_i l(Y_i sum_t a_it v.x_it),   a_i = softmax(X_i p),   logistic loss

Flow: v ~ v_mm log T, and attention sharpens only like log log T:  p = 2 p_relax log log T + O(1).
Path: the direction u of p maximises min_it (g_it.u + kappa xi_i), xi_i = (Y_i v_mm.x_i,alpha - 1)/|v_mm|, the extra label margin:
kappa -> 0 gives p_mm, a kappa above a finite threshold p_relax.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, root

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput, Refused
from maxaffine.margin.distance import TOUCHES, shortest
from maxaffine.margin.examples import Joint
from maxaffine.margin.flow import BEGIN, check_end, integrated
from maxaffine.margin.gradient import Pull, leakage, log_attention, pull
from maxaffine.margin.losses import LOSSES
from maxaffine.margin.problem import labels, numbers
from maxaffine.margin.svm import AttSvm, att_svm, hard_margin, rows_of

LOGISTIC = LOSSES["log"]
EASY = 10.0  # the radius at which the path is begun


@dataclass(frozen=True)
class JointRun:
    """Queries and values at times."""

    time: Array
    p: Array
    v: Array
    leak: Array  # (k, n)


@dataclass(frozen=True)
class JointSvm:
    """The machines of a joint problem: of the labels, of the tokens, and of the tokens relaxed outside the label supports."""

    v: AttSvm
    p: AttSvm
    relaxed: AttSvm
    support: tuple[int, ...]  # inputs that are support vectors of v
    extra: Array  # (n,) xi_i >= 0

    @property
    def tight(self) -> bool:
        """Whether every input is a support vector, so that p_relax = p_mm."""
        return len(self.support) == len(self.extra)


def checked(problem: Joint) -> Joint:
    """The problem with its arrays checked."""
    X = numbers("X", problem.X, 3, "(inputs, tokens, dimension)")
    labels(problem.Y, len(X))
    for name, value in (("p", problem.p), ("v", problem.v)):
        if numbers(name, value, 1, "a vector").shape != X.shape[2:]:
            raise BadInput(f"`{name}` must have {X.shape[2]} entries, as tokens have.")
    return problem


def joint_svm(problem: Joint) -> JointSvm:
    """Both hard-margin problems and the relaxed one."""
    n = len(checked(problem).X)
    v = hard_margin(problem.X[np.arange(n), problem.tokens], problem.Y)
    support = tuple(int(i) for i in np.flatnonzero(v.touching))
    others = [i for i in range(n) if i not in support]
    p, relaxed = att_svm(problem.X, problem.tokens), att_svm(problem.X, problem.tokens, others)
    return JointSvm(v, p, relaxed, support, np.where(v.slack < TOUCHES, 0.0, v.slack) / v.length)


def _pulls(problem: Joint, v: Array, p: Array) -> tuple[Pull, Array, float]:
    """The pull on p; and the pull on v as a unit vector and the logarithm of its length."""
    scores = problem.Y[:, None] * (problem.X @ v)
    on_p = pull(problem.X, scores, LOGISTIC, p)
    mean = np.einsum("nt,ntd->nd", np.exp(on_p.log_weights), problem.X)
    log_w = LOGISTIC.log_slope(problem.Y * (mean @ v))
    top = float(log_w.max())
    total = (np.exp(log_w - top) * problem.Y) @ mean / len(mean)
    size = float(np.linalg.norm(total))
    return on_p, total / size if size > 0 else total, top + math.log(max(size, 1e-300))


def joint_flow(problem: Joint, end: float = 1e12, points: int = 121, accuracy: float = 1e-10) -> JointRun:
    """Gradient flow of both from their starts up to T = end."""
    check_end(end)
    checked(problem)
    d = problem.X.shape[2]
    taus = np.linspace(math.log(BEGIN), math.log(end), points)

    def velocity(tau: float, state: Array) -> Array:
        on_p, on_v, log_v = _pulls(problem, state[:d], state[d:])
        grow = math.exp(min(tau + log_v, 300.0)), math.exp(min(tau + float(on_p.log_size), 300.0))
        return np.concatenate([grow[0] * on_v, grow[1] * on_p.direction])

    states = integrated(velocity, np.concatenate([problem.v, problem.p]), taus, accuracy)
    return _run(problem, np.exp(taus), states[:, :d], states[:, d:])


def joint_ngd(problem: Joint, step: float = 0.1, steps: int = 1000) -> JointRun:
    """Both gradients normalised on their own, as in the authors' experiment."""
    v, p = problem.v.astype(np.float64), problem.p.astype(np.float64)
    kept = [(v, p)]
    for _ in range(steps):
        on_p, on_v, _ = _pulls(problem, v, p)
        v, p = v + step * on_v, p + step * on_p.direction
        kept.append((v, p))
    return _run(problem, np.arange(steps + 1.0), np.array([v for v, _ in kept]), np.array([p for _, p in kept]))


def _run(problem: Joint, time: Array, v: Array, p: Array) -> JointRun:
    return JointRun(time, p, v, leakage(log_attention(problem.X, p), problem.tokens))


def limit_direction(problem: Joint, kappa: float, svm: JointSvm | None = None) -> Array:
    """The unit u that maximises min (g.u + kappa xi_i): the law for the direction of p on the path |v| <= kappa R, |p| <= R."""
    found = joint_svm(problem) if svm is None else svm
    pairs, G = rows_of(problem.X, problem.tokens)
    extra = kappa * found.extra[pairs[:, 0]]

    def excess(level: float) -> float:
        return float(np.linalg.norm(shortest(G, level - extra).p)) - 1.0

    high = 1.0
    while excess(high) < 0:
        high *= 2
    level = brentq(excess, 0.0, high, xtol=1e-14)
    p = shortest(G, level - extra).p
    return np.asarray(p / np.linalg.norm(p))


def joint_path(problem: Joint, kappa: float, R: float) -> tuple[Array, Array]:
    """(v, p) with |v| = kappa R, |p| = R, each along its own pull: found by descent at a small R, followed by a root finder."""
    if not (kappa > 0 and R > 0):
        raise BadInput(f"`kappa` (={kappa:g}) and `R` (={R:g}) must be positive.")
    checked(problem)
    at = min(R, EASY)
    v, p = kappa * at * problem.v / np.linalg.norm(problem.v), at * problem.p / np.linalg.norm(problem.p)
    for share in np.geomspace(0.2, 1e-3, 1000):
        on_p, on_v, _ = _pulls(problem, v, p)
        v, p = v + share * kappa * at * on_v, p + share * at * on_p.direction
        v, p = v * kappa * at / np.linalg.norm(v), p * at / np.linalg.norm(p)
    state, last, growth = _balanced(problem, kappa, at, np.concatenate([v, p])), None, 1.15
    while state is not None and at < R:
        radius = min(R, at * growth)
        guess = state * radius / at if last is None else state + (state - last[1]) * (radius - at) / (at - last[0])
        found = _balanced(problem, kappa, radius, guess)
        if found is not None:
            last, state, at = (at, state), found, radius
        elif growth < 1.002:
            state = None
        else:
            growth = math.sqrt(growth)
    if state is None:
        raise Refused(f"the joint path could not be followed beyond R = {at:.4g} at kappa = {kappa:g}; take a smaller R.")
    d = problem.X.shape[2]
    return state[:d], state[d:]


def _balanced(problem: Joint, kappa: float, R: float, guess: Array) -> Array | None:
    """The root of v/|v| = pull on v, p/|p| = pull on p near the guess, if it is found."""
    d, r = problem.X.shape[2], kappa * R

    def off(state: Array) -> Array:
        on_p, on_v, _ = _pulls(problem, state[:d], state[d:])
        return np.concatenate([state[:d] / r - on_v, state[d:] / R - on_p.direction])

    for method in ("hybr", "lm"):
        found = np.asarray(root(off, guess, method=method, tol=1e-13).x)
        if np.linalg.norm(off(found)) < 1e-7:
            return found
    return None
