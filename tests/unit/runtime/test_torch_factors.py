"""Sums of products over blocks on tensors: the answers of NumPy's runtime, with gradients in x and in every stored number."""

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1]))

from separated_layers import by_definition, made  # noqa: E402

from maxaffine.runtime import torch_factorised, torch_structure  # noqa: E402

CASES = {
    "blocks and complex": {},
    "real blocks": {"complex_values": False},
    "complex directions": {"sizes": (1, 1)},
    "two groups": {"sizes": (2, 1), "groups": 2},
    "seventeen directions": {"sizes": (1,) * 17, "keys": 5, "rank": 2},
    "a hundred directions": {"sizes": (1,) * 100, "keys": 7, "rank": 3, "turned": False},
    "many directions and blocks": {"sizes": (1, 1, 1, 2) * 6, "keys": 4, "rank": 2},
    "many real directions": {"sizes": (1,) * 25, "keys": 5, "rank": 2, "complex_values": False},
}


def held(name: str):
    layer = made(**CASES[name])
    x = np.random.default_rng(3).uniform(layer.low, layer.high, (50, layer.dimension))
    return layer, x, torch_structure.structure_of(layer), torch_factorised.tensors_of(layer)


@pytest.mark.parametrize("name", CASES)
def test_tensors_say_what_the_definition_says(name: str) -> None:
    layer, x, structure, tensors = held(name)
    found = torch_factorised.in_chunks(structure, tensors, torch.from_numpy(x))
    assert found.shape == (50, 1, 1) and found.dtype == torch.float64
    assert np.abs(found[:, 0, 0].numpy() - by_definition(layer, x)).max() < 1e-12


@pytest.mark.parametrize("name", CASES)
def test_gradients_in_x_are_those_of_the_definition(name: str) -> None:
    layer, x, structure, tensors = held(name)
    at = torch.from_numpy(x[:3]).requires_grad_()
    torch_factorised.evaluate(structure, tensors, at).sum().backward()
    step = 1e-6
    for i in (0, layer.dimension - 1):
        moved = np.zeros_like(x[:3])
        moved[:, i] = step
        slope = (by_definition(layer, x[:3] + moved) - by_definition(layer, x[:3] - moved)) / (2 * step)
        assert np.abs(at.grad[:, i].numpy() - slope).max() < 1e-7


@pytest.mark.parametrize("name", ["blocks and complex", "seventeen directions"])
def test_every_stored_number_has_its_gradient(name: str) -> None:
    _, x, structure, tensors = held(name)
    learnt = {key: one.clone().requires_grad_() for key, one in tensors.items() if "box" not in key}
    at = torch.from_numpy(x[:4])

    def value(**changed: object):
        return torch_factorised.evaluate(structure, {**tensors, **learnt, **changed}, at).square().sum()

    value().backward()
    for key, one in learnt.items():
        place = (0,) * one.ndim
        moved = torch.zeros_like(one)
        moved[place] = 1e-6
        with torch.no_grad():
            slope = (value(**{key: one + moved}) - value(**{key: one - moved})) / 2e-6
        assert abs(float(one.grad[place] - slope)) < 1e-6 * max(1.0, abs(float(slope))), key


def test_second_derivatives_pass_through_complex_products() -> None:
    _, x, structure, tensors = held("blocks and complex")
    at = torch.from_numpy(x[:1]).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda t: torch_factorised.evaluate(structure, tensors, t), (at,))


def test_bytes_per_query_grow_with_what_is_multiplied() -> None:
    _, _, structure, tensors = held("a hundred directions")
    assert torch_factorised.bytes_per_query(structure, tensors) >= 32 * (700 + 2 * 300)
