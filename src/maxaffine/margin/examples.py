"""The data sets of the paper's figures, and random problems.

The three of the figures are those of the authors' notebooks (ucr-optml/max_margin_attention); `multi` was drawn there by
torch.randn with seed 0 in float32, and is kept here as numbers. Their third coordinate carries the score alone and has
W = diag(1, 1, 0); here it is left out.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.core.errors import BadInput
from maxaffine.margin.problem import Tokens

_MULTI = (
    ((0.77483201, -0.23047204), (-1.0867758, 1.1697421), (-1.0632025, 0.57695615), (-1.252667, 1.0699966),
     (-0.47603169, -0.25246841), (-0.54945564, -0.77053076), (-0.38666987, -0.34129834)),
    ((0.68898094, -0.068272077), (-0.84996212, 0.88290048), (-0.9633044, 1.2778733), (-0.81074035, 0.83126462),
     (-0.49368146, -0.59853542), (-0.41206083, -0.47751775), (-0.41176873, -0.52046192)),
    ((0.94206643, 0.010501497), (-0.53955889, 0.70622122), (-1.1138496, 1.1839943), (-0.74202514, 0.70436519),
     (-0.59462398, -0.23494503), (-0.60994875, -0.59596688), (-0.71339607, -0.27701208)),
)  # fmt: skip


@dataclass(frozen=True)
class Joint:
    """Tokens X (n, T, d), labels, the start of both gradients, and the tokens that carry the labels."""

    X: Array
    Y: Array
    tokens: AnyArray
    p: Array
    v: Array


def single(kind: str = "global") -> Tokens:
    """One input, three tokens; (0, 0) has score .9 ("global") or 0 ("local": (1, 0) is then locally optimal)."""
    last = {"global": 0.9, "local": 0.0}.get(kind)
    if last is None:
        raise BadInput(f"`kind` (={kind!r}) must be global or local.")
    return Tokens(np.array([[(-0.1, 1.0), (1.0, 0.0), (0.0, 0.0)]]), np.array([[1.0, 0.9, last]]))


def multi() -> Tokens:
    """Three inputs of seven tokens; the first of each is the best, with a near-support of slack .0071."""
    return Tokens(np.array(_MULTI), np.tile([1.0] + [0.5] * 6, (3, 1)))


def joint(kind: str = "tight") -> Joint:
    """Three inputs of two tokens for training p and v together; "loose": the third is no support vector of v."""
    third = {"tight": (0.5, 1.0), "loose": (0.5, 1.5)}.get(kind)
    if third is None:
        raise BadInput(f"`kind` (={kind!r}) must be tight or loose.")
    X = np.array([[(0, 0), (1, 1)], [(0, 0), (1, -1)], [(0, 0), third]], dtype=np.float64)
    return Joint(X, np.array([1.0, -1.0, 1.0]), np.ones(3, dtype=np.int64), np.array([0.0, -1.0]), np.array([-1.0, 0.0]))


def losses(C: float) -> Tokens:
    """Two inputs, 0 and (1, 1) of score C, 0 and (1, -1) of score 1: the loss moves the line, never its direction."""
    keys = np.array([[(0, 0), (1, 1)], [(0, 0), (1, -1)]], dtype=np.float64)
    return Tokens(keys, np.array([[0.0, C], [0.0, 1.0]]))


def random_tokens(seed: int, n: int = 4, T: int = 5, d: int = 12, equal: bool = False) -> Tokens:
    """Normal keys and uniform scores; `equal`: 1 for one token of every input and .5 for the others."""
    rng = np.random.default_rng(seed)
    keys = rng.standard_normal((n, T, d))
    scores = np.full((n, T), 0.5) if equal else rng.uniform(0.0, 1.0, (n, T))
    if equal:
        scores[:, 0] = 1.0
    return Tokens(keys, scores)


def sphere_tokens(seed: int, n: int = 6, T: int = 8, d: int = 10) -> tuple[Array, Array, Array]:
    """Tokens X (n, T, d), values v (d,) and queries z (n, d) on unit spheres, as in the sibling paper."""
    rng = np.random.default_rng(seed)
    X, v, z = rng.standard_normal((n, T, d)), rng.standard_normal(d), rng.standard_normal((n, d))
    x, value, query = (a / np.linalg.norm(a, axis=-1, keepdims=True) for a in (X, v, z))
    return x, value, query


EXAMPLES: dict[str, Callable[[], Tokens]] = {
    "single": single, "single-local": lambda: single("local"), "multi": multi,
}  # fmt: skip
