"""Python functions are read into the expression that they compute, or it is said at which line that ends."""

import functools
import math

import numpy as np
import pytest
import scipy.integrate
import scipy.special

import maxaffine as ma
from maxaffine.expression.expression import Expression
from maxaffine.tracing.compare import Disagreement
from maxaffine.tracing.source import target_of

LINE, PLANE = ma.Box(x=(-1, 1)), ma.Box(x=(-3, 3), y=(-3, 3))
C, W = np.array([4.0, 4.5]), np.array([[0.5, -1.25, 2.0], [1.5, 0.25, -3.0]])


def powers(X):
    x, y = X.T
    total = 0.0
    for n in range(1, 4):
        total = total + x**n * y / n
    return total


def filled(X):
    out = np.zeros_like(X)
    out[:, 0] = np.sin(X[:, 1])
    out[:, 1] = X[:, 0] % 0.5
    return out


def shared(X):
    a, Y = X[:, 0], np.zeros_like(X)
    X += 1
    for column in Y.T:
        column += X[:, 1]
    Y[:, :1] *= 2
    return a + Y[:, 0] - Y[:, 1]  # a is a view of X


def written(x):
    y = np.empty_like(x)
    np.sin(x, out=y)
    y.astype(float, copy=False)[:] += 1
    return y + x.astype(float)


@functools.lru_cache
def remembered(x):
    return np.sin(x) * 2


READ = [
    (lambda x, y: np.sin(x) * np.cos(y), PLANE, "sin(x)*cos(y)"),
    (lambda y, x: y - 10 * x, PLANE, "y - 10*x"),
    (lambda a, b: a - 10 * b, PLANE, "x - 10*y"),
    (lambda X: np.sin(X[:, 0]) * np.cos(X[..., 1]), PLANE, "sin(x)*cos(y)"),
    (lambda x: np.where(x > 0, x, 0.1 * x), LINE, "where(x > 0, x, float(0.1)*x)"),
    (lambda X: np.linalg.norm(X - C, axis=1), PLANE, "sqrt((x - 4)**2 + (y - 4.5)**2)"),
    (powers, PLANE, "x*y + x**2*y/2 + x**3*y/3"),
    (filled, PLANE, "sin(y), x - 0.5*floor(x/0.5)"),
    (lambda X: np.tanh(X @ W) @ [1.0, 2.0, -1.0], PLANE,
     "tanh(0.5*x + 1.5*y) + 2*tanh(-1.25*x + 0.25*y) - tanh(2*x - 3*y)"),
    (lambda X: (X[:, 0] > X[:, 1]) * np.hypot(*X.T), PLANE, "where(x > y, hypot(x, y), 0)"),
    (lambda X: np.einsum("bi,ij,bj->b", X, W[:, :2], X), PLANE, "x*0.5*x + x*-1.25*y + y*1.5*x + y*0.25*y"),
    (lambda X: np.concatenate([X[:, :1], np.ones((len(X), 1))], axis=1), PLANE, "x, 1"),
    (lambda X: np.stack([X.min(axis=1), X.max(axis=-1), X.mean(axis=1), np.prod(X, axis=1)], axis=-1), PLANE,
     "min(x, y), max(x, y), (x + y)/2, x*y"),
    (lambda x, y: (x, y**2), PLANE, "x, y**2"),
    (lambda x: np.clip(x, -0.5, np.inf) + np.heaviside(x, 0.5) + np.sign(x), LINE,
     "max(x, -0.5) + piecewise(x < 0, 0, x == 0, 0.5, 1) + sign(x)"),
    (lambda x: np.sinc(x) + np.power(2.0, x) + np.floor(-x) + np.reciprocal(x + 2), LINE,
     "sinc(pi*x) + 2**x + floor(-x) + 1/(x + 2)"),
    (lambda x: np.interp(x[:, 0], [-1, 0, 1], [0, 2, 1]), LINE,
     "where(min(max(x, -1), 1) < 0, 2*(min(max(x, -1), 1) + 1), 2 - min(max(x, -1), 1))"),
    (lambda x: scipy.special.expit(3 * x) + scipy.special.erf(x), LINE, "sigmoid(3*x) + erf(x)"),
    (lambda x: scipy.special.j0(5 * x) + scipy.special.jv(0.5, x + 2) + scipy.special.gammaln(x + 2), LINE,
     "j0(5*x) + jv(0.5, x + 2) + loggamma(x + 2)"),
    (lambda x: scipy.special.ndtr(x) - np.real(scipy.special.lambertw(x + 2)) + scipy.special.sici(x)[0], LINE,
     "ndtr(x) - lambertw(x + 2) + si(x)"),
    (lambda x: scipy.special.airy(x)[0] * scipy.special.betainc(2, 0.5, (x + 1) / 2) + scipy.special.zeta(x + 3), LINE,
     "airy_ai(x)*betainc(2, 0.5, (x + 1)/2) + zeta(x + 3)"),
    (lambda x: scipy.special.ellipk(x / 2) + scipy.special.kv(1, x + 2) + scipy.special.gammainc(2.5, x + 1), LINE,
     "ellipk(x/2) + kv(1, x + 2) + gammainc(2.5, x + 1)"),
    (lambda p: p[0] * p[1] ** 2, PLANE, "x*y**2"),
    (np.arctan2, PLANE, "atan2(x, y)"),
    (written, LINE, "sin(x) + 1 + x"),
    (remembered, LINE, "sin(x)*2"),
    (shared, PLANE, "x + 1 + (y + 1)*2 - (y + 1)"),
    (lambda x: ((x > 0) + (x > 0.5)) * 1.0 + ((x > 0) * np.array([True])).astype(int), LINE,
     "where(x > 0 or x > 0.5, 1, 0) + where(x > 0, 1, 0)"),
    (lambda X: (X > 0).sum(axis=1) + (X > 1) @ np.array([1, 2]) + ((X > 2) @ np.array([True, True])), PLANE,
     "where(x > 0, 1, 0) + where(y > 0, 1, 0) + (where(x > 1, 1, 0) + where(y > 1, 2, 0)) + where(x > 2 or y > 2, 1, 0)"),
    (lambda x: (x, x**2, x**3), LINE, "x, x**2, x**3"),
    (lambda X: ~((X[:, 0] > 0) & (X[:, 1] > 0)) * 2.0, PLANE, "where(not (x > 0 and y > 0), 2, 0)"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "box", "text"), READ, ids=[text[:30] for _, _, text in READ])
def test_a_function_becomes_the_graph_of_its_text(function, box, text):
    target = target_of(function, box)
    assert target.expression is not None, target.traced
    written, wanted = Expression.parse(target.text, box.names), Expression.parse(text, box.names)
    assert (written.outputs and set(written.nodes) == set(wanted.nodes)) or np.array_equal(
        written.evaluate(box.sample(50, np.random.default_rng(0))), wanted.evaluate(box.sample(50, np.random.default_rng(0)))
    )
    assert target.traced.compared == 4096 and target.traced.difference < 1e-13


def branch(x):
    if x > 0:
        return x
    return 0 * x


def loop(X):
    return np.array([row[0] ** 2 for row in X])


def swallowed(x):
    try:
        return np.sin(float(x))
    except Exception:
        return 0.0 * x


def calls():
    calls.count += 1
    return calls.count


calls.count = 0

NOT_READ = [
    (branch, "if x > 0", "np.where"),
    (lambda x: math.sin(x), "math.sin", "np.sin"),
    (lambda x: scipy.integrate.quad(lambda t: np.sin(t * x), 0, 1)[0], "quad", "compiled code"),
    (lambda x: np.sin(x) + 1e-3 * np.random.default_rng().random(), "called again", "seed"),
    (lambda x: np.sin(x) + 1e-3 * np.random.default_rng().random(x.shape), "from point to point", "point alone"),
    (lambda x: np.sin(x) + 1e-3 * calls(), "called again", "line"),
    (loop, "for row in X", "loop runs over the points"),
    (lambda X: np.partition(X, 0, axis=1), "np.partition", "not an operation"),
    (lambda X: np.sort(X, axis=0), "np.sort", "over the points of a batch"),
    (lambda X: np.average(X, axis=1, weights=[2.0]), "average", "`weights`"),
    (lambda x: x.sum(axis=-1, initial=1e-6), "sum", "`initial`"),
    (lambda x: scipy.special.zeta(2.0, x + 3), "zeta", "second argument"),
    (lambda x: scipy.special.lambertw(x - 0.9, -1).real, "lambertw", "second argument"),
    (lambda x: np.interp(x, [-1, 1], [0, 1], 0.5), "np.interp", "beyond its ends"),
    (swallowed, "float(x)", "single number"),
    (lambda X: X[X[:, 0] > 0], "values choose", "np.where"),
    (lambda x: np.where((x > 0) & 2, 1.0, 0.0), "conditions", "numbers"),
    (lambda x: (x > 0.99) * np.int8(100) * np.int8(3), "int8", "overflow"),
    (lambda x: np.full_like(x, 0.7, dtype=int) + x, "full_like", "dtype"),
    (lambda x: np.add(x, 1, dtype="float16"), "float16", "changes numbers"),
    (lambda x: np.add.reduce(x, axis=1, initial=1e-12), "add", "`initial`"),
    (lambda x: x.imag + x if hasattr(x, "imag") else x, "`imag`", "no meaning"),
    (lambda X: np.linalg.norm(X[:, :, None] * X[:, None, :], 2, axis=(1, 2)), "norm", "matrices"),
    (lambda x: np.interp(x, [-1, 0, 0, 1], [0, 1, 2, 3]), "np.interp", "increase"),
    (lambda x: np.nan_to_num(np.sin(x) / x), "nan_to_num", "not an operation"),
    (lambda X: np.add(X[:, 0], 1, out=np.zeros(len(X))), "np.add", "np.zeros_like"),
    (lambda x: scipy.special.polygamma(1, x + 2), "polygamma", "scipy"),
    (lambda x: x * (np.longdouble(1) / 3), "numbers of float64", "line"),
]


@pytest.mark.parametrize("case", range(len(NOT_READ)))
def test_what_cannot_be_read_is_said_with_its_line(case):
    function, *words = NOT_READ[case]
    try:
        said = str(target_of(function, LINE).traced)
    except ma.BadInput as failure:  # no function of batches or points either
        said = str(failure)
    assert "line" in said and all(word in said for word in words), said


def test_black_boxes_go_on_with_a_warning_that_says_why():
    with pytest.warns(UserWarning, match=r"line \d+ .*if x > 0"):
        layer = ma.compile(branch, LINE, error=0.1)
    assert layer.certificate.kind == "none" and "np.where" in layer.certificate.theorem
    assert "one point at a time" in layer.explain()
    assert layer([0.25]) == pytest.approx(0.25, abs=0.1)
    assert ma.compile(lambda x: np.sin(x), LINE, error=0.1, trace=False).target.expression is None


@pytest.mark.parametrize("trace", [True, False])
def test_a_function_that_says_something_else_every_time_is_told_so_and_not_that_it_jumps(trace):
    rng = np.random.default_rng(1)
    for function in (lambda x: x + rng.random(), lambda x: x + 0.5 * (calls() % 2), lambda x: x + rng.random(x.shape)):
        with pytest.raises(ma.BadInput, match=r"other values when it is called again: at x = .* first .*, then "):
            ma.compile(function, LINE, error=0.05, trace=trace)
    with pytest.raises(ma.Refused, match="seems to jump"):
        ma.compile(lambda x: np.where(x > 0.1, 1.0, 0.0), LINE, error=0.05, trace=False)


def test_the_certificate_names_the_expression_and_every_number_exactly():
    layer = ma.compile(lambda x, y: np.exp(-0.1 * x) * np.cos(y), PLANE, error=1e-4)
    assert str(layer.target.traced) == layer.target.text == "exp(-float(0.1)*x)*cos(y)"
    assert any(layer.target.text in line for line in layer.certificate.assumptions)
    text = ma.compile("exp(-float(0.1)*x)*cos(y)", PLANE, error=1e-4)
    assert (layer.tokens, layer.bound) == (text.tokens, text.bound)
    assert layer.check().passed


def test_a_function_that_is_not_what_was_read_is_an_error_with_the_worst_point():
    def sly(X):
        return X[:, 0] if not isinstance(X, np.ndarray) else X[:, 0] + (X[:, 1] > 2.9) * 1e-6

    with pytest.raises(Disagreement, match=r"at x=.*y=.*trace=False"):
        target_of(sly, PLANE)


def test_functions_agree_to_what_scipy_knows_of_them_and_small_values_count_as_much_as_large_ones():
    box = ma.Box(y=(0.25, 3), z=(0.01, 1))
    assert target_of(lambda y, z: scipy.special.beta(z**-3, z) + 0 * y, box).expression is not None  # 1e-9 off in SciPy itself
    assert target_of(lambda y, z: scipy.special.gamma(scipy.special.y1(y)), box).expression is not None

    def steep(X):
        return np.exp(3 * X[:, 0]) * (1 if not isinstance(X, np.ndarray) else 1 + 1e-8 * (X[:, 0] < -2))

    with pytest.raises(Disagreement):
        target_of(steep, PLANE)


def test_what_depends_on_the_company_of_a_point_is_found():
    seen = {}

    def remembered(X):
        return seen.setdefault(X.shape, X[:, 0] * 2)

    for function in (remembered, lambda X: X[:, 0] + (len(X) == 1), lambda X: X[:, 0] * (len(X) > 64)):
        with pytest.raises(Disagreement, match="function of its point alone"):
            target_of(function, PLANE)


def test_signatures_that_fit_nothing_are_refused():
    with pytest.raises(ma.BadInput, match=r"takes 3 arguments \(a, b, c\) and the box has 2 variables"):
        ma.compile(lambda a, b, c: a, PLANE, error=0.1)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x, y, scale=2.0: scale * x + y, "2*x + y"),
        (lambda a=0.5, y=0.0, x=0.0: a * x - y, "0.5*x - y"),
        (lambda *X: X[0][:, 0], "x"),
        (functools.partial(lambda k, x, y: k * x + y, 2.0), "2*x + y"),
        (np.hypot, "hypot(x, y)"),
    ],
)
def test_arguments_go_by_name_else_by_position_and_defaults_stay(function, text):
    assert target_of(function, PLANE).text == text


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda a, b: a, "takes 2 arguments (a, b) and the box has 1 variable"),
        (lambda x: None, "None"),
        (lambda x: "sin", "values"),
        (lambda x: {"a": x}, "dict"),
        (lambda x: 1j * x, "complex"),
        (lambda x: 1 / 0, "ZeroDivisionError"),
        (type("F", (), {}), "the class F"),
    ],
)
def test_what_is_no_function_of_points_is_refused(function, words):
    with pytest.raises(ma.BadInput) as refusal:
        ma.compile(function, LINE, error=0.1)
    assert words in str(refusal.value)


def test_loops_share_what_they_computed():
    def logistic(x):
        for _ in range(60):
            x = 0.99 * x * (1 - x)
        return x

    text = target_of(logistic, ma.Box(x=(0, 1))).text
    assert text.count(":=") >= 50 and len(text) < 4_000


def test_sequences_and_pairs_are_read():
    box = ma.Box.sequence(d=2, n=3, low=-1, high=1)
    target = target_of(lambda X: np.stack([X[:, 0, :] * 2, X[:, 1, :]], axis=1), box)
    assert target.text == "2*x11, 2*x12, 2*x13, x21, x22, x23".replace("2*x11", "x11*2").replace("2*x12", "x12*2").replace(
        "2*x13", "x13*2"
    ) and target.output_shape == (2, 3)
    pair = target_of(lambda Q, K: np.sin(Q[:, 0] * K[:, 0]), (ma.Box(q=(-1, 1)), ma.Box(k=(-1, 1))))
    assert pair.text == "sin(q*k)" and pair.inputs == "pair"


def test_a_refusal_of_a_black_box_says_why_it_was_not_read():
    with pytest.raises(ma.Refused, match=r"without facts cannot be proved.*not read as a formula: line \d+ .*math.sin"):
        ma.compile(lambda x: math.sin(x), LINE, error=1e-3, require="proved")
