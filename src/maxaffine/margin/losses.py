"""Decreasing losses l(f) of a margin f, in forms that keep their digits: log |l'(f)|, and l(f + m) - l(f) for tiny m.

    logistic  log(1 + e^-f)      exponential  e^-f      linear  -f
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput


@dataclass(frozen=True)
class Loss:
    """One loss."""

    name: str
    value: Callable[[Array], Array]
    log_slope: Callable[[Array], Array]  # log |l'(f)|
    change: Callable[[Array, Array], Array]  # l(f + m) - l(f)


def _log_sigmoid(x: Array) -> Array:
    found: Array = -np.logaddexp(0.0, -x)
    return found


LOSSES = {
    loss.name: loss
    for loss in (
        Loss(
            "log",
            lambda f: np.logaddexp(0.0, -f),
            lambda f: _log_sigmoid(-f),
            lambda f, m: np.where(m < -1.0, np.logaddexp(0.0, -f - m) - np.logaddexp(0.0, -f), _near(f, m)),
        ),
        Loss("exp", lambda f: np.exp(-f), lambda f: -f, lambda f, m: np.exp(-f) * np.expm1(-m)),
        Loss("linear", lambda f: -f, lambda f: np.zeros_like(f), lambda f, m: -m),
    )
}


def _near(f: Array, m: Array) -> Array:
    """log((1 + e^{-f-m}) / (1 + e^-f)) = log1p(sigmoid(-f) expm1(-m)), for m >= -1."""
    found: Array = np.log1p(np.exp(_log_sigmoid(-f)) * np.expm1(-np.maximum(m, -1.0)))
    return found


def loss_of(name: str) -> Loss:
    """The loss of that name."""
    if name not in LOSSES:
        raise BadInput(f"`loss` (={name!r}) must be one of {', '.join(LOSSES)}.")
    return LOSSES[name]
