"""Training as a closed system of five numbers.

Riemannian gradient descent on the two spheres, u' = (u - s P_u G_u)/|.|, moves the overlaps by a closed recursion,
because G_u = R_mu u* + R_eta v* + R_rho v and G_v = R_nu v* + R_zeta u* + R_rho u lie in the span of the four vectors.
The recursion is exact in every dimension d >= 4. The flow is its limit for step -> 0, time = step * s.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.integrate import solve_ivp

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.progress import Progress, silent
from maxaffine.meanfield.problem import Overlaps, finite, positive, whole
from maxaffine.meanfield.risk import Risk


@dataclass(frozen=True)
class Trajectory:
    """Times (steps or flow time), overlaps (rows mu, nu, eta, zeta, rho) and risk without label noise."""

    time: Array
    overlaps: Array
    risk: Array

    @property
    def last(self) -> Overlaps:
        """The overlaps at the end."""
        return Overlaps(*self.overlaps[-1].tolist())

    def first_below(self, level: float) -> float | None:
        """The first recorded time with risk < level, or None."""
        hits = np.flatnonzero(self.risk < level)
        return float(self.time[hits[0]]) if hits.size else None


def _parts(o: Overlaps, g: Overlaps) -> tuple[float, float, float, float]:
    """a = G_u.u, b = G_v.v, g_uv = G_u.v, g_vu = G_v.u."""
    a = g.mu * o.mu + g.eta * o.eta + g.rho * o.rho
    b = g.nu * o.nu + g.zeta * o.zeta + g.rho * o.rho
    g_uv = g.mu * o.zeta + g.eta * o.nu + g.rho
    g_vu = g.nu * o.eta + g.zeta * o.mu + g.rho
    return a, b, g_uv, g_vu


def step_overlaps(o: Overlaps, g: Overlaps, step: float) -> Overlaps:
    """One step of Riemannian gradient descent on both spheres, in overlaps; ``g`` is the gradient at ``o``."""
    mu, nu, eta, zeta, rho = o
    a, b, g_uv, g_vu = _parts(o, g)
    norm_u = g.mu**2 + g.eta**2 + g.rho**2 + 2 * g.mu * g.rho * zeta + 2 * g.eta * g.rho * nu - a * a
    norm_v = g.nu**2 + g.zeta**2 + g.rho**2 + 2 * g.nu * g.rho * eta + 2 * g.zeta * g.rho * mu - b * b
    length_u = math.sqrt(1 + step * step * max(norm_u, 0.0))
    length_v = math.sqrt(1 + step * step * max(norm_v, 0.0))
    inner = g.mu * g.zeta + g.mu * g.rho * mu + g.eta * g.nu + g.eta * g.rho * eta
    inner += g.rho * g.nu * nu + g.rho * g.zeta * zeta + g.rho**2 * rho
    second = inner - b * g_uv - a * g_vu + a * b * rho
    turned = rho - step * (g_uv - a * rho) - step * (g_vu - b * rho) + step * step * second
    m, n, e, z, _ = (x + step * speed for x, speed in zip(o, velocity(o, g), strict=True))
    return Overlaps(m / length_u, n / length_v, e / length_u, z / length_v, turned / (length_u * length_v))


def velocity(o: Overlaps, g: Overlaps) -> Overlaps:
    """d(overlaps)/dt under the gradient flow; the step with its second-order terms dropped."""
    a, b, g_uv, g_vu = _parts(o, g)
    return Overlaps(
        mu=-(g.mu + g.rho * o.zeta - a * o.mu),
        nu=-(g.nu + g.rho * o.eta - b * o.nu),
        eta=-(g.eta + g.rho * o.nu - a * o.eta),
        zeta=-(g.zeta + g.rho * o.mu - b * o.zeta),
        rho=-(g_uv - a * o.rho) - (g_vu - b * o.rho),
    )


def gd(risk: Risk, start: Overlaps, step: float, steps: int, every: int = 1, progress: Progress = silent) -> Trajectory:
    """``steps`` steps of Riemannian gradient descent, recorded every ``every`` steps and at the end."""
    step = positive("step", step, "give a step size such as 0.01")
    steps = whole("steps", steps, 0, "give a number of steps")
    every = whole("every", every, 1, "1 records every step")
    o = Overlaps(*start).check()
    times, path, risks = [], [], []
    for k in range(steps + 1):
        value, gradient = risk.value_and_gradient(o)
        if k % every == 0 or k == steps:
            times.append(float(k))
            path.append(tuple(o))
            risks.append(value)
            progress("gradient descent", k, steps)
        if not all(math.isfinite(part) for part in gradient):
            raise Refused(f"the gradient is infinite at step {k}, overlaps {tuple(o)}; start elsewhere, or use a smooth link.")
        if k < steps:
            o = step_overlaps(o, gradient, step)
    return Trajectory(np.array(times), np.array(path), np.array(risks))


def flow(risk: Risk, start: Overlaps, times: Sequence[float] | Array, rtol: float = 1e-10, atol: float = 1e-12) -> Trajectory:
    """The gradient flow at the given increasing times (time = steps times step size), by an implicit stiff solver."""
    grid = np.asarray(times, dtype=float)
    if grid.ndim != 1 or grid.size == 0 or not np.all(np.isfinite(grid)) or grid[0] < 0 or np.any(np.diff(grid) <= 0):
        raise BadInput("`times` must be finite, not negative and increasing; give for example [0, 1, 10, 100].")
    finite("rtol", rtol, "give a tolerance such as 1e-10")
    o = Overlaps(*start).check()

    def field(_: float, state: Array) -> list[float]:
        here = Overlaps(*np.clip(state, -1, 1).tolist())
        return list(velocity(here, risk.value_and_gradient(here)[1]))

    if grid[-1] == 0:
        states = np.array([o], dtype=float)
    else:
        span = (0.0, float(grid[-1]))
        solution = solve_ivp(field, span, np.array(o, dtype=float), "LSODA", t_eval=grid, rtol=rtol, atol=atol)
        if not solution.success:
            raise Refused(f"the flow could not be integrated to t = {grid[-1]:g} ({solution.message}); ask for less time.")
        states = np.clip(solution.y.T, -1, 1)
    risks = [risk.value_and_gradient(Overlaps(*row))[0] for row in states.tolist()]
    return Trajectory(grid, states, np.array(risks))
