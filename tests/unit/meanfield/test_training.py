"""Simulation: data, gradients, determinism, resuming bit for bit, and both backends."""

import importlib.util
import math
from dataclasses import replace

import numpy as np
import pytest

from maxaffine import meanfield as mf
from maxaffine.core.errors import BadInput
from maxaffine.meanfield.data import loss_and_gradient, losses, sample, stream
from maxaffine.meanfield.experiment import compare, gradient_noise, paper_settings, run_seeds, success_grid

PROBLEM = mf.Problem(12, 6, 0.6, 0.1)
BASE = mf.Settings(
    PROBLEM, beta=1.0, n=60, step=0.05, steps=24, starts=(mf.Overlaps(0.3, 0.1), "uniform"), seed=3, every=5, test=200
)
FIELDS = ("steps", "overlaps", "train", "test", "test_error")


def same(a, b):
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in FIELDS)


def test_the_data_have_the_law_of_the_task():
    data = sample(mf.Problem(10, 4, 0.5, 0.2), 40_000, 0)
    rows = np.arange(40_000)
    secret = data.tokens[rows, data.secret]
    c = math.sqrt(0.75 * 10)
    assert secret.mean(axis=0) == pytest.approx([c] + [0] * 9, abs=0.02)
    assert secret.std(axis=0) == pytest.approx([0.5] * 10, abs=0.01)
    assert np.bincount(data.secret, minlength=4) / 40_000 == pytest.approx([0.25] * 4, abs=0.01)
    assert (data.y - secret[:, 1]).std() == pytest.approx(0.2, abs=0.005)
    other = data.tokens[rows, (data.secret + 1) % 4]
    assert other.std() == pytest.approx(1, abs=0.01)
    assert abs(other.mean()) < 0.01


@pytest.mark.parametrize("link", ["linear", "quadratic", "relu"])
def test_the_empirical_gradient_equals_finite_differences(link):
    data = sample(PROBLEM, 50, 1, link)
    rng = np.random.default_rng(0)
    u, v = rng.standard_normal((2, 2, 12))
    _, grad_u, grad_v = loss_and_gradient(data, u, v, 2.0, link)
    for which, gradient in ((0, grad_u), (1, grad_v)):
        direction = rng.standard_normal((2, 12))
        moved = [[u, v], [u, v]]
        for sign, pair in ((1, moved[0]), (-1, moved[1])):
            pair[which] = pair[which] + sign * 1e-6 * direction
        up, down = (losses(data, *pair, 2.0, link).mean(axis=1) for pair in moved)
        assert (up - down) / 2e-6 == pytest.approx((gradient * direction).sum(axis=1), rel=2e-6, abs=1e-7)


def test_a_seed_fixes_everything():
    assert same(mf.train(BASE), mf.train(BASE))
    assert not same(mf.train(BASE), mf.train(replace(BASE, seed=4)))


@pytest.mark.parametrize("method", ["gd", "sgd"])
def test_stopping_and_resuming_equals_one_run_bit_for_bit(method, tmp_path):
    settings = replace(BASE, method=method)
    whole = mf.train(settings)
    path = tmp_path / "run.npz"
    for stop in (0, 7, 8, 15):
        mf.train(settings, state=path, stop_at=stop, save_every=3)
    assert same(mf.train(settings, state=path), whole)
    assert same(mf.train(settings, state=path), whole)  # a finished run only reads its state
    assert [file.name for file in tmp_path.iterdir()] == ["run.npz"]


def test_an_interrupt_leaves_a_state_that_can_be_resumed(tmp_path):
    path = tmp_path / "run.npz"

    def interrupt(stage, done, total):
        if done == 11:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mf.train(BASE, state=path, save_every=2, progress=interrupt)
    assert [file.name for file in tmp_path.iterdir()] == ["run.npz"]
    assert same(mf.train(BASE, state=path), mf.train(BASE))


def test_the_state_holds_no_pickle_and_another_runs_state_is_refused(tmp_path):
    path = tmp_path / "run.npz"
    mf.train(BASE, state=path)
    with np.load(path, allow_pickle=False) as file:
        assert set(file.files) == {"settings", "k", "u", "v", *FIELDS}
    with pytest.raises(BadInput, match=r"other settings .*step"):
        mf.train(replace(BASE, step=0.01), state=path)
    path.write_bytes(b"not a state")
    with pytest.raises(BadInput, match="not a saved run"):
        mf.train(BASE, state=path)
    np.savez(path, settings=np.array([{}], dtype=object))
    with pytest.raises(BadInput, match="not a saved run"):
        mf.train(BASE, state=path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "adam"}, "`method`"),
        ({"n": 0}, "`n`"),
        ({"test": 1}, "`test`"),
        ({"step": -1}, "`step`"),
        ({"steps": 1.5}, "`steps`"),
        ({"starts": ()}, "`starts`"),
        ({"starts": ("here",)}, "`starts`"),
        ({"starts": (mf.Overlaps(1, 1, 1),)}, "infeasible"),
        ({"link": "sign"}, "`link`"),
        ({"seed": -1}, "`seed`"),
        ({"problem": mf.Problem(12, 6.5, 0.6)}, "`L`"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, words):
    with pytest.raises(BadInput) as caught:
        replace(BASE, **changes)
    assert words in str(caught.value)


def test_the_overlaps_that_are_measured_are_those_of_the_start():
    record = mf.train(replace(BASE, steps=0))
    assert record.overlaps[0, 0] == pytest.approx([0.3, 0.1, 0, 0, 0], abs=1e-15)
    assert record.last(0).mu == pytest.approx(0.3)


def test_the_experiment_compares_test_risk_with_the_exact_one():
    settings = paper_settings(0.5, n=100, steps=20, every=10, test=2000)
    entries = compare(settings, run_seeds(settings, [0, 1]), list("abcde"))
    assert [entry["start"] for entry in entries] == list("abcde")
    for entry in entries:
        assert entry["steps"] == [0, 10, 20]
        assert entry["z_max"] < 4.5
        assert set(entry["exact"]) == {"low", "median", "high"}
    # at k = 0 from mu0 = 0.3 the exact risk at gamma = 1/sqrt(2) is 1.097 while the paper says .511
    start = paper_settings(math.sqrt(0.5), n=20, steps=0, test=100)
    third = compare(start, run_seeds(start, [0]))[3]
    assert third["exact"]["median"][0] == pytest.approx(1.097, abs=1e-3)
    assert third["paper"]["median"][0] == pytest.approx(0.511, abs=1e-3)


def test_the_success_grid_counts_runs_that_learned():
    grid = success_grid(0.5, [0.0, 0.6], [50, 400], [0], steps=60)
    assert np.shape(grid["learned"]) == (2, 2)
    assert grid["seeds"] == 1


def test_the_gradient_noise_at_small_overlap_exceeds_a_thousand_samples():
    problem = mf.Problem(100, 20, math.sqrt(0.5), 0.1)
    values = [gradient_noise(problem, 1.0, mu, samples=300) for mu in (0.0, 0.1, 0.2)]
    assert values == pytest.approx([9e4, 7e3, 2.3e3], rel=0.4)


def test_without_torch_the_torch_backend_names_the_extra():
    if importlib.util.find_spec("torch") is not None:
        pytest.skip("torch is installed here")
    with pytest.raises(BadInput, match=r"maxaffine\[torch\]"):
        run_seeds(BASE, [0], "torch")
    with pytest.raises(BadInput, match="`backend`"):
        run_seeds(BASE, [0], "jax")


def test_torch_trains_the_same_layers_and_resumes_bit_for_bit(tmp_path):
    pytest.importorskip("torch", reason="needs the extra maxaffine[torch]")
    from maxaffine.meanfield.torch_training import train_seeds

    for changes in ({}, {"method": "sgd"}, {"link": "relu"}, {"link": "quadratic", "step": 0.001}):
        settings = replace(BASE, **changes)
        records = train_seeds(settings, [3, 4], device="cpu", block=25)
        for seed, record in zip((3, 4), records, strict=True):
            reference = mf.train(replace(settings, seed=seed))
            for name in FIELDS:
                assert getattr(record, name) == pytest.approx(getattr(reference, name), abs=1e-12)
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.npz"
        train_seeds(settings, [3, 4], device="cpu", block=25, state=path, stop_at=11)
        again = train_seeds(settings, [3, 4], device="cpu", block=25, state=path)
        assert all(same(a, b) for a, b in zip(records, again, strict=True))


def test_streams_of_different_purposes_differ():
    first = [stream(0, purpose, index).random() for purpose in ("train", "test", "init", "batch") for index in (0, 1)]
    assert len(set(first)) == 8
