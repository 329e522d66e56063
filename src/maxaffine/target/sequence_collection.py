"""Maps of sequences that people ask for, written out: sorting, pooling, means, filters, products, one step of a method.

The k-th largest of n numbers is the sum of the k largest less that of the k - 1 largest, each the maximum of the sums of all
sets of so many.  `tokens` is what theory gives for piecewise affine maps: a token per affine piece of each convex term, which
outputs share.  A sum of the k largest has (n over k) pieces, so that sorting takes 2^n - 1 tokens.  An output by itself takes one
per convex region on which it is one affine function: x_i is the k-th largest where k - 1 of the others are above it, n times
(n - 1 over k - 1) regions; for all of them that is n 2^(n-1).
"""

from collections.abc import Sequence
from itertools import combinations
from math import comb, pi

from maxaffine.target.box import Box

Map = tuple[str, Box, str, str, tuple[str, ...], int | None]  # name, box, outputs, source, tags, tokens


def _row(n: int) -> Box:
    return Box.sequence(d=1, n=n, low=-1, high=1)


def _names(n: int) -> list[str]:
    return [f"x{i}" for i in range(1, n + 1)]


def _largest_sum(names: Sequence[str], k: int) -> str:
    """The sum of the k largest."""
    sums = [" + ".join(one) for one in combinations(names, k)]
    return f"max({', '.join(sums)})" if len(sums) > 1 else sums[0]


def largest(names: Sequence[str], k: int) -> str:
    """The k-th largest."""
    return _largest_sum(names, k) if k == 1 else f"{_largest_sum(names, k)} - {_largest_sum(names, k - 1)}"


def _sort(n: int) -> Map:
    text = "; ".join(largest(_names(n), k) for k in range(n, 0, -1))
    tokens = sum(comb(n, k) for k in range(1, n + 1))
    return (f"sort_{n}", _row(n), text, f"elementary: sorting {n} tokens", ("kinked", "sequence"), tokens)


def _mean(names: Sequence[str]) -> str:
    return f"({' + '.join(names)})/{len(names)}" if len(names) > 1 else names[0]


_KINKED, _SMOOTH, _STEPS = ("kinked", "sequence"), ("smooth", "sequence"), ("discontinuous", "sequence")
_X3, _X4, _X5 = _names(3), _names(4), _names(5)

MAPS: tuple[Map, ...] = (
    _sort(3),
    _sort(4),
    ("median_3", _row(3), largest(_X3, 2), "elementary: the middle of three tokens", _KINKED, 3 * comb(2, 1)),
    ("top_2_of_4", _row(4), f"{largest(_X4, 1)}; {largest(_X4, 2)}", "elementary: the two largest tokens", _KINKED,
     comb(4, 1) + comb(4, 2)),
    ("max_pooling_4", _row(4), "max(x1, x2); max(x3, x4)", "elementary: the larger of every two tokens", _KINKED, 4),
    ("sliding_maximum_5", _row(5), "; ".join(f"max(x{i}, x{i + 1}, x{i + 2})" for i in (1, 2, 3)),
     "elementary: the largest of three tokens side by side", _KINKED, 9),
    ("relu_network_2", Box.sequence(d=2, n=2, low=-1, high=1),
     "; ".join(f"max(x1{t} + x2{t}/2, 0) - max(x2{t} - x1{t}/3, 0), max(x1{t}, x2{t}, 0)" for t in (1, 2)),
     "elementary: the same small ReLU network on every token", _KINKED, 14),
    ("mean_5", _row(5), "; ".join([_mean(_X5)] * 5), "elementary: every token becomes their mean", _SMOOTH, 1),
    ("running_mean_5", _row(5), "; ".join(_mean(_X5[:i]) for i in range(1, 6)), "elementary: the mean so far", _SMOOTH, 5),
    ("difference_4", _row(4), "; ".join(f"x{i + 1} - x{i}" for i in (1, 2, 3)), "elementary: differences of neighbours",
     _SMOOTH, 3),
    ("convolution_5", _row(5), "; ".join(f"x{i}/4 + x{i + 1}/2 + x{i + 2}/4" for i in (1, 2, 3)),
     "elementary: a binomial filter of three taps", _SMOOTH, 3),
    ("distance_to_mean_3", _row(3), "; ".join(f"abs(x{i} - {_mean(_X3)})" for i in (1, 2, 3)),
     "elementary: how far every token is from the mean", _KINKED, 6),
    ("pairwise_products_3", _row(3), "; ".join(", ".join(f"x{i}*x{j}" for i in (1, 2, 3)) for j in (1, 2, 3)),
     "elementary: all products of two tokens", _SMOOTH, None),
    ("rotation", Box.sequence(d=2, n=2, low=[[-1.0, -pi], [-1.0, -1.0]], high=[[1.0, pi], [1.0, 1.0]]),
     "x11*cos(x12) - x21*sin(x12), x11*sin(x12) + x21*cos(x12)",
     "elementary: the point of the first token, rotated by the angle of the second", _SMOOTH, None),
    ("gradient_step_2", Box.sequence(d=2, n=4, low=-1, high=1),
     "x14 - (x11*x14 + x12*x24 - x13)/10, x24 - (x21*x14 + x22*x24 - x23)/10",
     "elementary: one step of gradient descent, tokens A (two columns), b and x", _SMOOTH, None),
    ("soft_nearest_2", _row(3), "x1 + (x2 - x1)*sigmoid((x2 - x1)*(2*x3 - x1 - x2))",
     "elementary: the mean of two tokens, weighted by exp(-(x3 - x_i)**2), their nearness to the third", _SMOOTH, None),
    ("argmax_2", _row(2), "where(x1 > x2, 1, 0); where(x1 > x2, 0, 1)", "elementary: one-hot of the larger token", _STEPS, 4),
)  # fmt: skip
"""The maps by name."""
