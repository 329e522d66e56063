"""For a callable without facts: slopes seen on samples, enough to choose a grid and never enough to prove anything."""

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.target.evidence import Evidence
from maxaffine.target.target import Target

SAMPLES = 2048
SAFETY = 1.1  # samples miss the steepest place


def sampled_lipschitz(target: Target, error: float, seed: int) -> Evidence:
    """Largest slopes per axis over sampled pairs; refused where the target jumps by more than twice the error."""
    rng = np.random.default_rng(seed)
    box = target.box
    x = box.sample(SAMPLES, rng)
    constants = np.zeros(box.dimension)
    for axis in range(box.dimension):
        for step in (1e-1, 1e-2, 1e-4):
            y = x.copy()
            y[:, axis] = np.where(x[:, axis] + step * box.width[axis] <= box.high[axis], 1, -1) * step * box.width[axis]
            y[:, axis] += x[:, axis]
            difference = np.abs(target.values(x) - target.values(y)).max(axis=(1, 2))
            gap = np.abs(y[:, axis] - x[:, axis])
            constants[axis] = max(constants[axis], float((difference / gap).max()))
            worst = int(difference.argmax())
            _refuse_jump(target, x[worst], y[worst], error)
    return Evidence(lipschitz=constants * SAFETY, origin={"lipschitz": "sampled"})


def _refuse_jump(target: Target, a: Array, b: Array, error: float) -> None:
    """Bisect towards the larger change; a change that survives to neighbouring numbers is a jump."""
    for _ in range(50):
        middle = a / 2.0 + b / 2.0
        f = target.values(np.stack([a, middle, b]))
        left, right = np.abs(f[1] - f[0]).max(), np.abs(f[2] - f[1]).max()
        a, b = (a, middle) if left >= right else (middle, b)
        if max(left, right) <= 2.0 * error:
            return
    jump = float(np.abs(target.values(a[None]) - target.values(b[None])).max())
    if jump > 2.0 * error:
        at = ", ".join(f"{name} = {value:.6g}" for name, value in zip(target.box.names, a, strict=True))
        raise Refused(
            f"the target seems to jump by {jump:.3g} near {at}. A layer is continuous, so `error` (={error:g}) cannot be met "
            "in the sup norm; ask for an L_p error, or declare `lipschitz=` or `modulus=` if there is no jump.",
            remedy={"norm": 1},
        )
