"""Special functions: values, enclosures, balls and derivatives hold what mpmath computes."""

import flint
import mpmath
import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.balls import precision
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression

mp = mpmath.mp.clone()
mp.dps = 40
ndtr = lambda x: mp.erfc(-x / mp.sqrt(2)) / 2  # noqa: E731


def inverse(p):
    real = mp.sqrt(2) * mp.erfinv(2 * mp.re(p) - 1)
    return real if mp.im(p) == 0 else mp.findroot(lambda y: ndtr(y) - p, mp.mpc(real, mp.im(p)))


FUNCTIONS = {
    "gamma(x)": (mp.gamma, 0.2, 6), "gamma(x)#": (mp.gamma, -1.9, -1.1), "loggamma(x)": (mp.loggamma, 0.1, 9),
    "digamma(x)": (mp.digamma, 0.1, 6), "polygamma(2, x)": (lambda x: mp.polygamma(2, x), 0.3, 5),
    "beta(x, 3/2)": (lambda x: mp.beta(x, 1.5), 0.2, 4), "erfc(x)": (mp.erfc, -3, 6), "erfi(x)": (mp.erfi, -2, 3),
    "erfcx(x)": (lambda x: mp.exp(x * x) * mp.erfc(x), -2, 9),
    "dawsn(x)": (lambda x: mp.exp(-x * x) * mp.erfi(x) * mp.sqrt(mp.pi) / 2, -5, 5),
    "j0(x)": (lambda x: mp.besselj(0, x), -9, 20),
    "j1(x)": (lambda x: mp.besselj(1, x), -9, 9), "jv(1/2, x)": (lambda x: mp.besselj(0.5, x), 0.1, 9),
    "yv(1/2, x)": (lambda x: mp.bessely(0.5, x), 0.2, 9), "i1(x)": (lambda x: mp.besseli(1, x), -4, 4),
    "k0(x)": (lambda x: mp.besselk(0, x), 0.1, 6), "airy_ai(x)": (mp.airyai, -8, 4), "airy_bi(x)": (mp.airybi, -8, 3),
    "expi(x)": (mp.ei, 0.1, 5), "expi(x)#": (lambda x: -mp.e1(-x), -5, -0.1), "exp1(x)": (mp.e1, 0.1, 5), "si(x)": (mp.si, -9, 9),
    "ci(x)": (mp.ci, 0.1, 9), "fresnel_s(x)": (mp.fresnels, -3, 3), "fresnel_c(x)": (mp.fresnelc, -3, 3),
    "lambertw(x)": (mp.lambertw, -0.36, 9), "zeta(x)": (mp.zeta, 1.1, 8), "ellipk(x)": (mp.ellipk, -2, 0.95),
    "ellipe(x)": (mp.ellipe, -2, 0.95), "gammainc(5/2, x)": (lambda x: mp.gammainc(2.5, 0, x, regularized=True), 0.1, 9),
    "gammaincc(5/2, x)": (lambda x: mp.gammainc(2.5, x, mp.inf, regularized=True), 0.1, 9),
    "betainc(2, 1/2, x)": (lambda x: mp.betainc(2, 0.5, 0, x, regularized=True), 0.05, 0.95), "ndtr(x)": (ndtr, -6, 6),
    "ndtri(x)": (inverse, 0.02, 0.98), "log_ndtr(x)": (lambda x: mp.log(ndtr(x)), -7, 4),
    "softplus(x)": (lambda x: mp.log(1 + mp.exp(x)), -9, 9), "gelu(x)": (lambda x: x * ndtr(x), -5, 5),
    "silu(x)": (lambda x: x / (1 + mp.exp(-x)), -5, 5), "logit(x)": (lambda x: mp.log(x / (1 - x)), 0.05, 0.95),
}  # fmt: skip
RAMP = 8


def exact(function, x):
    return mp.mpf(mp.re(function(mp.mpf(float(x)))))


def holds(low, high, value):
    return mp.mpf(float(low)) <= value <= mp.mpf(float(high))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_enclosures_and_values_hold_the_function(name):
    function, low, high = FUNCTIONS[name]
    one, rng = Expression.parse(name.rstrip("#"), ("x",)), np.random.default_rng(0)
    centre = rng.uniform(low, high, 24)
    reach = np.where(np.arange(24) < RAMP, 0.0, (high - low) * 10 ** rng.uniform(-12, 0, 24))
    a, b = np.clip(centre - reach, low, high), np.clip(centre + reach, low, high)
    found = one.enclose(Interval(a[:, None], b[:, None]))
    assert found.finite.all()
    values = one.evaluate(centre[:, None])[:, 0]
    for i, (first, last) in enumerate(zip(a, b, strict=True)):
        for x in np.unique([first, last, np.clip(centre[i], first, last)]):
            assert holds(found.lo[i, 0], found.hi[i, 0], exact(function, x)), (name, x)
    for i in range(RAMP):
        at = exact(function, centre[i])
        assert float(found.hi[i, 0] - found.lo[i, 0]) <= 1e-14 * (1 + abs(float(at)))
        assert values[i] == pytest.approx(float(at), rel=1e-11, abs=1e-13)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_balls_and_slopes_hold_the_function(name):
    function, low, high = FUNCTIONS[name]
    one, rng = Expression.parse(name.rstrip("#"), ("x",)), np.random.default_rng(1)
    slope, finite = one.gradient(), 0
    for _ in range(8):
        c, r = rng.uniform(low + 0.1 * (high - low), high - 0.1 * (high - low)), (high - low) * 10.0 ** rng.uniform(-3, -1)
        c, r = complex(c, rng.uniform(-r, r)), r
        with precision(80):
            (ball,) = one.enclose_ball([flint.acb(flint.arb(c.real, r), flint.arb(c.imag, r))])
        if not ball.is_finite():
            continue
        finite += 1
        z = mp.mpc(c + r * complex(*rng.uniform(-1, 1, 2)))
        value = mp.mpc(function(z))
        (re_low, re_high), (im_low, im_high) = (
            (float(part.lower()), float(part.upper())) for part in (ball.real, ball.imag)
        )
        room = 1e-12 * (1 + abs(complex(value)))
        assert re_low - room <= float(value.real) <= re_high + room and im_low - room <= float(value.imag) <= im_high + room
    assert finite >= 4
    at = rng.uniform(low + 0.1 * (high - low), high - 0.1 * (high - low), 3)
    steep = slope.enclose(Interval(at[:, None], at[:, None]))
    for i, x in enumerate(at):
        wanted = float(mp.re(mp.diff(function, mp.mpf(float(x)))))
        assert steep.lo[i, 0] - 1e-9 * (1 + abs(wanted)) <= wanted <= steep.hi[i, 0] + 1e-9 * (1 + abs(wanted))
        assert slope.evaluate([[x]])[0, 0] == pytest.approx(wanted, rel=1e-9, abs=1e-11)
    assert slope.gradient().enclose(Interval(at[:, None], at[:, None])).finite.all()


@pytest.mark.parametrize(
    ("text", "low", "high", "said"),
    [
        ("gamma(x)", -0.5, 1.0, "pole of the function"), ("gamma(x)", 0.0, 1.0, "near x=0"), ("ellipk(x)", 0.0, 1.0, "near x=1"),
        ("lambertw(x)", -1.0, 1.0, "-1/e or below"), ("expi(x)", -1.0, 1.0, "reaches 0 near x=0"),
        ("zeta(x)", 1.0, 2.0, "near x=1"),
        ("ndtri(x)", 0.0, 0.5, "leaves (0, 1)"), ("k0(x)", 0.0, 1.0, "0 or below"),
        ("betainc(1,2,2*x)", 0.0, 1.0, "leaves [0, 1]"),
        ("jv(1/2,x)", -1.0, 1.0, "0 or below"), ("beta(x, x - 1)", 0.5, 2.0, "0 or below"),
    ],
)  # fmt: skip
def test_singular_places_are_refused(text, low, high, said):
    with pytest.raises(ma.Refused) as refusal:
        ma.compile(text, ma.Box(x=(low, high)), error=1e-3)
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [("jv(x, x)", "must be numbers"), ("jv(-101, x)", "at least -100"), ("polygamma(1/2, x)", "whole number"),
     ("gammainc(0, x)", "positive"), ("betainc(1, -1, x)", "positive"), ("float(x)", "nearest to 0.1")],
)  # fmt: skip
def test_first_arguments_are_numbers(text, said):
    with pytest.raises(ma.BadInput, match=said):
        Expression.parse(text, ("x",))


def test_a_word_is_a_function_only_before_a_parenthesis():
    names = ("gamma", "beta", "zeta", "si")
    one = Expression.parse("gamma*gamma(beta) + zeta**si", names)
    assert one.evaluate([[2.0, 4.0, 3.0, 2.0]])[0, 0] == pytest.approx(21.0)
    assert one.describe(one.outputs[0]) == "gamma*gamma(beta) + zeta**si"


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("gamma(x)", 1, 4), ("airy_ai(x)", -8, 2), ("erfc(x)", -2, 3), ("lambertw(x)", -0.3, 5), ("ellipk(x)", 0, 0.9)],
)
def test_layers_of_special_functions_are_proved_and_checked(text, low, high):
    layer = ma.compile(text, ma.Box(x=(low, high)), error=1e-8)
    assert layer.certificate.kind == "proved" and layer.bound <= 1e-8 and layer.check().passed


def test_names_shown_are_names_that_are_read():
    one = Expression.parse("jv(1/2, x) + betainc(2, 1/2, x) + polygamma(3, x)", ("x",))
    assert set(Expression.parse(one.describe(one.outputs[0]), ("x",)).nodes) == set(one.nodes)
    slope = Expression.parse("zeta(x)", ("x",)).gradient()
    assert slope.describe(slope.outputs[0]) == "zeta'(x)"
