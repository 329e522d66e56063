"""The kernel of stacks: in Triton's interpreter against its statements, compiled for a GPU, and where it does not fit."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import maxaffine as ma
from maxaffine.runtime.gpu import stacked
from maxaffine.stack.device import cutting_of, on_device
from maxaffine.stack.device_bound import Off, device_bound

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

SCRIPT = Path(__file__).parent / "stacks_interpreted.py"
FOUR = {"x": (1, 2), "y": (1, 3), "z": (-1, 1), "w": (0.5, 4)}


@pytest.fixture(scope="module")
def found():
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def stack():
    return ma.compile("x*y*exp(-z)/(x + y) + abs(z - w)", FOUR, error=1e-5, layers="auto")


def test_every_stack_stays_within_its_statement(found):
    assert len(found) == 14
    for name, one in found.items():
        assert one["seen"] <= one["bound"] * (1 + 1e-9), name


def test_statements_are_not_far_above_what_is_seen(found):
    near = [name for name, one in found.items() if one["bound"] <= 20.0 * one["seen"]]
    assert len(near) >= len(found) / 2


def test_what_float32_cannot_hold_is_computed_in_float64(found):
    assert found["wide, float32"]["computed"] == "float64" and "rounded to float32" in found["wide, float32"]["why"]
    assert found["quotient, float32"]["computed"] == "float32"


def test_answers_do_not_depend_on_the_batch(found):
    assert all(one["same in every batch"] for one in found.values())


def test_points_outside_are_clamped_and_not_a_number_stays_so(found):
    assert all(one["clamped"] and one["nan"] for one in found.values())


def test_gradients_are_those_of_the_formula_but_for_the_heads(found):
    assert all(one["gradient"] <= 1e-4 for one in found.values())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_kernel_compiles_for_a_gpu(stack, dtype):
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from maxaffine.runtime.gpu import kernels_stacked
    from maxaffine.runtime.gpu.launch_stacked import StackKernel

    kernel, made = kernels_stacked.stacked, StackKernel(on_device(stack, dtype), torch.device("cpu"))
    constants, names = made.constants | {"BLOCK": made.usual[0]}, kernel.arg_names
    numbers = "*fp64" if dtype == "float64" else "*fp32"
    kinds = {name: "constexpr" if name in constants else {"count": "i32", "once": "i32"}.get(name, numbers) for name in names}
    known = {(names.index(name),): value for name, value in constants.items()}
    source, options = ASTSource(kernel, kinds, known), {"num_warps": made.usual[1], "enable_fp_fusion": False}
    assert "st.global" in triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]


def test_a_loaded_stack_has_the_same_kernel(stack, tmp_path):
    stack.save(tmp_path / "s.safetensors")
    again = ma.load(tmp_path / "s.safetensors")
    one, two = on_device(stack, "float32"), on_device(again, "float32")
    assert one.bound == two.bound and one.steps == two.steps
    assert "not checked" in again.statement("tensors", "float32", "cuda").why


def test_errors_of_heads_count_by_their_weights(stack):
    made = on_device(stack, "float64")
    given = cutting_of(stack.plan), stack.box, made.steps, made.result
    still = [Off() for _ in made.steps]
    rounding = sum(device_bound(*given, still, "float64").values())
    for k, node in enumerate(stack.nodes):
        off = [replace(one, head=1e-6) if i == k else one for i, one in enumerate(still)]
        added = sum(device_bound(*given, off, "float64").values()) - rounding
        assert added == pytest.approx(1e-6 * node.weight, rel=1e-2)


@pytest.mark.parametrize(("name", "words"), [("MOST", "multiply-adds"), ("LIVE", "registers")])
def test_what_does_not_fit_says_so_and_runs_by_operations_within_the_bound_of_the_stack(name, words, monkeypatch):
    large = ma.compile("exp(-z)*x*y + tanh(w)*y", FOUR, error=1e-3, layers="auto")
    monkeypatch.setattr(stacked, name, 3 if name == "MOST" else {"float32": 2, "float64": 2})
    said = large.statement("tensors", "float64", "cuda")
    assert words in said.why and "PyTorch's operations" in said.why and said.bound == pytest.approx(large.bound, rel=1e-12)


def test_explain_names_the_kernel_where_a_gpu_is_asked_about(stack):
    assert "one kernel" in stack.explain(device="cuda") and "cuda" not in stack.explain()
    with pytest.raises(ma.MaxaffineError, match="must be"):
        stack.explain(device="tpu")
    assert stack.statement("arrays", device="cuda").why == "it runs on the CPU"


def test_nothing_is_said_of_float32_where_values_go_beyond_it(recwarn):
    large = ma.compile("exp(100*x)*y + z", {"x": (0, 1), "y": (1, 2), "z": (0, 1)}, error=1e-3, relative=True, layers="auto")
    for device in ("cpu", "cuda"):
        assert "beyond float32" in large.statement("tensors", "float32", device).why
        assert large.statement("tensors", "float64", device).bound <= large.error
    assert on_device(large, "float32").dtype == "float64" and not recwarn.list
