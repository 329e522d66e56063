"""`stack.to_torch(form="kernel")`: a stack as one operator, inside compiled models and outside."""

import copy
import pickle

import pytest

import maxaffine as ma

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def stack() -> ma.Stack:
    made = ma.compile("x*y*exp(-z) + sqrt(x)", {"x": (1, 2), "y": (1, 3), "z": (0, 1)}, error=1e-4, layers="auto")
    assert isinstance(made, ma.Stack)
    return made


def points(count: int):  # type: ignore[no-untyped-def]
    low, wide = torch.tensor([1.0, 1.0, 0.0]).double(), torch.tensor([1.0, 2.0, 1.0]).double()
    u = torch.rand((count, 3), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return low + wide * (1.4 * u - 0.2)


def test_it_answers_as_tensors_do_within_its_statement(stack: ma.Stack) -> None:
    module, x = stack.to_torch(form="kernel"), points(200)
    for dtype in (torch.float64, torch.float32):
        y = module(x.to(dtype))
        assert y.dtype == dtype and torch.equal(y, stack(x.to(dtype), outside="clamp"))
        said = module.statement_for(dtype)
        inside = x.to(dtype).double().clamp(module.low, module.high).numpy()
        assert abs(y.double().numpy() - stack.target.present(stack.target.values(inside))).max() <= said.bound
        assert "nearest point" in said.outside and said.bound == stack.statement("tensors", str(dtype)[6:]).bound
    assert module(x[3]).shape == () and module.statement.bound == stack.statement("tensors").bound


def test_a_model_with_it_is_one_graph_with_the_same_gradients(stack: ma.Stack) -> None:
    module = stack.to_torch(form="kernel")
    torch.library.opcheck(torch.ops.maxaffine.layer.default, (points(5).requires_grad_(), module.key, 1))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Softplus(), module).double()
    h, found = torch.randn((9, 4), dtype=torch.float64), []
    for run in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
        model.zero_grad()
        run(h).square().sum().backward()
        found.append(model[0].weight.grad.clone())
    assert torch.allclose(*found, rtol=1e-12, atol=1e-12) and found[0].abs().max() > 0.1
    torch._dynamo.reset()


def test_its_state_is_its_fingerprint(stack: ma.Stack) -> None:
    module, other = stack.to_torch(form="kernel"), ma.compile("sin(x)", {"x": (-1, 1)}, error=1e-2).to_torch(form="kernel")
    for again in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):  # noqa: S301
        again.load_state_dict(module.state_dict())
        assert torch.equal(again(points(20)), module(points(20)))
    with pytest.raises(ma.MaxaffineError, match="another layer"):
        module.load_state_dict(other.state_dict())
    with pytest.raises(ma.MaxaffineError, match="no parameters"):
        stack.to_torch(trainable=True, form="kernel")
    with pytest.raises(ma.MaxaffineError, match='"literal" or "kernel"'):
        stack.to_torch(form="fast")
