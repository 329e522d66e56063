"""Heads on the plane and heads with free keys: one form for what is trained and what is constructed."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from maxaffine.lab import free_keys, plane  # noqa: E402


def square_head(inverse_temperature: float, side: int = 4) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    scale = float(np.sqrt(inverse_temperature))
    weights = {
        "query": scale * torch.eye(5, 3).unsqueeze(0),
        "key": scale * torch.eye(5, 3).unsqueeze(0),
        "values": torch.ones((1, side * side)),
    }
    return weights, torch.from_numpy(plane.grid_tokens(side)).float()


def test_square_cells_have_the_inverse_temperature_that_was_put_in_however_they_are_rotated() -> None:
    points = torch.from_numpy(plane.test_points(21)).float()
    weights, tokens = square_head(7.0)
    turn = torch.eye(3)
    turn[:2, :2] = torch.tensor([[0.6, -0.8], [0.8, 0.6]])
    for query in (weights["query"], weights["query"] @ turn):
        found = plane.describe({**weights, "query": query}, tokens, points, torch.zeros(len(points)))
        assert found["inverse_temperature"][0] == pytest.approx(7.0, rel=1e-5)
    assert found["product_norm"][0] == pytest.approx(7 * np.sqrt(3), rel=1e-6)
    assert found["sup_error"][0] == pytest.approx(1.0, rel=1e-6)


def test_logits_are_those_of_the_definition() -> None:
    weights = plane.start(5, 16, [0, 1], "cpu")
    tokens = plane.grid_tokens(4)
    z = np.random.default_rng(0).uniform(-1, 1, (6, 2))
    found = plane.logits(weights, torch.from_numpy(tokens).float(), torch.from_numpy(z).float())
    for model in range(2):
        query = np.hstack([z, np.ones((6, 1))]) @ weights["query"][model].numpy().T
        expected = query @ (tokens @ weights["key"][model].numpy().T).T
        np.testing.assert_allclose(found[model], expected, rtol=1e-4, atol=1e-5)


def test_a_held_temperature_does_not_depend_on_the_size_of_the_weights() -> None:
    weights, tokens = square_head(3.0)
    larger = {**weights, "query": 10 * weights["query"]}
    points = torch.from_numpy(plane.test_points(9)).float()
    held = torch.tensor([2.0])
    first, second = (plane.logits(one, tokens, points, held) for one in (weights, larger))
    np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(first, 2.0 / 3.0 * plane.logits(weights, tokens, points), rtol=1e-5, atol=1e-6)


def test_no_values_err_less_than_those_of_least_squares() -> None:
    tokens = plane.grid_tokens(4)
    generator = np.random.default_rng(0)
    z = generator.uniform(-1, 1, (500, 2))
    best = plane.least_squares_values(tokens, z, plane.waves(z), 5.0)
    scores = 5.0 * (z @ tokens[:, :2].T + tokens[:, 2])
    attention = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    least = ((attention @ best - plane.waves(z)) ** 2).mean()
    for _ in range(50):
        other = best + 0.1 * generator.standard_normal(16)
        assert ((attention @ other - plane.waves(z)) ** 2).mean() > least


def test_descent_is_that_of_the_optimiser_alone_and_cools() -> None:
    target = torch.tensor([[3.0], [-1.0]])
    together, alone = torch.zeros((2, 1)), torch.zeros(1, requires_grad=True)
    method = plane.optimiser("sgd", [together], 0.1, 0.0)
    rates = []
    for _ in plane.descend([together], lambda _: (together - target).square().sum(dim=1), 20, method):
        rates.append(method.param_groups[0]["lr"])
    assert rates == [0.1] * 21
    reference = torch.optim.SGD([alone], lr=0.1)
    for _ in range(20):
        reference.zero_grad()
        ((alone - 3.0) ** 2).sum().backward()
        reference.step()
    assert float(together[0].detach()) == pytest.approx(float(alone.detach()), rel=1e-6)
    for _ in plane.descend([together], lambda _: (together - target).square().sum(dim=1), 20, method, cool=True):
        pass
    assert method.param_groups[0]["lr"] < 0.002


def test_moments_are_log_spaced_and_include_both_ends() -> None:
    found = plane.moments(1000, 30)
    assert found[:3] == [0, 1, 2] and found[-1] == 1000 and found == sorted(set(found))


@pytest.mark.parametrize("name", ["sin_plus_cos", "hartmann_3"])
def test_constructed_heads_are_those_of_the_compiler(name: str) -> None:
    from maxaffine.heads.lookup import theorems
    from maxaffine.heads.lookup.build import build_grid
    from maxaffine.heads.lookup.plan import GridPlan
    from maxaffine.runtime.softmax import dense

    f = free_keys.function(name)
    side = 4
    z = np.random.default_rng(3).uniform(-1, 1, (200, f.dimension))
    weights = free_keys.stack([free_keys.lookup(f, side), free_keys.spectral(f, side)], "cpu")
    found = free_keys.predict(weights, torch.from_numpy(z).expand(2, -1, -1)).numpy()
    layer = build_grid(GridPlan("E1", (side,) * f.dimension, theorems.RHO0, np.inf), f.target, "float64")
    box = f.target.box
    x = 0.5 * (box.low + box.high) + 0.5 * (box.high - box.low) * z
    expected = (np.asarray(dense(layer, x)).reshape(-1) - f.middle) / f.half
    np.testing.assert_allclose(found[0], expected, rtol=1e-8, atol=1e-9)
    if name == "sin_plus_cos":  # four tokens per direction are enough for a spectral head, and not for a lookup
        assert np.abs(found[1] - f(z)).max() < 0.1 < np.abs(found[0] - f(z)).max()


def test_the_form_of_a_head_does_not_depend_on_how_its_logits_are_written() -> None:
    generator = np.random.default_rng(0)
    slopes, offsets, values = generator.standard_normal((7, 2)), generator.standard_normal(7), generator.standard_normal(7)
    one, other = free_keys.head(slopes, offsets, values), free_keys.head(slopes + np.array([3.0, -1.0]), offsets + 5.0, values)
    for name in free_keys.NAMES:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-10, atol=1e-12)
    z = generator.uniform(-1, 1, (20, 2))
    scores = z @ slopes.T + offsets
    expected = np.exp(scores) @ values / np.exp(scores).sum(axis=1)
    np.testing.assert_allclose(
        free_keys.predict(free_keys.stack([one], "cpu"), torch.from_numpy(z)[None])[0], expected, rtol=1e-10
    )


def test_matching_distance_forgets_the_order_and_measures_the_shift() -> None:
    points = np.random.default_rng(0).uniform(-1, 1, (30, 3))
    shuffled = points[np.random.default_rng(1).permutation(30)]
    assert free_keys.matching_distance(points, shuffled) == 0
    assert free_keys.matching_distance(points, shuffled + np.array([0.001, 0, 0])) == pytest.approx(0.001)


def test_centres_of_attention_of_a_sharp_lookup_are_the_centres_of_its_cells() -> None:
    axis = (2 * np.arange(4) + 1) / 4 - 1
    sites = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    weights = free_keys.stack([free_keys.head(500 * sites, -250 * (sites**2).sum(axis=1), np.zeros(16))], "cpu")
    z = torch.from_numpy(plane.test_points(81))[None]
    where, live = free_keys.centres(weights, z)
    assert np.abs(where[0] - sites).max() < 0.03 and live[0] == 1.0
