"""The dictionary task: the best inverse temperature is 1 / sigma^2, and training finds it."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from maxaffine.lab import dictionary as task  # noqa: E402
from maxaffine.lab.training import Trainer, Training  # noqa: E402
from maxaffine.report.diagnosis import softmax  # noqa: E402


def attention(book: np.ndarray, noised: np.ndarray, inverse_temperature: float) -> np.ndarray:
    """The head on the dictionary's tokens, with W_K^T W_Q = R."""
    return softmax(inverse_temperature * np.pad(noised, ((0, 0), (0, 1)), constant_values=1.0) @ task.tokens_of(book).T)


@pytest.mark.parametrize(("count", "dimension", "sigma"), [(64, 2, 0.1), (64, 2, 0.4), (40, 6, 0.6), (40, 6, 0.9)])
def test_no_inverse_temperature_errs_less_than_one_over_sigma_squared(count: int, dimension: int, sigma: float) -> None:
    book = task.dictionary(count, dimension, seed=0)
    generator = np.random.default_rng(1)
    values = generator.standard_normal((count, 4))
    which = generator.integers(0, count, 100_000)
    noised = book[which] + sigma * generator.standard_normal((len(which), dimension))
    squares, logs = [], []
    for ratio in (0.7, 0.85, 1.0, 1.18, 1.43):
        weights = attention(book, noised, ratio / sigma**2)
        squares.append(((weights @ values - values[which]) ** 2).sum(axis=1).mean())
        logs.append(-np.log(weights[np.arange(len(which)), which]).mean())
    assert np.argmin(squares) == 2 and np.argmin(logs) == 2


def test_attention_at_the_best_temperature_is_the_posterior() -> None:
    book = task.dictionary(8, 3, seed=2)
    noised = np.random.default_rng(0).standard_normal((5, 3))
    densities = np.exp(-((noised[:, None] - book) ** 2).sum(axis=2) / (2 * 0.5**2))
    expected = densities / densities.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(attention(book, noised, 1 / 0.5**2), expected, rtol=1e-12)


def test_the_effective_inverse_temperature_of_the_best_head_is_one_over_sigma_squared() -> None:
    book = task.dictionary(16, 2, seed=0)
    sigmas = np.array([0.3, 0.6])
    samples = task.Task(book, sigmas, 4000, 0, "cpu")
    scale = torch.from_numpy(1 / sigmas).float().view(2, 1, 1)
    weights = {"query": torch.eye(3).expand(2, 3, 3) * scale, "key": torch.eye(3).expand(2, 3, 3) * scale}
    found = task.measure(weights, samples)
    np.testing.assert_allclose(found["inverse_temperature"], 1 / sigmas**2, rtol=1e-4)
    np.testing.assert_allclose(found["fit"], 1, rtol=1e-5)
    np.testing.assert_allclose(found["loss"], found["least_loss"], rtol=1e-4)


def test_training_finds_the_known_answer() -> None:
    book = task.dictionary(16, 2, seed=0)
    sigmas = np.array([0.2, 0.5])
    samples = task.Task(book, sigmas, 4096, 0, "cpu")
    weights = task.start(book, 8, 2, 0, "cpu")
    trainer = Trainer(weights, samples.objective(weights), 4096, 0, Training(40, 256, 2e-2))
    for epoch in range(40):
        samples.draw(epoch)
        trainer.epoch(epoch)
    found = task.measure(weights, samples)
    np.testing.assert_allclose(found["inverse_temperature"], 1 / sigmas**2, rtol=0.1)
    assert (found["fit"] > 0.98).all()
    assert (found["loss"] < 1.02 * found["least_loss"]).all()
