"""Layers on PyTorch tensors: the same numbers as the other runtimes, gradients in everything, sentences for what cannot be."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.errors import BadInput, Refused
from maxaffine.layer.layer import Layer
from maxaffine.runtime import chooser

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parent))

import layers_for_tensors as samples  # noqa: E402

from maxaffine.runtime import torch_factorised  # noqa: E402
from maxaffine.runtime.torch_runtime import TorchLayer, torch_layer  # noqa: E402

ALL = samples.grouped_layers() | samples.other_layers() | samples.lookups()


def _points(layer, count=60):
    x = np.random.default_rng(3).uniform(layer.low, layer.high, size=(count, len(layer.low)))
    return torch.tensor(x)


@pytest.mark.parametrize("name", ALL)
def test_tensors_give_what_arrays_give(name):
    layer = ALL[name]
    x = _points(layer)
    expected = torch.tensor(np.asarray(chooser.evaluate(layer, x.numpy()), dtype=np.float64))
    slack = 1e-3 if layer.dtype == "float32" else 1e-12  # a float32 layer rounds logits of some hundred
    for runtime in ("factorised", "native"):
        y = torch_layer(layer, x.device, x.dtype, runtime)(x)
        assert y.dtype == torch.float64 and y.shape == expected.shape
        assert float((y - expected).abs().max()) <= slack * float(expected.abs().max())
    narrow = torch_layer(layer, x.device, torch.float32)(x.float())
    assert narrow.dtype == torch.float32
    steep = 1e-3 if isinstance(layer, Layer) else 1e-5
    assert float((narrow - expected).abs().max()) <= max(steep, slack) * float(expected.abs().max())


@pytest.mark.parametrize("name", [n for n in ALL if ALL[n].dtype == "float64"])
def test_gradients_agree_with_finite_differences_in_x_keys_and_values(name):
    layer = ALL[name]
    made = TorchLayer(layer, dtype=torch.float64)
    inner = layer.low + (layer.high - layer.low) * np.random.default_rng(0).uniform(0.1, 0.9, size=(3, len(layer.low)))
    x = torch.tensor(inner, requires_grad=True)
    assert torch.autograd.gradcheck(made, (x,), eps=1e-6, atol=1e-5, rtol=1e-4)
    names = [n for n in made.tensors if not n.endswith(torch_factorised.COORDINATES)]
    leaves = [made.tensors[n].clone().requires_grad_() for n in names]

    def through(*values):
        tensors = made.tensors | dict(zip(names, values, strict=True))
        return torch_factorised.evaluate(made.structure, tensors, x.detach())

    assert torch.autograd.gradcheck(through, leaves, eps=1e-6, atol=1e-4, rtol=1e-4, fast_mode=True)


def _dense(layer, tensors, x):
    """The literal softmax over all keys of a layer with one listed group, written down independently."""
    z = (x - tensors["coordinates.centre"]) @ tensors["group.0.matrix"].T
    logits = torch.zeros((len(x), 1), dtype=x.dtype)
    for e in range(z.shape[1]):
        one = z[:, e, None] * tensors[f"group.0.{e}.slopes"] + tensors[f"group.0.{e}.offsets"]
        logits = (logits[:, :, None] + one[:, None, :]).reshape(len(x), -1)
    values = tensors["group.0.values"]
    return torch.softmax(logits, dim=1) @ values.reshape(-1, values.shape[-1])


@pytest.mark.parametrize("name", ["listed values of two directions", "two outputs", "three coupled directions"])
def test_gradients_equal_those_of_the_dense_softmax_to_ten_digits(name):
    layer = ALL[name]
    found = []
    for dense in (False, True):
        made = TorchLayer(layer, dtype=torch.float64)
        x = _points(layer, 50).requires_grad_()
        for tensor in made.tensors.values():
            tensor.requires_grad_()
        y = _dense(layer, made.tensors, x) if dense else made(x)[:, :, 0]
        (y * torch.linspace(0.5, 1.5, y.numel(), dtype=torch.float64).reshape(y.shape)).sum().backward()
        names = [n for n in made.tensors if made.tensors[n].grad is not None and not n.startswith("box")]
        found.append({"x": x.grad} | {n: made.tensors[n].grad for n in names})
    assert found[0].keys() == found[1].keys() and "group.0.values" in found[0] and "group.0.0.slopes" in found[0]
    for key, grad in found[0].items():
        assert float((grad - found[1][key]).abs().max()) <= 1e-10 * float(found[1][key].abs().max()), key


def test_second_derivatives_pass_through():
    made = TorchLayer(ALL["listed values of two directions"], dtype=torch.float64)
    x = (_points(made.layer, 3) * 0.9).requires_grad_()
    assert torch.autograd.gradgradcheck(made, (x,), eps=1e-6, atol=1e-5, rtol=1e-4)


def test_a_value_can_be_learned():
    made = TorchLayer(ALL["one variable, three outputs"], dtype=torch.float64)
    values = made.tensors["group.0.values"].requires_grad_()
    x = _points(made.layer, 200)
    target = torch.sin(2.0 * x)
    optimiser = torch.optim.Adam([values], lr=0.1)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        loss = ((made(x)[:, :, 0] - target) ** 2).mean()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.05 * losses[0]


@pytest.fixture(scope="module")
def compiled():
    return ma.compile("sin(x) + y**2", ma.Box(x=(-math.pi, math.pi), y=(0.0, 1.0)), error=1e-6)


def test_a_compiled_layer_answers_tensors_with_tensors(compiled):
    x = torch.tensor([[0.3, 0.5], [-1.0, 0.25]], dtype=torch.float64)
    y = compiled(x)
    assert isinstance(y, torch.Tensor) and y.shape == (2,) and y.dtype == torch.float64
    assert np.abs(y.numpy() - compiled(x.numpy())).max() <= 1e-9
    assert compiled(x[0]).shape == () and compiled(x.float()).dtype == torch.float32
    z = x.clone().requires_grad_()
    compiled(z).sum().backward()
    assert np.allclose(z.grad.numpy(), np.stack([np.cos(x[:, 0].numpy()), 2 * x[:, 1].numpy()], axis=1), atol=1e-4)


def test_tensors_follow_the_rules_of_queries(compiled):
    outside = torch.tensor([[0.0, 0.5], [0.0, 1.5]])
    with pytest.raises(BadInput, match=r"query 1 has y = 1\.5, outside \[0, 1\]"):
        compiled(outside)
    edge = compiled(torch.tensor([[0.0, 0.5], [0.0, 1.0]]))
    assert torch.equal(compiled(outside, outside="clamp"), edge)
    with pytest.raises(BadInput, match="finite"):
        compiled(torch.tensor([[float("nan"), 0.5]]))
    with pytest.raises(BadInput, match=r"shape \(B, 2\) or \(2,\), and \(1, 3\) came"):
        compiled(torch.zeros((1, 3)))
    with pytest.raises(BadInput, match=r"bfloat16 or float16, and torch\.int64 came"):
        compiled(torch.zeros((1, 2), dtype=torch.int64))
    just_beyond = torch.tensor([[math.pi, 1.0]])  # float32(pi) > pi
    assert abs(float(compiled(just_beyond)) - 1.0) < 1e-5


def test_what_cannot_run_is_refused_with_a_sentence():
    layer = ALL["listed values of two directions"]
    with pytest.raises(BadInput, match=r"`dtype` \(=torch.float16\)"):
        TorchLayer(layer, dtype=torch.float16)
    with pytest.raises(BadInput, match=r"`runtime` \(='dense'\) must be"):
        TorchLayer(layer, runtime="dense")
    with pytest.raises(Refused, match=r"\(='collapsed'\) cannot run this layer here: Triton kernels need a CUDA device"):
        TorchLayer(layer, runtime="collapsed")
    with pytest.raises(BadInput, match=r"queries must have shape \(B, 2\)"):
        TorchLayer(layer)(torch.zeros(3))
    with pytest.raises(BadInput, match=r"queries must be torch\.float32 on cpu"):
        TorchLayer(layer)(torch.zeros((3, 2), dtype=torch.float64))


def test_a_layer_is_prepared_once():
    layer = ALL["two outputs"]
    device = torch.device("cpu")
    assert torch_layer(layer, device, torch.float64) is torch_layer(layer, device, torch.float64)
    assert torch_layer(layer, device, torch.float64) is not torch_layer(layer, device, torch.float32)
