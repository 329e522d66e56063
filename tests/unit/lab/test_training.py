"""Stacked training: every member of a stack is the model it would be alone."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from maxaffine.lab import noised_images, stacked  # noqa: E402
from maxaffine.lab.training import Trainer, Training, matrix_products  # noqa: E402

SHAPE = stacked.Shape(tokens=4, token_size=6, hidden=8, width=5, classes=3)
LEVELS = np.array([0.0, 0.2, 0.5])


def tokens_and_labels(count: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    generator = np.random.default_rng(7)
    tokens = torch.from_numpy(generator.random((count, 4, 6), dtype=np.float32))
    return tokens, torch.from_numpy(generator.integers(0, 3, count))


def oriented(name: str, weight: torch.Tensor) -> torch.Tensor:
    """A stored weight as torch.nn would store it: W_1 is kept transposed."""
    return weight.T if name == "hidden" else weight


class Alone(torch.nn.Module):
    """One model written in the usual way, with modules of torch.nn."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        super().__init__()
        self.query, self.key, self.value = (torch.nn.Linear(6, 5, bias=False) for _ in range(3))
        self.output = torch.nn.Linear(5, 5, bias=False)
        self.hidden, self.classes = torch.nn.Linear(20, 8), torch.nn.Linear(8, 3)
        with torch.no_grad():
            for name in ("query", "key", "value", "output", "hidden", "classes"):
                getattr(self, name).weight.copy_(oriented(name, torch.from_numpy(weights[name])))
            for name in ("hidden", "classes"):
                getattr(self, name).bias.copy_(torch.from_numpy(weights[f"{name}_bias"]))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        q, k, v = self.query(inputs), self.key(inputs), self.value(inputs)
        attention = torch.softmax(q @ k.transpose(1, 2) / 5**0.5, dim=-1)
        return self.classes(torch.relu(self.hidden(self.output(attention @ v).flatten(1))))


def trained_stack(decay: float = 0.0, levels: np.ndarray = LEVELS, epochs: int = 3) -> stacked.Weights:
    tokens, labels = tokens_and_labels()
    weights = stacked.stack(stacked.initial_weights(SHAPE, 0), len(levels), "cpu")
    noise = noised_images.Noise(tokens, 0)
    feed = noised_images.noised(tokens, labels, noise.tensor, levels, None)
    trainer = Trainer(weights, stacked.objective(weights, feed), len(tokens), 0, Training(epochs, 8, 1e-2, decay))
    for epoch in range(epochs):
        trainer.epoch(epoch)
    return weights


def test_a_stack_has_the_gradients_of_a_module_written_in_the_usual_way() -> None:
    tokens, labels = tokens_and_labels()
    start = stacked.initial_weights(SHAPE, 3)
    weights = stacked.stack(start, len(LEVELS), "cpu")
    for tensor in weights.values():
        tensor.requires_grad_(True)
    noise = noised_images.Noise(tokens, 1).tensor
    feed = noised_images.noised(tokens, labels, noise, LEVELS, None)
    stacked.objective(weights, feed)(torch.arange(40)).sum().backward()
    for level, sigma in enumerate(LEVELS):
        alone = Alone(start)
        torch.nn.functional.cross_entropy(alone(tokens + float(sigma) * noise), labels).backward()
        for name in ("query", "key", "value", "output", "hidden", "classes"):
            np.testing.assert_allclose(
                oriented(name, weights[name].grad[level]), getattr(alone, name).weight.grad, rtol=1e-4, atol=1e-7
            )
        np.testing.assert_allclose(weights["hidden_bias"].grad[level], alone.hidden.bias.grad, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_training_a_stack_is_training_its_members_one_by_one_with_adam(decay: float) -> None:
    together = trained_stack(decay)
    tokens, labels = tokens_and_labels()
    noise = noised_images.Noise(tokens, 0).tensor
    for level, sigma in enumerate(LEVELS):
        alone = Alone(stacked.initial_weights(SHAPE, 0))
        optimiser = torch.optim.AdamW(alone.parameters(), lr=1e-2, weight_decay=decay)
        for epoch in range(3):
            order = np.random.default_rng([0, 1, epoch]).permutation(40).reshape(5, 8)
            for index in order:
                optimiser.zero_grad()
                inputs = tokens[index] + float(sigma) * noise[index]
                torch.nn.functional.cross_entropy(alone(inputs), labels[index]).backward()
                optimiser.step()
        for name in ("query", "key", "value", "output", "hidden", "classes"):
            np.testing.assert_allclose(
                oriented(name, together[name][level].detach()),
                getattr(alone, name).weight.detach(),
                rtol=1e-4,
                atol=2e-5,
                err_msg=name,
            )


def test_levels_of_a_stack_do_not_see_each_other() -> None:
    together, alone = trained_stack(), trained_stack(levels=LEVELS[1:2])
    for name in SHAPE.weights:
        np.testing.assert_allclose(together[name][1].detach(), alone[name][0].detach(), rtol=1e-5, atol=1e-6)


def test_the_same_seed_gives_the_same_bits() -> None:
    first, second = trained_stack(), trained_stack()
    assert all(torch.equal(first[name], second[name]) for name in SHAPE.weights)


def test_only_the_named_weights_are_trained() -> None:
    tokens, labels = tokens_and_labels()
    weights = stacked.stack(stacked.initial_weights(SHAPE, 0), 2, "cpu")
    before = {name: tensor.clone() for name, tensor in weights.items()}
    feed = noised_images.clean(tokens, labels, 2, None)
    Trainer(weights, stacked.objective(weights, feed), 40, 0, Training(1, 8, 1e-2), ("query", "key")).epoch(0)
    changed = {name for name in SHAPE.weights if not torch.equal(before[name], weights[name])}
    assert changed == {"query", "key"}


def test_measures_agree_with_their_definitions() -> None:
    tokens, labels = tokens_and_labels()
    weights = trained_stack()
    noise = noised_images.Noise(tokens, 0).tensor
    found = stacked.measure(weights, noised_images.noised(tokens, labels, noise, LEVELS, None), 40, chunk=7)
    for level, sigma in enumerate(LEVELS):
        inputs = (tokens + float(sigma) * noise).numpy().astype(np.float64)
        q, k = (inputs @ weights[name][level].detach().numpy().astype(np.float64).T for name in ("query", "key"))
        logits = q @ k.transpose(0, 2, 1) / np.sqrt(5)
        attention = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
        assert found["entropy"][level] == pytest.approx(-(attention * np.log(attention)).sum(axis=2).mean(), rel=1e-5)
        assert found["logit_std"][level] == pytest.approx(np.sqrt(logits.var(axis=2).mean()), rel=1e-5)
        assert found["logit_std_total"][level] == pytest.approx(logits.std(), rel=1e-5)


def test_norms_agree_with_numpy() -> None:
    weights = trained_stack()
    found = stacked.norms(weights)
    query, key = (weights[name][2].detach().double().numpy() for name in ("query", "key"))
    assert found["query_frobenius"][2] == pytest.approx(np.sqrt((query**2).sum()))
    assert found["key_spectral"][2] == pytest.approx(np.linalg.svd(key)[1][0])
    assert found["product_frobenius"][2] == pytest.approx(np.sqrt(((key.T @ query) ** 2).sum()))


def test_rescaled_inputs_have_the_energy_of_clean_ones() -> None:
    generator = np.random.default_rng(0)
    tokens = torch.from_numpy(generator.random((2000, 4, 6), dtype=np.float32))
    images = noised_images.Images(tokens, torch.zeros(2000, dtype=torch.int64), tokens, torch.zeros(2000, dtype=torch.int64))
    energy = images.energy_per_number
    assert energy == pytest.approx(float((tokens.double() ** 2).mean()))
    scale = noised_images.scales(LEVELS, energy)
    assert scale[2] == pytest.approx(1 / np.sqrt(1 + 0.25 * 24 / (24 * energy)))
    noise = noised_images.Noise(tokens, 5).tensor
    inputs, _ = noised_images.noised(tokens, images.train_labels, noise, LEVELS, scale)(torch.arange(2000))
    np.testing.assert_allclose((inputs.double() ** 2).mean(dim=(1, 2, 3)), energy, rtol=0.02)


def test_flips_have_their_ratio_are_uniform_and_nested() -> None:
    labels = np.random.default_rng(0).integers(0, 10, 50_000)
    ratios = np.array([0.0, 0.3, 0.72])
    noisy = noised_images.flipped(labels, ratios, seed=1)
    wrong = noisy != labels
    np.testing.assert_allclose(wrong.mean(axis=1), ratios, atol=0.01)
    assert not wrong[0].any()
    assert (wrong[1] <= wrong[2]).all() and (noisy[2][wrong[1]] == noisy[1][wrong[1]]).all()
    shifts = np.bincount((noisy[2] - labels)[wrong[2]] % 10, minlength=10)
    assert shifts[0] == 0 and shifts[1:].min() > 0.93 * shifts[1:].mean()


def test_patches_are_cut_in_reading_order() -> None:
    image = torch.arange(4 * 4 * 2).view(1, 4, 4, 2)
    cut = noised_images.patches(image, 2)
    assert cut.shape == (1, 4, 8)
    assert torch.equal(cut[0, 1], image[0, 0:2, 2:4].reshape(-1))
    assert torch.equal(cut[0, 2], image[0, 2:4, 0:2].reshape(-1))


def test_standardised_pixels_have_mean_zero_and_variance_one_in_training_and_use_its_statistics_in_the_test() -> None:
    generator = np.random.default_rng(0)
    train, test = (generator.integers(0, high, (50, 8, 8, 3), dtype=np.uint8) for high in (250, 100))
    labels = np.zeros(50, dtype=np.uint8)
    images = noised_images.prepare("cifar10", (train, labels), (test, labels), True, "cpu")
    assert float(images.train.mean()) == pytest.approx(0, abs=1e-5) and float(images.train.std()) == pytest.approx(1, abs=1e-3)
    shift, scale = train.mean(axis=(0, 1, 2)) / 255, train.std(axis=(0, 1, 2)) / 255
    expected = noised_images.patches(torch.from_numpy((test / 255 - shift) / scale), 4)
    np.testing.assert_allclose(images.test, expected, rtol=1e-4, atol=1e-5)


def test_noise_belongs_to_the_seed_and_the_epoch() -> None:
    tokens, _ = tokens_and_labels()
    noise = noised_images.Noise(tokens, 2)
    first = noise.tensor.clone()
    noise.redraw(1)
    assert not torch.equal(first, noise.tensor)
    noise.redraw(0)
    assert torch.equal(first, noise.tensor)


def test_the_precision_of_products_is_put_back() -> None:
    before = torch.get_float32_matmul_precision()
    with matrix_products(True):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before
