"""Gradient flow over very long times: dp/dtau = -e^tau grad L with tau = log T, integrated to T = 1e12 and beyond.

    p(T) = p_mm log T + x + o(1),   |p(T)| = |p_mm| log T + O(1),   T (L(p(T)) - L_alpha) -> |p_mm|^2

e^tau |grad L| is one exponential of a sum of logarithms, so neither factor overflows or underflows.
"""

import math
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput, Refused
from maxaffine.margin.gradient import pull
from maxaffine.margin.losses import loss_of
from maxaffine.margin.problem import Tokens
from maxaffine.margin.trajectory import Trajectory

BEGIN = 1e-3  # T at which the integration begins: what happens before moves p by at most BEGIN |grad L|
LONGEST = 1e300


def gradient_flow(
    problem: Tokens, loss: str = "log", start: Any = None, end: float = 1e12, points: int = 121, accuracy: float = 1e-9
) -> Trajectory:
    """The flow from `start` (0 if none) up to T = end, at that many times, evenly spaced in log T."""
    check_end(end)
    chosen = loss_of(loss)
    p = np.zeros(problem.shape[2]) if start is None else problem.query(start, "start")
    first = pull(problem.keys, problem.scores, chosen, p)
    p = p + BEGIN * math.exp(float(first.log_size)) * first.direction
    taus = np.linspace(math.log(BEGIN), math.log(end), points)

    def velocity(tau: float, at: Array) -> Array:
        found = pull(problem.keys, problem.scores, chosen, at)
        return math.exp(min(tau + float(found.log_size), 300.0)) * found.direction

    return Trajectory(problem, loss, np.exp(taus), integrated(velocity, p, taus, accuracy))


def integrated(velocity: Any, start: Array, taus: Array, accuracy: float) -> Array:
    """The states at every tau, by LSODA."""
    done = solve_ivp(velocity, (taus[0], taus[-1]), start, "LSODA", t_eval=taus, rtol=accuracy, atol=accuracy * 1e-2)
    if not done.success:
        raise Refused(f"the gradient flow could not be followed beyond T = {math.exp(float(done.t[-1])):.3g}: {done.message}")
    states: Array = done.y.T
    return states


def check_end(end: float) -> None:
    """T of the end."""
    if not (math.isfinite(end) and 1.0 <= end <= LONGEST):
        raise BadInput(f"`end` (={end:g}) must lie between 1 and {LONGEST:g}; it is the time T up to which descent is followed.")


def slope(run: Trajectory, decades: float = 2.0) -> float:
    """d|p|/dlog T over the last decades."""
    late = run.time >= run.time[-1] / 10**decades * (1 - 1e-9)
    return float(np.polyfit(np.log(run.time[late]), run.length[late], 1)[0])
