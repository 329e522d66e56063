"""The Ehlich-Zeller proof: its constants where they are sharp, its formulas as written, and its bound against brute force."""

import math

import numpy as np
import pytest

from maxaffine.checker import local_error as checker
from maxaffine.checker.head import Head as CheckedHead
from maxaffine.checker.proved import NotProved
from maxaffine.checker.reader import Axis
from maxaffine.core import balls
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.spectral_keys import bernstein, weights
from maxaffine.proofs import local_error, product_head
from maxaffine.proofs.local_error import prove
from maxaffine.proofs.product_head import Head
from maxaffine.proofs.sources import FromDeclaration, FromDerivatives, FromExpression


def head(text, axes, values, half=1.0, middle=0.0, deltas=None):
    E = len(axes)
    names = tuple(f"t{e + 1}" for e in range(E))
    source = FromExpression(Expression.parse(text, names), Interval.point(np.full(E, middle)), np.full(E, half))
    return Head(source, tuple(axes), deltas or (None,) * E, np.asarray(values, dtype=float).reshape(*(len(a) for a in axes), -1))


def nothing(text, E=1, half=1.0):
    """A head that is zero everywhere: its error is the target itself."""
    one = AxisKeys(np.zeros(1), np.zeros(1))
    return head(text, [one] * E, np.zeros(1), half)


def checkers(made):
    """The same head for the checker."""
    source = made.source
    axes = tuple(Axis(a.slopes.astype(float), a.offsets.astype(float)) for a in made.axes)
    return CheckedHead(source.expression, source.middle, source.half, axes, made.values)


def true_error(made, count=4001):
    E = len(made.axes)
    side = np.linspace(-1, 1, {1: count, 2: 201, 3: 41}[E])
    z = np.stack([a.ravel() for a in np.meshgrid(*[side] * E, indexing="ij")], axis=1)
    g = made.values
    for e, axis in enumerate(made.axes):
        g = np.moveaxis(
            np.tensordot(weights(AxisKeys(axis.slopes.astype(float), axis.offsets.astype(float)), side), g, axes=(1, e)), 0, e
        )
    f = made.source.expression.evaluate(z * made.source.half + made.source.middle.lo)
    return float(np.abs(f - g.reshape(len(z), -1)).max())


@pytest.mark.parametrize("m", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("times", [2, 4, 6, 10])
def test_the_constant_is_attained_by_chebyshev_polynomials(m, times):
    n = times * m
    nodes = np.cos(np.pi * (2 * np.arange(n) + 1) / (2 * n))
    seen = np.abs(np.cos(m * np.arccos(nodes))).max()  # T_m; its supremum is 1
    assert 1.0 <= seen * local_error.constant(m, n) <= 1 + 1e-12


@pytest.mark.parametrize("m", [1, 3, 8])
def test_it_dominates_random_polynomials(m):
    rng = np.random.default_rng(m)
    for _ in range(40):
        p = np.polynomial.chebyshev.Chebyshev(rng.normal(size=m + 1))
        n = int(rng.integers(m + 1, 4 * m + 2))
        seen = np.abs(p(np.cos(np.pi * (2 * np.arange(n) + 1) / (2 * n)))).max()
        assert np.abs(p(np.linspace(-1, 1, 2001))).max() <= seen * local_error.constant(m, n)


def test_nodes_are_more_than_the_degree():
    for E in (1, 2, 3, 4):
        assert all(local_error.nodes(m, E) > m for m in range(1, 100))


def test_the_remainder_is_the_written_one():
    # 4 (max|f| + max|c| S) r^-m / (r - 1), f = exp on the rectangle around the ellipse, S = 1 for a single key.
    made = head("exp(t1)", [AxisKeys(np.zeros(1), np.zeros(1))], [0.5])
    low, high = -np.ones(1), np.ones(1)
    with balls.precision(64):
        for allowed in (1e-2, 1e-6, 1e-12):
            m, part = made.degree(low, high, 0, allowed)
            written = min(4 * (math.exp((r + 1 / r) / 2) + 0.5) * r**-m / (r - 1) for r in local_error.RADII)
            assert part >= written * (1 - 1e-9) and part <= allowed
            mine, other = checker._degree(checkers(made), low, high, 0, allowed)
            written = min(4 * (math.exp((r + 1 / r) / 2) + 0.5) * r**-mine / (r - 1) for r in checker.RADII)
            assert other >= written * (1 - 1e-9) and other <= allowed * (1 + 1e-6)


def lebesgue(m):
    """The Lebesgue constant of interpolation at m + 1 Chebyshev points, by sampling."""
    nodes = np.cos(np.pi * (2 * np.arange(m + 1) + 1) / (2 * (m + 1)))
    x = np.linspace(-1, 1, 3001)
    with np.errstate(divide="ignore", invalid="ignore"):
        barycentric = (-1.0) ** np.arange(m + 1) * np.sin(np.pi * (2 * np.arange(m + 1) + 1) / (2 * (m + 1)))
        terms = barycentric / (x[:, None] - nodes)
        total = np.abs(terms).sum(axis=1) / np.abs(terms.sum(axis=1))
    return float(np.nanmax(total))


def test_remainders_of_later_axes_carry_lebesgue_constants(monkeypatch):
    degrees = iter((5, 9, 4))
    monkeypatch.setattr(product_head.Head, "degree", lambda *_: (next(degrees), 1.0))
    found, remainder = local_error._degrees(nothing("t1+t2+t3", 3), -np.ones(3), np.ones(3), local_error.Effort(share=1.0), 1.0)
    assert found == (5, 9, 4)
    assert 1 + lebesgue(5) + lebesgue(5) * lebesgue(9) <= remainder <= 1.6 * (1 + lebesgue(5) + lebesgue(5) * lebesgue(9))


CASES = {
    "a sine": lambda: nothing("sin(3*t1)"),
    "a pole close by on the right": lambda: nothing("1/(1.03-t1)"),
    "a pole close by on the left": lambda: nothing("1/(1.03+t1)"),
    "a spike in the middle": lambda: nothing("1/(0.0004+t1**2)"),
    "a spike off centre": lambda: nothing("exp(-900*(t1-0.37)**2)"),
    "two variables": lambda: nothing("sin(3*t1)*exp(t2)/(1.3-t2)", 2),
    "three variables": lambda: nothing("cos(t1+t2)*exp(t3)", 3),
    "a Bernstein head": lambda: head("sin(2*t1)", [bernstein(7, 1.4, "float32").keys], np.linspace(-1, 1, 7), deltas=(1.4,)),
    "a product head": lambda: head(
        "sin(t1)*cos(t2)", [bernstein(5, 1.0, "float64").keys, bernstein(4, 2.0, "bfloat16").keys],
        np.random.default_rng(0).normal(size=(5, 4)), deltas=(1.0, 2.0),
    ),
    "random keys": lambda: head(
        "exp(t1)", [AxisKeys(np.array([-7.0, -1.0, 2.0, 9.0]), np.array([-2.0, 0.0, 0.5, -3.0]))], [0, 1, 2, 5]
    ),
    "steep keys": lambda: head("0*t1", [AxisKeys(np.array([0.0, 300.0, 600.0]), np.array([0.0, -159.0, -319.5]))], [0, 1, 0]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_bound_is_above_the_error_and_close_to_it(name):
    made = CASES[name]()
    error = true_error(made)
    proof = prove(made, error)
    assert error * (1 - 1e-12) <= proof.bound <= (1.2 if len(made.axes) < 3 else 1.3) * error + 1e-12
    again = checkers(made).supremum(error)
    assert error * (1 - 1e-12) <= again <= (1.25 if len(made.axes) < 3 else 1.35) * error + 1e-12


def test_a_spike_between_the_points_is_found():
    # The middle key rules on [0.5301, 0.5325] alone; at the centre of the box its weight underflows.
    steep = AxisKeys(np.array([0.0, 2e4, 4e4]), np.array([0.0, -0.5301 * 2e4, -(0.5301 + 0.5325) * 2e4]))
    made = head("0*t1", [steep], [0.0, 1.0, 0.0])
    assert prove(made, 1.0).bound >= 0.99
    assert checkers(made).supremum(1.0) >= 0.99


@pytest.mark.parametrize(
    "text", ["abs(t1)", "abs(t1-1/3)", "sqrt(1+t1)", "max(t1, 0.2)", "1/t1", "log(1+t1)", "where(t1 < 0, 0, t1)"]
)
def test_what_is_not_analytic_is_refused(text):
    made = nothing(text)
    with pytest.raises(Refused):
        if not math.isfinite(prove(made, 0.1).bound):
            raise Refused("no finite bound")
    with pytest.raises(NotProved):
        checkers(made).supremum(0.1)


def test_a_branch_that_the_box_decides_is_analytic():
    made = nothing("abs(t1-5) + max(t1, -3) + where(t1 < 4, t1, 0)")
    assert prove(made, 1.0).bound >= true_error(made) * (1 - 1e-12)


def test_a_declared_bound_counts_every_axis_and_the_blur_of_its_points():
    source = FromDeclaration(lambda z: np.zeros((len(z), 1)), np.array([1.5, 1.5, 1.5]), 10.0, 1e-6)
    found = source.at([np.zeros(1)] * 3, 1e-6)
    steep = 3 * 10.0 / ((1.5 + 1 / 1.5) / 2 - 1)  # Cauchy's estimate along three axes
    assert found.hi[0, 0] >= 2e-6 * steep and found.lo[0, 0] <= -2e-6 * steep
    low, high = np.array([-0.2]), np.array([0.4])
    one = FromDeclaration(lambda z: z, np.array([1.5]), 10.0, 0.0)
    for r in (1.1, 1.4, 1.7, 2.0, 3.0):
        angle = np.linspace(0, 2 * np.pi, 400)
        u = r * np.exp(1j * angle)
        z = 0.1 + 0.3 * (u + 1 / u) / 2
        inside = (np.abs(z - 1) + np.abs(z + 1)).max() <= 1.5 + 1 / 1.5
        assert math.isinf(one.on_ellipse(low, high, 0, r, True)) or inside
    assert one.on_ellipse(low, high, 0, 1.1, True) == 10.0


@pytest.mark.parametrize("order", [2, 3, 6, 10])
def test_a_declared_derivative_bounds_the_interpolation_of_the_worst_function(order):
    # t^q / q! has q-th derivative 1, and its interpolation at Chebyshev points errs by exactly h^q / (2^(q-1) q!).
    source = FromDerivatives(lambda z: z**order / math.factorial(order), order, np.ones(1), 0.0)
    for low, high in ((-1.0, 1.0), (-0.25, 0.5)):
        x = np.linspace(low, high, 2001)
        centre, reach = (low + high) / 2, (high - low) / 2
        nodes = centre + reach * np.cos(np.pi * (2 * np.arange(order) + 1) / (2 * order))
        away = np.abs(np.prod(x[:, None] - nodes, axis=1)).max() / math.factorial(order)
        remainder = source.remainder(np.array([low]), np.array([high]), 0)
        assert away * (1 - 1e-9) <= remainder <= away * (1 + 1e-6)


def test_a_head_is_proved_against_a_function_of_declared_derivatives():
    keys = bernstein(6, 1.4, "float64").keys
    values = np.linspace(-1, 1, 6)[:, None]
    source = FromDerivatives(lambda z: np.sin(2 * z), 8, np.array([2.0**8]), 1e-14)
    made = Head(source, (keys,), (1.4,), values)
    z = np.linspace(-1, 1, 4001)
    error = float(np.abs(weights(keys, z) @ values - np.sin(2 * z)[:, None]).max())
    assert error <= prove(made, error).bound <= 1.2 * error
    for moved in (1e-9, 1e-4):
        assert local_error.on_moved_nodes(1.01, (7,), np.array([2.0]), moved) >= 1.01 / (1 - 1.01 * 49 * moved) * (1 - 1e-12)
    assert math.isinf(local_error.on_moved_nodes(1.01, (7,), np.array([2.0]), 0.1))
