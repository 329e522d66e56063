"""sinc and exprel: enclosures and balls hold the true functions, and quotients are continued by them and by nothing else."""

import flint
import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.expression.removable import extended


def exact(name, x):
    ball = flint.arb(float(x))
    return ball.sinc() if name == "sinc" else flint.arb(1) if x == 0 else ball.expm1() / ball


@pytest.mark.parametrize("name", ["sinc", "exprel"])
def test_enclosures_hold_the_function(name):
    rng, one = np.random.default_rng(0), Expression.parse(f"{name}(x)", ("x",))
    centre = rng.normal(size=4000) * 10 ** rng.uniform(-3, 1.2, 4000)
    reach = 10 ** rng.uniform(-14, 1.2, 4000)
    low, high = centre - reach, centre + reach
    found = one.enclose(Interval(low[:, None], high[:, None]))
    for share in (0.0, 0.13, 0.5, 0.77, 1.0):
        x = np.clip(low + share * (high - low), low, high)
        for at, lo, hi in zip(x, found.lo[:, 0], found.hi[:, 0], strict=True):
            value = exact(name, at)
            assert not (value < float(lo)) and not (value > float(hi)), (at, lo, hi)


@pytest.mark.parametrize("name", ["sinc", "exprel"])
def test_balls_hold_the_function(name):
    rng, one = np.random.default_rng(1), Expression.parse(f"{name}(x)", ("x",))
    for _ in range(300):
        c, r = rng.normal(size=2) * 3, 10.0 ** rng.uniform(-3, 0.5)
        box = flint.acb(flint.arb(c[0], r), flint.arb(c[1], r))
        (found,) = one.enclose_ball([box])
        z = flint.acb(*(float(v) for v in c + r * rng.uniform(-1, 1, 2)))
        value = z.sinc() if name == "sinc" else z.expm1() / z
        assert found.overlaps(value)


@pytest.mark.parametrize(
    ("text", "at", "limit"),
    [
        ("sin(x)/x", 0.0, 1.0),
        ("sin(3*x)**2/x**2", 0.0, 9.0),
        ("(exp(2*x)-1)/x", 0.0, 2.0),
        ("expm1(x)/(3*x)", 0.0, 1 / 3),
        ("cos(x)*sin(x*x)/(2*x**2)", 0.0, 0.5),
        ("(2*exp(x)-2)/x", 0.0, 2.0),
        ("sin(2*x-1)/(1-2*x)", 0.5, -1.0),
        ("sin(pi*(x-1))**2/(2*x-2)**2", 1.0, np.pi**2 / 4),
        ("(1-exp(-2*x-2))/(3*x+3)", -1.0, 2 / 3),
        ("x/(exp(x)-1)", 0.0, 1.0),
        ("x**2/((1-exp(-x))*sin(x))", 0.0, 1.0),
    ],
)
def test_a_quotient_is_its_limit_where_it_is_nought_over_nought(text, at, limit):
    target = ma.Target.of(text, ma.Box(x=(-1, 2)))
    assert target.continued
    assert target.values(np.array([[at]]))[0, 0, 0] == pytest.approx(limit, rel=1e-15)
    x = np.array([[0.3], [-0.7], [1.9]])
    plain = Expression.parse(text, ("x",)).evaluate(x)
    assert target.values(x)[:, :, 0] == pytest.approx(plain, rel=1e-14)


def test_only_removable_quotients_are_continued():
    for text in ("sin(x)/x**2", "cos(x)/x", "(exp(x)-2)/x", "1/x", "sin(x)/(x*(1+x))", "sin(x)/y", "sin(x-y)/(x-2*y)",
                 "sin(x)/(1+x)", "x/(exp(x)-1)**2", "x/sin(2*x-1)"):  # fmt: skip
        expression = Expression.parse(text, ("x", "y"))
        other = extended(expression)
        origin = Interval.point(np.zeros((1, 2)))
        assert other is None or not (other.defined(origin).all() and text != "sin(x)/(x*(1+x))")
    assert not ma.Target.of("sin(x)/x", ma.Box(x=(1, 2))).continued  # nothing to continue there


def test_a_continued_target_is_proved_saved_and_checked(tmp_path):
    layer = ma.compile("sin(x*y)/(x*y)", ma.Box(x=(-1, 1), y=(-1, 2)), error=1e-6)
    assert layer([0.0, 0.5]) == pytest.approx(1.0, abs=1e-6)
    assert "continuous extension" in layer.explain()
    path = tmp_path / "f.safetensors"
    layer.save(path)
    assert ma.check(path).passed
    assert ma.load(path).target.continued
