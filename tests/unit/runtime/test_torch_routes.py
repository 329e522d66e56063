"""Every way to run a layer on tensors stays within the layer's bound, head by head and next to its switches; modules that were
changed say so."""

import copy
import pickle
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.proofs.statement import Statement
from maxaffine.runtime import two_level

torch = pytest.importorskip("torch")

from maxaffine.runtime import torch_factorised, torch_runtime  # noqa: E402
from maxaffine.runtime.torch_runtime import TorchLayer  # noqa: E402

LINE, SQUARE = ma.Box(x=(-1, 1)), ma.Box(x=(-1, 1), y=(-1, 1))
TABLE = ma.Table([np.array([0.0, 1.0, 2.5, 3.0]), np.arange(3.0)], np.random.default_rng(0).normal(size=(4, 3)))
HEADS: dict[str, tuple[Any, dict[str, float], dict[str, Any]]] = {  # target, error per dtype, options
    "axis": ("abs(sin(7*x))", {"float64": 1e-9, "float32": 1e-4, "bfloat16": 0.1}, {}),
    "sums": ("abs(sin(5*x))+cos(y)**2", {"float64": 1e-6, "float32": 1e-3, "bfloat16": 0.1}, {}),
    "products": ("abs(sin(7*x))*exp(y)", {"float64": 1e-4, "float32": 1e-2}, {}),
    "regions": ("abs(x+2*y-.3)*cos(x)", {"float64": 1e-3, "float32": 1e-2, "bfloat16": 0.1}, {}),
    "curved": ("max(x**2+y**2,0.5)", {"float64": 1e-2, "float32": 1e-2}, {}),
    "curved maximum": ("max(sin(3*x),y)", {"float64": 1e-2, "float32": 1e-2}, {}),
    "tree": ("sin(6*x*y)", {"float64": 0.1, "float32": 0.1}, {"method": "tree"}),
    "piecewise": ("max(x,y)", {"float64": 1e-4, "float32": 1e-4, "bfloat16": 1e-2}, {}),
    "level": ("where(x**2+y**2<.5,1,0)", {"float64": 0.1, "float32": 0.1, "bfloat16": 0.1}, {"norm": 1}),
    "spectral": ("sin(x)+cos(y)", {"float64": 1e-6, "float32": 1e-4, "bfloat16": 0.1}, {}),
    "two outputs": ("x*y, x - y", {"float64": 1e-3, "float32": 1e-3}, {"method": "spectral"}),
    "lookup": ("x+y", {"float64": 0.3, "float32": 0.3}, {"method": "lookup"}),
    "soft table": (TABLE, {"float64": 1e-6, "float32": 1e-3}, {}),
    "hard table": (TABLE, {"float64": 1e-6, "float32": 1e-3}, {"method": "nearest"}),
}
CASES = [(head, dtype) for head, (_, errors, _) in HEADS.items() for dtype in errors]


@cache
def compiled(head: str, dtype: str) -> ma.Compiled:
    target, errors, options = HEADS[head]
    if isinstance(target, ma.Table):
        more = {} if options.get("method") == "nearest" else {"error": errors[dtype]}
        return ma.compile(target, dtype=dtype, **more, **options)
    return ma.compile(target, SQUARE if "y" in target else LINE, error=errors[dtype], dtype=dtype, **options)


@cache
def points(head: str, dtype: str) -> np.ndarray:
    """Points of the box, its corners, and neighbourhoods of the places where another token takes over."""
    layer = compiled(head, dtype)
    rng, D = np.random.default_rng(1), layer.weights.dimension
    low, high = layer.weights.low, layer.weights.high
    ends = rng.uniform(low, high, size=(2, 6, D))
    found = [rng.uniform(low, high, size=(300, D)), np.where(rng.random((8, D)) < 0.5, low, high)]
    for a, b in zip(*ends, strict=True):

        def answers(share: np.ndarray, a: np.ndarray = a, b: np.ndarray = b) -> np.ndarray:
            return layer.attention(a + share[:, None] * (b - a), outside="clamp").argmax(axis=1)

        share = np.linspace(0.0, 1.0, 65)
        who = answers(share)
        switches = np.flatnonzero(np.diff(who))[:8]
        left, right = share[switches], share[switches + 1]
        for _ in range(50 if len(switches) else 0):
            middle = (left + right) / 2
            same = answers(middle) == who[switches]
            left, right = np.where(same, middle, left), np.where(same, right, middle)
        near = np.concatenate([[0.0], *(s * 10.0 ** -np.arange(2.0, 17.0) for s in (1, -1))])
        found += [a + (one + near)[:, None] * (b - a) for one in left]
    return np.clip(np.concatenate(found), low, high)


def routes(layer: ma.Compiled) -> dict[str, Callable[[Any], Any]]:
    module = layer.to_torch()
    return {
        "tensor": layer,
        "gradient": lambda x: layer(x.clone().requires_grad_()).detach(),
        "factorised": lambda x: layer(x, runtime="factorised"),
        "module": lambda x: module(x).detach(),
        "module, gradient": lambda x: module(x.clone().requires_grad_()).detach(),
    }


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_a_bound_that_is_attained_is_not_exceeded(dtype: str) -> None:
    layer = compiled("piecewise", dtype)
    assert layer.bound is not None
    rng = np.random.default_rng(4)
    x = 1.0 - 10.0 ** rng.uniform(-8, 0, size=3000)
    apart = layer.bound * rng.uniform(0.0, 12.0, size=3000)  # the blend of two tokens is worst a few errors off the diagonal
    both = np.clip(np.stack([x, x - apart], axis=1), -1.0, 1.0).astype(np.float32).astype(np.float64)
    both = np.concatenate([both, [[0.9999998807907104, 0.9995899796485901]]])
    exact, worst = both.max(axis=1), 0.0
    for name, run in routes(layer).items():
        off = np.abs(run(torch.tensor(both)).double().numpy() - exact)
        worst = max(worst, float(off.max()))
        assert (off <= layer.bound).all(), name
    assert worst > 0.99 * layer.bound if dtype != "bfloat16" else worst > 0.0


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_nearest_entry_has_a_gradient_and_it_is_zero(dtype: str) -> None:
    layer = compiled("hard table", dtype)
    x = torch.tensor(points("hard table", dtype), requires_grad=True)
    y = layer(x)
    assert torch.equal(y, layer(x.detach())) and y.requires_grad
    assert np.array_equal(y.detach().numpy(), layer(x.detach().numpy()))
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(slope, torch.zeros_like(x))


def test_asking_for_a_gradient_does_not_change_the_answer_at_a_steep_kink() -> None:
    layer = compiled("axis", "float64")
    t = torch.tensor([[0.8966949105625269]], dtype=torch.float64)  # was off by 7e-4 there, of 6e-10 proved
    assert abs(float(layer(t.clone().requires_grad_()).detach() - layer(t))) < 1e-12
    assert abs(float(layer.to_torch()(t) - layer(t))) < 1e-12


def far_layer(radius: float, affine: bool) -> GroupedLayer:
    """Two clusters, one of them so small that its local coordinate is huge elsewhere; the sites meet at 0.5."""
    slopes = np.array([[[1.0]], [[-2.0]], [[0.5]]]) if affine else None
    wide = Cluster(np.array([0.0]), np.array([1.0]), (AxisKeys(np.array([-1.0, 0.0, 1.0]), np.zeros(3)),),
                   np.array([[0.3], [0.1], [-0.4]]), slopes)  # fmt: skip
    keys = AxisKeys(np.array([-1.0, 1.0]), np.array([0.1, 0.0]))
    small = Cluster(np.array([0.9]), np.array([radius]), (keys,), np.array([[2.0], [2.5]]),
                    np.array([[[1.0]], [[3.0]]]) if affine else None)  # fmt: skip
    steep = 1.5 / radius
    group = ClusterGroup(np.eye(1), np.array([[0.0], [0.0]]), np.array([0.0, -0.4 * steep]), (wide, small))
    away = -0.95 * steep  # what the small cluster's keys gain by |t| is taken from its site
    group = ClusterGroup(np.eye(1), group.site_slopes, np.array([0.0, 2.0 * away]), group.clusters)
    return GroupedLayer(np.zeros(1), (group,), 0.0, np.array([-1.0]), np.array([1.0]), ((1, 1),))


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("radius", [0.5, 1e-3, 1e-30, 1e-140])
def test_clusters_far_away_leave_gradients_finite_and_right(radius: float, affine: bool) -> None:
    layer = far_layer(radius, affine)
    made = TorchLayer(layer, dtype=torch.float64)
    x = torch.linspace(-0.99, 0.75, 12, dtype=torch.float64)[:, None].requires_grad_()
    y = made(x)
    want = two_level.evaluate(layer, x.detach().numpy())
    assert np.abs(y.detach().numpy() - want).max() <= 1e-13 * np.abs(want).max()
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    (third,) = torch.autograd.grad(second.sum(), x)
    assert all(torch.isfinite(one).all() for one in (first, second, third))
    h = 1e-6
    ups, downs = (two_level.evaluate(layer, x.detach().numpy() + s * h)[:, 0, 0] for s in (1, -1))
    assert np.allclose(first.detach().numpy()[:, 0], (ups - downs) / (2 * h), rtol=1e-5, atol=1e-6)
    for tensor in made.tensors.values():
        tensor.requires_grad_()
    names = [name for name in made.tensors if not name.endswith("shapes") and not name.startswith("box")]
    grads = torch.autograd.grad(made(x).sum(), [made.tensors[name] for name in names], allow_unused=True)
    assert all(torch.isfinite(one).all() for one in grads if one is not None)


@pytest.mark.parametrize("head", ["axis", "regions", "curved"])
def test_derivatives_of_clusters_pass_the_checks_of_autograd(head: str) -> None:
    layer = compiled(head, "float32" if head == "axis" else "float64").weights
    made = TorchLayer(layer, dtype=torch.float64, runtime="factorised")
    x = torch.tensor(np.random.default_rng(5).uniform(-0.8, 0.8, size=(4, layer.dimension)), requires_grad=True)
    scale = 1e-7
    assert torch.autograd.gradcheck(made, (x,), eps=scale, atol=1e-5, rtol=1e-3)
    if head == "curved":
        assert torch.autograd.gradgradcheck(made, (x,), eps=scale, atol=1e-2, rtol=1e-2)
    module = compiled(head, "float64").to_torch()
    several = torch.func.vmap(torch.func.grad(lambda one: module(one[None])[0]))(x.detach())
    (want,) = torch.autograd.grad(module(x).sum(), x)
    assert torch.allclose(several, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("head", "dtype"), [("axis", "float64"), ("curved", "float32"), ("lookup", "float64"), ("two outputs", "float32")]
)
def test_empty_batches_and_numbers_that_are_none(head: str, dtype: str) -> None:
    layer = compiled(head, dtype)
    D = layer.weights.dimension
    module = layer.to_torch()
    for run in (module, lambda x: TorchLayer(layer.weights, dtype=x.dtype, runtime="factorised")(x)):
        assert run(torch.zeros((0, D), dtype=torch.float64)).shape[0] == 0
        y = run(torch.tensor([[0.25] * D, [float("nan")] * D], dtype=torch.float64))
        assert torch.isfinite(y[0]).all() and torch.isnan(y[1]).all()


def test_chunks_give_what_one_batch_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = compiled("sums", "float64"), torch.tensor(points("sums", "float64"))
    whole = layer.to_torch()(x)
    monkeypatch.setattr(torch_factorised, "WORKSPACE", 50_000)
    parts = layer.to_torch()(x)
    assert float((parts - whole).abs().max()) <= 1e-13


def test_tree_sums_round_like_a_tree() -> None:
    from maxaffine.runtime.grouped import tree_terms

    for count in (1, 7, 8, 9, 65, 513, 5000):
        terms = torch.rand((2, count, 3), dtype=torch.float64, generator=torch.Generator().manual_seed(count))
        exact = np.asarray(terms.numpy(), dtype=np.longdouble).sum(axis=1)
        found = torch_factorised.tree_sum(terms, 1)
        assert found.shape == (2, 3)
        assert (np.abs(found.numpy() - exact) <= tree_terms(count) * 2.0**-53 * exact).all()


def test_the_tolerance_of_kernels_in_float32_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, asked = compiled("spectral", "float32"), []

    def note(made: Any, device: Any, dtype: Any, runtime: Any, tolerance: float) -> Any:
        asked.append(tolerance)
        return SimpleNamespace(plain=lambda x: torch.zeros((len(x), 1)))

    monkeypatch.setattr(torch_runtime, "torch_layer", note)
    monkeypatch.setattr(torch_runtime.launch, "runs_on", lambda device: True)
    for dtype, given in ((torch.float32, 1e-7), (torch.float32, 0.1), (torch.float64, 1e-7)):
        x = torch.zeros((2, 2), dtype=dtype)
        torch_runtime.evaluate(layer.target, layer.weights, x, reserve=3e-9, narrow=given)
    assert asked == [1e-7, 0.1, 3e-9]


# -- what modules say about themselves


def stated(head: str = "axis", dtype: str = "float32", form: str = "fast", trainable: bool = False) -> Any:
    layer = compiled(head, dtype)
    module = layer.to_multihead_attention() if form == "mha" else layer.to_torch(form=form, trainable=trainable)
    module.statement = Statement("torch module", dtype, layer.bound, "proved for a test")
    return module


FORMS = ("fast", "literal", "mha")


@pytest.mark.parametrize("form", FORMS)
def test_a_module_that_is_converted_withdraws_its_statement(form: str) -> None:
    module = stated(form=form)
    assert module.statement.covered and "error <=" in repr(module)
    assert module.float().to("cpu").eval().statement.covered, "nothing was changed"
    module.double()
    assert not module.statement.covered
    assert module.statement.why == "the module was converted from float32 to float64 after it was made"
    assert "not covered: the module was converted" in repr(module)
    assert not module.float().statement.covered
    assert stated(form=form).to("meta").statement.device == "meta"


@pytest.mark.parametrize("form", FORMS)
def test_a_module_keeps_its_statement_with_the_same_state_and_withdraws_it_with_another(form: str) -> None:
    module, state = stated(form=form), {k: v.clone() for k, v in stated(form=form).state_dict().items()}
    module.load_state_dict(state)
    assert module.statement.covered
    around = torch.nn.Sequential(module)
    around.load_state_dict({f"0.{name}": tensor for name, tensor in state.items()})
    assert module.statement.covered
    name = next(n for n in reversed(state) if state[n].is_floating_point() and n not in module.exact)
    state[name] = state[name] + 0.5
    around.load_state_dict({f"0.{name}": tensor for name, tensor in state.items()})
    assert not module.statement.covered and f"other numbers (`{name}`)" in module.statement.why


@pytest.mark.parametrize("form", FORMS)
def test_copies_and_files_keep_the_statement(form: str) -> None:
    module = stated(form=form)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):  # noqa: S301
        assert other.statement == module.statement and other.statement.covered
        x = torch.tensor(points("axis", "float32")[:50])
        assert torch.equal(other(x), module(x))
        with torch.no_grad():
            next(tensor for tensor in other.state_dict().values() if tensor.is_floating_point()).add_(1.0)
        assert not other.statement.covered and module.statement.covered
        assert not copy.deepcopy(other).statement.covered


def test_a_trained_module_withdraws_its_statement() -> None:
    module = stated(trainable=True)
    x = torch.tensor(points("axis", "float32"))
    module(x).sum().backward()
    assert module.statement.covered
    torch.optim.SGD(module.parameters(), lr=1e-3).step()
    assert not module.statement.covered and "numbers were changed" in module.statement.why


@pytest.mark.parametrize("form", FORMS)
def test_bfloat16_layers_leave_in_float32_with_their_numbers_unchanged(form: str) -> None:
    layer = compiled("regions", "bfloat16")
    module = layer.to_multihead_attention() if form == "mha" else layer.to_torch(form=form)
    x = torch.tensor(points("regions", "bfloat16"))
    assert module(x).dtype == torch.float32 == module.dtype
    if form == "fast":
        stored = layer.weights.groups[0].clusters[0].values.astype(np.float32).ravel()
        assert np.array_equal(module.group_0_values.numpy().ravel()[: len(stored)], stored)
    if form == "literal":
        trainable = layer.to_torch(form="fast", trainable=True)
        assert {p.dtype for p in trainable.parameters()} == {torch.float32}


@pytest.mark.parametrize("form", FORMS)
def test_modules_do_not_round_x_before_they_centre_it(form: str) -> None:
    layer = ma.compile("sin(7*(x - 1000))", ma.Box(x=(1000, 1001.1)), error=1e-4, dtype="float32")
    module = layer.to_multihead_attention() if form == "mha" else layer.to_torch(form=form)
    x = np.random.default_rng(0).uniform(1000, 1001.1, size=(500, 1))  # float32 would round these by 3e-5
    with torch.no_grad():
        y = module(torch.tensor(x)).double().numpy()
    assert layer.bound is not None and np.abs(y - np.sin(7 * (x[:, 0] - 1000))).max() <= layer.bound
