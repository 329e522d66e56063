"""torch functions and modules, and formulas of SymPy, become expressions with the values of the originals."""

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.tracing.source import target_of

torch = pytest.importorskip("torch")
sympy = pytest.importorskip("sympy")
nn = torch.nn
LINE, PLANE = ma.Box(x=(-1, 1)), ma.Box(x=(-2, 2), y=(-2, 2))


def net(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*(layer() if isinstance(layer, type) else layer for layer in layers)).eval()


MODULES = [
    lambda: net(nn.Linear(2, 4), nn.Tanh, nn.Linear(4, 1)),
    lambda: net(nn.Linear(2, 3), nn.ReLU, nn.Linear(3, 3), nn.ReLU, nn.Linear(3, 2)).double(),
    lambda: net(nn.Linear(2, 2), nn.GELU, nn.Linear(2, 2), nn.SiLU, nn.Linear(2, 1), nn.Sigmoid),
    lambda: net(nn.Linear(2, 2), nn.Softplus, nn.LayerNorm(2), nn.Dropout(0.5), nn.LeakyReLU, nn.Flatten, nn.Hardtanh),
    lambda: net(nn.BatchNorm1d(2), nn.ELU, nn.Softmax(dim=-1), nn.Mish, nn.Softsign, nn.ReLU6),
]


@pytest.mark.parametrize("case", range(len(MODULES)))
def test_a_module_is_read(case):
    module = MODULES[case]()
    target = target_of(module, PLANE)
    assert target.expression is not None, target.traced
    x = PLANE.sample(200, np.random.default_rng(0))
    wanted = module.double()(torch.tensor(x)).detach().numpy().reshape(200, -1)
    assert np.allclose(target.values(x).reshape(200, -1), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "function",
    [
        lambda X: torch.sin(X[:, 0]) * torch.cos(X[:, 1]),
        lambda x, y: x.sin() * torch.cos(y),
        lambda X: torch.where(X[:, 0] > 0, torch.exp(X[:, 1]), X.sum(dim=-1).relu()),
        lambda X: torch.stack([X.max(dim=1).values, X @ torch.tensor([1.0, 2.0], dtype=X.dtype)], dim=-1),
        lambda x, y: torch.special.ndtr(x) + torch.erfc(y) * torch.special.bessel_j0(x) + torch.lgamma(x + 3),
        lambda X: torch.sin(X).std(1) + X.var(dim=1, unbiased=False) + torch.rsqrt(X[:, 0] + 3) + X.max(1)[0],
        lambda X: (
            torch.sin(X).repeat(1, 2)[:, 3].view(X.size(0), -1) + ((X > 0).long() + (X < 1).bool()).sum(axis=1, keepdim=True)
        ),
        lambda X: torch.nn.functional.relu(X.mul_(2), inplace=True).sum(1) + X[:, 0],
        lambda X: torch.tensor(2.0, dtype=X.dtype, device=X.device) * torch.clamp(X[:, 0], max=0.5).clone().add_(1),
        lambda X: torch.nn.functional.softplus(X[:, 0], beta=3.0, threshold=1.0),
        lambda X: torch.linalg.vector_norm(X + 3, dim=1) + 1 / (3 + X[:, 0]) - torch.tensor(2.0) * X[:, 1],
    ],
)
def test_a_function_of_torch_is_read(function):
    target = target_of(function, PLANE)
    assert target.expression is not None, target.traced
    x = PLANE.sample(200, np.random.default_rng(0))
    inputs = list(torch.tensor(x).T) if "per variable" in target.traced.how else [torch.tensor(x)]
    assert np.allclose(target.values(x).reshape(200, -1), function(*inputs).numpy().reshape(200, -1), atol=1e-12)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.act = nn.Linear(2, 2), nn.ReLU(inplace=True)

    def forward(self, x):
        h = self.linear(x)
        return (h + self.act(h)).sum(1)  # h is changed by then


@pytest.mark.parametrize("make", [Residual, lambda: nn.utils.spectral_norm(nn.Linear(2, 1)).eval()])
def test_a_module_that_changes_its_tensors_or_hooks_its_weights_is_read_as_it_computes(make):
    torch.manual_seed(0)
    module = make()
    target = target_of(module, PLANE)
    assert target.expression is not None, target.traced
    x = PLANE.sample(200, np.random.default_rng(0)).astype(np.float32)
    wanted = module(torch.tensor(x)).detach().numpy().reshape(200)
    assert np.allclose(target.values(x.astype(float)).reshape(200), wanted, rtol=1e-5, atol=1e-5)


def test_a_function_that_takes_tensors_alone_is_a_black_box_of_tensors():
    target = target_of(lambda X: X[:, 0].masked_fill(X[:, 1] > 0, 3.0), PLANE)
    assert target.expression is None and "masked_fill" in str(target.traced) and "float64 tensors" in target.traced.how
    assert target.values(np.array([[1.0, 1.0], [1.0, -1.0]])).ravel().tolist() == [3.0, 1.0]


def test_dropout_in_training_is_no_function():
    target = target_of(nn.Sequential(nn.Linear(2, 1), nn.Dropout(0.5)).train(), PLANE)
    assert target.expression is None and "random" in str(target.traced)


def test_layers_of_modules_and_formulas_are_those_of_their_text():
    x, y = sympy.symbols("x y")
    formula = ma.compile(sympy.sin(x) * sympy.cos(y) + sympy.Rational(1, 3), PLANE, error=1e-4)
    assert formula.certificate.kind == "proved" and formula.tokens == ma.compile("sin(x)*cos(y) + 1/3", PLANE, error=1e-4).tokens
    module = ma.compile(net(nn.Linear(1, 3), nn.ReLU, nn.Linear(3, 1)), LINE, error=1e-3)
    assert module.certificate.kind == "proved" and module.check().passed


X, Y = sympy.symbols("x y", real=True)
FORMULAS = [
    sympy.exp(-(X**2)) / sympy.sqrt(2 * sympy.pi) - sympy.Float(0.1) * Y,
    sympy.Piecewise((X**3, X < 0), (sympy.sin(X), X < 1), (Y, True)),
    sympy.Max(X, Y, 0) - sympy.Abs(X) * sympy.sign(Y) + sympy.Heaviside(X),
    X / (Y + 5) - 2 / (X + 7) ** 3 + (X + 3) ** sympy.Rational(2, 3) + sympy.sec(X / 2) + sympy.GoldenRatio,
    sympy.besselj(0, X) + sympy.erfc(Y) + sympy.gamma(X + 3) * sympy.LambertW(Y + 3) + sympy.airyai(X) - sympy.Si(Y),
    sympy.Mul(-1, -1, X, evaluate=False) + sympy.Mod(Y, sympy.Rational(7, 10)) + sympy.Piecewise((X, X < 0), (Y, X >= 0)),
    sympy.Matrix([X * Y, sympy.atan2(Y, X + 3), sympy.log(X + 4, 2)]),
]


@pytest.mark.parametrize("formula", FORMULAS, ids=str)
def test_a_formula_has_the_values_of_sympy(formula):
    target = target_of(formula, PLANE)
    rows = list(formula) if isinstance(formula, sympy.MatrixBase) else [formula]
    for point in PLANE.sample(10, np.random.default_rng(3)):
        wanted = [float(f.evalf(30, subs=dict(zip((X, Y), map(float, point), strict=True)))) for f in rows]
        assert target.values(point[None]).ravel() == pytest.approx(wanted, rel=1e-13)


def test_digits_beyond_float64_are_kept():
    text = target_of(sympy.Float("0.1", 30) * X, LINE).text
    number = sympy.sympify(text.replace("*x", "").replace("x*", "").strip("()"))
    assert number == sympy.Rational(sympy.Float("0.1", 30)) != sympy.Rational(0.1)


def test_a_formula_that_says_nothing_somewhere_on_the_box_is_refused():
    for gap in (
        sympy.Piecewise((X, X > 0)),
        sympy.Piecewise((X, X < 0), (sympy.elliptic_k(X / 4), sympy.Gt(X, sympy.Rational(1, 10**5)))),
    ):
        with pytest.raises(ma.BadInput, match="is not seen to say something on the whole box"):
            target_of(gap, LINE)
    assert target_of(sympy.Piecewise((X, X > -5)), LINE).text == "x"


def test_what_a_box_or_the_language_lacks_is_refused():
    with pytest.raises(ma.Refused, match=r"`z` of the formula"):
        target_of(sympy.Symbol("z") + X, PLANE)
    with pytest.raises(ma.BadInput, match="no meaning in the language"):
        target_of(sympy.Integral(X, (X, 0, Y)), PLANE)
