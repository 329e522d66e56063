"""The Triton kernels, run by Triton's interpreter in a process of its own, against reference.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from maxaffine.runtime.gpu import compress, rounding

pytest.importorskip("torch")
pytest.importorskip("triton")

SCRIPT = Path(__file__).parent / "kernels_interpreted.py"


@pytest.fixture(scope="module")
def found():
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-W", "error", SCRIPT], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_every_kernel_stays_within_its_bound_of_the_definition(found):
    assert len(found["kernels"]) == 28
    for name, one in found["kernels"].items():
        slack = 4e-14 * max(one["size"], 1.0)  # of the definition itself, in float64
        assert one["apart"] <= one["bound"] + slack, name
        assert one["bound"] <= (5e-3 if one["runtime"] == "windowed" else 1e-5), name
        if name.endswith("float64"):
            assert one["bound"] <= 1e-10, name
            assert one["apart"] <= 1e-12, name


def test_lookups_run_windowed_and_spectral_layers_collapsed(found):
    for name, one in found["kernels"].items():
        assert one["runtime"] == ("windowed" if name[0].isdigit() else "collapsed"), name


def test_results_do_not_depend_on_the_batch(found):
    assert all(one["same in every batch"] for one in found["kernels"].values())
    assert all(one["empty"] == [0, *one["shape"][1:]] for one in found["kernels"].values())


def test_queries_outside_are_clamped_and_not_a_number_stays_so(found):
    assert all(one["clamped"] and one["nan"] for one in found["kernels"].values())


def test_gradients_of_kernels_are_those_of_the_softmax(found):
    for name, one in found["kernels"].items():
        assert one["gradient"] <= (1e-10 if name.endswith("float64") else 2e-5), name
        assert one.get("slopes", 0.0) <= (1e-10 if name.endswith("float64") else 5e-6), name
    assert any(one["gradient by kernel"] for one in found["kernels"].values())


def test_coefficients_in_the_code_and_in_memory_give_the_same_bits(found):
    assert found["memory"] and all(found["memory"].values())


def _emulated(core, z):
    """The kernels' float32 operations, each product and sum rounded once."""
    narrow = np.float32
    z = z.astype(narrow)
    c = core.astype(narrow)
    cut = rounding.split(core[:, None])
    t, before = z.copy(), np.ones_like(z)
    low, high = np.full_like(z, c[0]), np.zeros_like(z)
    for k in range(1, len(c)):
        if k < cut:
            low = (low.astype(np.float64) + t.astype(np.float64) * float(c[k])).astype(narrow)
        else:
            high = (high.astype(np.float64) + t.astype(np.float64) * float(c[k])).astype(narrow)
        t, before = (2.0 * z.astype(np.float64) * t - before).astype(narrow), t
    return low + high


@pytest.mark.parametrize("decay", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("count", [3, 9, 40])
def test_the_bound_of_a_series_holds_in_float32_and_is_of_the_right_size(count, decay):
    rng = np.random.default_rng(count)
    z = np.concatenate([np.cos(np.linspace(0, np.pi, 4001)), 1 - 2.0 ** -np.arange(24), rng.uniform(-1, 1, 4000)])
    z = z.astype(np.float32).astype(np.float64)
    worst = 0.0
    for signs in (np.ones(count), (-1.0) ** np.arange(count), rng.choice([-1.0, 1.0], size=count)):
        core = signs * np.exp(-decay * np.arange(count)) * rng.uniform(0.5, 1.0, size=count)
        exact = np.polynomial.chebyshev.chebval(z.astype(np.longdouble), core.astype(np.longdouble))
        _, _, lost = rounding.series(core[:, None], 2.0**-24)
        away = float(np.abs(_emulated(core, z) - exact).max())
        assert away <= lost[0]
        worst = max(worst, away / float(lost[0]))
    assert worst > 0.02  # a bound that nothing comes near says nothing


def test_fewest_products_keep_what_they_promise():
    rng = np.random.default_rng(0)
    decay = np.exp(-0.4 * np.arange(12))[:, None]
    cores = tuple(rng.normal(size=(12, 6)) * decay * 10.0 ** -np.arange(6) for _ in range(2))
    shorter, lost = compress.fewest_products(cores, 1e-5)
    assert 1 <= shorter[0].shape[1] < 6 and 0 < lost <= 1e-5
    z = rng.uniform(-1, 1, size=(2000, 2))
    at = [np.polynomial.chebyshev.chebval(z[:, e], core).T for e, core in enumerate(cores)]
    now = [np.polynomial.chebyshev.chebval(z[:, e], core).T for e, core in enumerate(shorter)]
    away = float(np.abs((at[0] * at[1]).sum(axis=1) - (now[0] * now[1]).sum(axis=1)).max())
    assert 0.05 * lost < away <= lost


def test_fewest_train_keeps_what_it_promises():
    rng = np.random.default_rng(1)
    first, last = rng.normal(size=(1, 5, 3)) * [1.0, 1e-2, 1e-7], rng.normal(size=(3, 5, 1))
    middle = rng.normal(size=(3, 6, 3)) * np.array([1.0, 1e-2, 1e-7])
    shorter, lost = compress.fewest_train((first, middle, last), 1e-4)
    assert shorter[1].shape[0] < 3 or shorter[1].shape[2] < 3
    z = rng.uniform(-1, 1, size=(1000, 3))

    def at(cores):
        state = np.ones((len(z), 1))
        for e, core in enumerate(cores):
            T = np.cos(np.multiply.outer(np.arccos(z[:, e]), np.arange(core.shape[1])))
            state = np.einsum("ba,bk,akc->bc", state, T, core)
        return state

    assert float(np.abs(at((first, middle, last)) - at(shorter)).max()) <= lost <= 1e-4
    one = compress.as_products(shorter, 0)
    product = np.prod([np.cos(np.multiply.outer(np.arccos(z[:, e]), np.arange(len(c)))) @ c for e, c in enumerate(one)], axis=0)
    assert np.allclose(product.sum(axis=1), at(shorter)[:, 0], atol=1e-12)
