"""Facts: derived ones are right and sharp, declared ones are checked, false ones are refuted."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from maxaffine.core.errors import BadInput
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.target.box import Box
from maxaffine.target.contradict import contradicts
from maxaffine.target.declare import Analytic, ConcaveModulus, Fact, IntegralModulus, Modulus, TotalVariation, check_lipschitz
from maxaffine.target.derive import derive_euclidean, derive_lipschitz, derive_range, is_finite_on, sharp_enclosure
from maxaffine.target.target import Target

PI = math.pi


def _of(text: str, box: Box) -> tuple[Expression, Box]:
    return Expression.parse(text, box.names), box


EXACT = [
    ("sin(x) + cos(y)", Box(x=(-PI, PI), y=(-PI, PI)), (1, 1), math.sqrt(2)),
    ("tanh(5*(x+y))", Box(x=(-1, 1), y=(-1, 1)), (5, 5), math.sqrt(50)),
    ("abs(x - 2*y)", Box(x=(-1, 1), y=(-1, 1)), (1, 2), math.sqrt(5)),
    ("max(x, y) + min(x, 3*y)", Box(x=(-1, 1), y=(-1, 1)), (2, 4), math.sqrt(10)),
    ("x*y", Box(x=(-1, 1), y=(0, 3)), (3, 1), math.sqrt(10)),
    ("exp(-x**2)", Box(x=(-3, 3)), (math.sqrt(2) * math.exp(-0.5),), math.sqrt(2) * math.exp(-0.5)),
    ("x**3 - 3*x", Box(x=(-2, 2)), (9,), 9),
    ("5", Box(x=(0, 1)), (0,), 0),
    ("relu(x)**2", Box(x=(-1, 1)), (2,), 2),
    ("where(x < 7, x, 1/0)", Box(x=(-1, 1)), (1,), 1),
    ("sin(x)**2", Box(x=(-PI, PI)), (1,), 1),
    ("1000*x + y/1000", Box(x=(0, 1e-3), y=(0, 1e3)), (1000, 1e-3), 1000),
]


@pytest.mark.parametrize(("text", "box", "per_axis", "euclidean"), EXACT, ids=[e[0] for e in EXACT])
def test_derived_lipschitz_constants_are_above_the_truth_and_within_a_thousandth(text, box, per_axis, euclidean) -> None:
    fact = derive_lipschitz(*_of(text, box))
    assert fact.origin == "derived" and fact.value.shape == (box.dimension,) and fact.finite
    # max(x,y)+min(x,3y) has all its largest slopes on one side, but not both at once: per axis they are attained.
    assert (fact.value >= np.array(per_axis) * (1 - 1e-12)).all()
    assert (fact.value <= np.array(per_axis) * (1 + 2e-3) + 1e-12).all()
    length = derive_euclidean(*_of(text, box))
    if "min" not in text:
        assert euclidean * (1 - 1e-12) <= length.value <= euclidean * (1 + 2e-3) + 1e-12


INFINITE = [
    ("sqrt(x)", Box(0, 1), "reaches 0 near x=0"),
    ("1/x", Box(-1, 1), "`x` reaches 0 near x=0"),
    ("log(x)", Box(-1, 1), "reaches 0 or below"),
    ("log(x)", Box(-2, -1), "reaches 0 or below"),
    ("sign(x)", Box(-1, 1), "jumps there near x=0"),
    ("floor(x)", Box(0.5, 1.5), "jumps there near x=1"),
    ("where(x > 0, 1, 0)", Box(-1, 1), "changes there"),
    ("atan2(y, x)", Box(x=(-1, 1), y=(-1, 1)), "near"),
    ("asin(x)", Box(-1, 1), "reaches"),
    ("cbrt(x)", Box(-1, 1), "reaches 0"),
    ("tan(x)", Box(0, 3), "pi/2"),
    ("abs(x)**0.5", Box(-1, 1), "near x=0"),
]


@pytest.mark.parametrize(("text", "box", "words"), INFINITE, ids=[e[0] for e in INFINITE])
def test_unbounded_slopes_are_infinite_with_the_reason_and_quickly(text: str, box: Box, words: str) -> None:
    start = time.process_time()
    fact = derive_lipschitz(*_of(text, box))
    assert np.isinf(fact.value).any() and words in fact.how
    assert np.isinf(derive_euclidean(*_of(text, box)).value)
    assert time.process_time() - start < 5


def test_only_the_axis_with_the_singularity_is_infinite() -> None:
    fact = derive_lipschitz(*_of("sqrt(x) + 3*y", Box(x=(0, 1), y=(0, 1))))
    assert np.isinf(fact.value[0]) and fact.value[1] == 3


def test_constants_are_kept_for_every_output() -> None:
    text = "sin(2*x11) + x12*x21, cos(x11 - x22), tanh(x21 + 2*x22), x11*x12/2 + x21**2"
    box = Box.sequence(d=2, n=2, low=-1, high=1)
    fact = derive_lipschitz(*_of(text, box))
    assert fact.per_output is not None and fact.per_output.shape == (4, 4)
    # names run x11, x21, x12, x22; the table of the construction's bounds needs max_k sum_i L_ki = 4.
    assert np.allclose(fact.per_output, [[2, 1, 1, 0], [1, 0, 0, 1], [0, 1, 0, 2], [0.5, 2, 0.5, 0]], atol=3e-3)
    assert np.max(fact.per_output.sum(axis=1)) == pytest.approx(4, abs=4e-3)


def test_a_small_budget_still_gives_a_valid_constant() -> None:
    expression, box = _of("sin(7*x)*exp(-y**2) + x*y**3", Box(x=(-2, 2), y=(-2, 2)))
    slopes = np.abs(expression.gradient().evaluate(box.sample(20_000, np.random.default_rng(0)))).max(axis=0)
    for budget in (1, 10, 100, 1000):
        assert (derive_lipschitz(expression, box, budget=budget).value >= slopes).all()


FINITE = [
    ("sin(x)/x", Box(-1, 1), False), ("1/x", Box(0.001, 1), True), ("1/(x**2 + 1e-6)", Box(-1, 1), True),
    ("sqrt(x)", Box(0, 1), True),
    ("sqrt(1 - x**2)", Box(-1, 1), True), ("sqrt(1 - x**2)", Box(-1, 1.0001), False), ("log(x)", Box(0, 1), False),
    ("tanh(1/x)", Box(-1, 1), False),
    ("where(x > 0.5, log(x), 0)", Box(-1, 1), True), ("where(x > 0, log(x), 0)", Box(-1, 1), False), ("exp(1000*x)",
    Box(0, 1), False),
    ("tan(x)", Box(-1.5, 1.5), True), ("1/(x - y)", Box(x=(0, 1), y=(2, 3)), True), ("1/(x - y)", Box(x=(0, 1),
    y=(0.5, 3)), False),
    ("1/(1.0001 - sin(x)**2)", Box(0, 3), True), ("x**x", Box(0.001, 2), True), ("x**x", Box(-1, 2), False),
    ("sqrt(x*y)", Box(x=(0, 1), y=(0, 1)), True),
    ("atan2(y, x)", Box(x=(-1, 1), y=(-1, 1)), True), ("1/0", Box(0, 1), False), ("acos(x)", Box(-1, 1), True),
    ("x**-2", Box(-1, 1), False),
]  # fmt: skip


@pytest.mark.parametrize(("text", "box", "finite"), FINITE, ids=[f"{e[0]} {e[1]}" for e in FINITE])
def test_finiteness_is_proved_or_refused_with_a_place(text: str, box: Box, finite: bool) -> None:
    found = is_finite_on(*_of(text, box))
    assert bool(found) is finite
    if not finite:
        assert "near" in found.why and found.why.endswith(".")


def test_the_sentence_of_a_refusal() -> None:
    assert is_finite_on(*_of("1/x", Box(-1, 1))).why == "`1/x` is not finite on the box: `x` reaches 0 near x=0."
    assert "`log(x)` is not finite on the box: `x` reaches 0 or below" in is_finite_on(*_of("log(x)", Box(-1, 1))).why


RANGES = [
    ("sin(x) + cos(y)", Box(x=(-PI, PI), y=(-PI, PI)), -2, 2),
    ("x**2 - x", Box(0, 1), -0.25, 0),
    ("x*exp(-x)", Box(0, 5), 0, math.exp(-1)),
    ("sign(x)", Box(-1, 1), -1, 1),
    ("100*(y - x**2)**2 + (1 - x)**2", Box(x=(-2, 2), y=(-1, 3)), 0, 2509),
    ("1e6 + sin(x)", Box(0, 6), 1e6 - 1, 1e6 + 1),
    ("7", Box(0, 1), 7, 7),
]


@pytest.mark.parametrize(("text", "box", "low", "high"), RANGES, ids=[e[0] for e in RANGES])
def test_derived_ranges_contain_the_truth_and_little_more(text: str, box: Box, low: float, high: float) -> None:
    lo, hi = (float(v) for v in derive_range(*_of(text, box)).value[:, 0])
    slack = 3e-3 * (high - low) + 1e-12
    assert low - slack <= lo <= low + 1e-12 * abs(low) and high - 1e-12 * abs(high) <= hi <= high + slack


def test_the_range_of_an_undefined_expression_is_infinite_with_the_reason() -> None:
    fact = derive_range(*_of("1/x", Box(-1, 1)))
    assert np.isinf(fact.value).all() and "`x` reaches 0" in fact.how


def test_sharp_enclosures_contain_the_values_and_are_never_wider() -> None:
    rng = np.random.default_rng(0)
    box = Box(x=(-2, 2), y=(-2, 2))
    for text in (
        "x**2*y - sin(x*y)",
        "abs(x) - max(x, y)*y",
        "where(x < y, x, y**2)",
        "sqrt(x**2 + y**2)*exp(x)",
        "x - x**2, y*x",
    ):
        expression = Expression.parse(text, box.names)
        low = box.sample(300, rng)
        high = np.minimum(low + 10.0 ** rng.uniform(-3, 0, (300, 1)), 2.0)
        natural = expression.enclose(Interval(low, high))
        sharp = sharp_enclosure(expression, expression.gradient(), low, high)
        assert (sharp.lo >= natural.lo).all() and (sharp.hi <= natural.hi).all()
        for _ in range(30):
            values = expression.evaluate(low + rng.random((300, 2)) * (high - low))
            assert (sharp.lo <= values + 1e-12).all() and (values - 1e-12 <= sharp.hi).all()


# ---------------------------------------------------------------------- declared


def test_declared_lipschitz_constants_are_one_number_or_one_per_axis() -> None:
    assert check_lipschitz(2, 3).value == 2.0
    assert check_lipschitz([1, 2, 3], 3).value.shape == (3,)
    assert check_lipschitz(np.float32(0.5), 3).origin == "declared"
    for bad in ([1, 2], -1, math.nan, [1, math.inf, 2], "two", None, [[1, 2, 3]], 1j, True and [True, False, True]):
        with pytest.raises(BadInput, match="`lipschitz`"):
            check_lipschitz(bad, 3)


def test_moduli_must_grow_and_concave_ones_must_be_concave() -> None:
    assert Modulus(lambda r: 2 * r)(0.5) == 1
    assert ConcaveModulus(lambda r: math.sqrt(r))(0.25) == 0.5
    ConcaveModulus(lambda r: min(r, 0.1))
    with pytest.raises(BadInput, match="not concave"):
        ConcaveModulus(lambda r: r**2)
    with pytest.raises(BadInput, match="never falls"):
        Modulus(lambda r: 1 - r)
    with pytest.raises(BadInput, match="not negative"):
        Modulus(lambda r: -r)
    with pytest.raises(BadInput, match="ZeroDivisionError"):
        Modulus(lambda r: 1 / r)
    with pytest.raises(BadInput, match="function"):
        Modulus(3)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="finite"):
        Modulus(lambda r: math.nan)


def test_integral_facts_are_checked() -> None:
    assert IntegralModulus(lambda h: 3 * float(h.sum()), p=2)([0.1, 0.2]) == pytest.approx(0.9)
    assert (TotalVariation(2).per_axis(3) == 2).all() and (TotalVariation([1, 2]).per_axis(2) == [1, 2]).all()
    assert (Analytic(1.5, 3).per_axis(2) == 1.5).all()
    for bad in (lambda: IntegralModulus(3), lambda: IntegralModulus(lambda h: 0, p=0.5), lambda: TotalVariation(-1),
    lambda: TotalVariation("a"),
                lambda: TotalVariation([1, 2]).per_axis(3), lambda: Analytic(1.0, 1), lambda: Analytic(2, -1),
                lambda: Analytic("a", 1),
                lambda: Analytic([2, 3], 1).per_axis(3),
                lambda: IntegralModulus(lambda h: math.nan)([0.1])):  # fmt: skip
        with pytest.raises(BadInput):
            bad()


def test_a_false_declaration_is_refuted_by_a_pair_of_points() -> None:
    box = Box(x=(-1, 1), y=(-1, 1))
    target = Target.of(lambda p: np.sin(5 * p[:, 0]) + 0.1 * p[:, 1], box)
    found = contradicts(target.values, box, lipschitz=check_lipschitz([4, 1], 2))
    assert found is not None
    fx, fy = target.values(np.stack([found.x, found.y]))[:, 0, 0]
    assert abs(fx - fy) > 4 * abs(found.x - found.y)[0] + abs(found.x - found.y)[1]
    assert "the declaration allows" in found.sentence
    assert contradicts(target.values, box, lipschitz=check_lipschitz(4.5, 2)) is not None
    assert contradicts(target.values, box, modulus=Modulus(lambda r: 4 * r)) is not None
    assert contradicts(target.values, box, modulus=ConcaveModulus(lambda r: 4 * r)) is not None


def test_true_declarations_are_not_refuted() -> None:
    box = Box(x=(-1, 1), y=(-1, 1))
    target = Target.of(lambda p: np.sin(5 * p[:, 0]) + 0.1 * p[:, 1] + 1e6, box)
    for fact in (check_lipschitz([5, 0.1], 2), check_lipschitz(math.sqrt(25.01), 2)):
        assert contradicts(target.values, box, lipschitz=fact) is None
    assert contradicts(target.values, box, modulus=Modulus(lambda r: 5.1 * r)) is None
    assert contradicts(target.values, box) is None
    step = Target.of(lambda p: np.sign(p[:, 0]), box)
    assert contradicts(step.values, box, lipschitz=check_lipschitz(1e3, 2)) is not None


def test_the_exact_constant_of_a_rounded_formula_is_not_contradicted_where_its_values_are_near_zero():
    for low in (-1.0, 1e6):
        box = Box(x=(low, low + 2))
        target = Target.of("sin(5*x)", box)
        assert contradicts(target.values, box, lipschitz=check_lipschitz(5, 1)) is None
        assert contradicts(target.values, box, lipschitz=check_lipschitz(4.999, 1)) is not None


def test_facts_know_their_origin() -> None:
    assert not Fact(None, "none").finite
    assert not Fact(np.array([1, np.inf]), "derived").finite
