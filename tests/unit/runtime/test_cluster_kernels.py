"""The kernels of clusters and of direct forms: in Triton's interpreter against their statements, and compiled for a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.proofs import direct_form
from maxaffine.proofs.routes import narrow_tolerance
from maxaffine.runtime.gpu.choice import choose
from maxaffine.runtime.gpu.tables import Numbers

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

SCRIPT = Path(__file__).parent / "clusters_interpreted.py"
SQUARE = {"x": (-1, 1), "y": (-1, 1)}


@pytest.fixture(scope="module")
def found():
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def covered(found):
    return {name: one for name, one in found.items() if "bound" in one}


def test_every_form_stays_within_its_statement(found):
    assert len(covered(found)) >= 36
    for name, one in covered(found).items():
        assert one["seen"] <= one["bound"] * (1 + 1e-9) + 1e-15, name


def test_no_kernel_is_further_from_its_layer_than_it_says(found):
    apart = {name: one for name, one in found.items() if "apart" in one}
    assert len(apart) >= 16
    for name, one in apart.items():
        assert one["apart"] <= one["kernel"] * (1 + 1e-9) + 1e-13, name


def test_float32_runs_every_case_by_a_kernel_of_its_own(found):
    for name, one in found.items():
        if name.endswith("float32"):
            words = ("between edges", "in registers", "patches", "multiply-adds")
            assert "kernel" in one["why"] and any(word in one["why"] for word in words), name


def test_answers_do_not_depend_on_the_batch(found):
    assert all(one["same in every batch"] for one in covered(found).values())


def test_points_outside_are_clamped_and_not_a_number_stays_so(found):
    assert all(one["clamped"] and one["nan"] for one in covered(found).values())


def test_gradients_are_near_those_of_the_layer(found):
    for name, one in covered(found).items():
        if "gradient" in one:
            assert one["gradient"] <= (max(1e-4, 0.05 * one["error"]) if name.endswith("float32") else 1e-9), name


def test_the_kernel_of_gradients_is_the_derivative_of_the_kernel_of_values(found):
    slopes = {name: one["slopes"] for name, one in found.items() if "slopes" in one}
    assert len(slopes) >= 8
    for name, apart in slopes.items():
        assert apart <= 1e-8, name


def test_direct_forms_of_float64_are_far_below_the_error_of_the_layer(found):
    assert all(one["bound"] <= 1e-12 for name, one in covered(found).items() if name.endswith("float64, direct"))


def compiled(kernel, constants, integers):
    """The kernel compiled for a GPU of compute capability 9, which needs none."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = kernel.arg_names
    kinds = {name: "constexpr" if name in constants else integers.get(name, "*fp32") for name in names}
    known = {(names.index(name),): value for name, value in constants.items()}
    options = {"num_warps": 4, "enable_fp_fusion": False}
    return triton.compile(ASTSource(kernel, kinds, known), target=GPUTarget("cuda", 90, 32), options=options)


COMPILED = ("max(x, y)", "abs(sin(5*x)) + cos(y)**2", "abs(x + 2*y - 0.3)*cos(x*y)", "abs(x + y + z)*exp(x*y)", "max(x, y), x")


@pytest.mark.parametrize("text", COMPILED)
def test_kernels_of_clusters_compile_for_a_gpu(text):
    from maxaffine.runtime.gpu import kernels_pieces, kernels_slopes, launch

    box = SQUARE | {"z": (-1, 1)} if "z" in text else SQUARE
    layer = ma.compile(text, box, error=1e-2 if "z" in text else 1e-4)
    _, _, made = choose(layer.weights, "float32", narrow_tolerance(layer))
    kernel, integers = launch.kernel_of(layer.weights, made, torch.device("cpu"), torch.float32), {"count": "i32", "once": "i32"}
    for code, constants in ((kernels_pieces.clustered, kernel.constants), (kernels_slopes.clustered_slopes, kernel.derivative())):
        assert "ld.global" in compiled(code, constants | {"BLOCK": 128}, integers | {"cells": "*i32"}).asm["ptx"]


def test_kernels_round_their_answers_to_bfloat16_and_do_not_truncate_them():
    from maxaffine.runtime.gpu import kernels_pieces, launch

    layer = ma.compile("max(x, y)", SQUARE, error=1e-4)
    _, _, made = choose(layer.weights, "float32", narrow_tolerance(layer))
    constants = launch.kernel_of(layer.weights, made, torch.device("cpu"), torch.float32).constants | {"BLOCK": 256}
    kinds = {"count": "i32", "once": "i32", "cells": "*i32", "x_ptr": "*bf16", "out_ptr": "*bf16"}
    assert "cvt.rn.bf16" in compiled(kernels_pieces.clustered, constants, kinds).asm["ptx"]


def test_kernels_of_lookups_and_their_gradients_compile_for_a_gpu():
    from maxaffine.runtime.gpu import lookups

    made = choose(ma.compile("x + y, x", SQUARE, error=0.3, method="lookup").weights, "float32", 1e-3)[2]
    constants = {"MAPS": made.maps, "FORM": made.form, "RHO": made.rho, "D": 2, "K": 2, "BLOCK": 256}
    assert "ld.global" in compiled(lookups.windowed, constants, {"count": "i32"}).asm["ptx"]
    box = {"BOX": Numbers([-1.0, 1.0, -1.0, 1.0])}
    assert "ld.global" in compiled(lookups.windowed_slopes, constants | box, {"count": "i32"}).asm["ptx"]


def test_kernels_of_direct_forms_compile_for_a_gpu():
    from maxaffine.runtime.gpu import kernels_direct

    layer = ma.compile("exp(-x)*sqrt(1 + x*x)/(2 + y) + atan(3*y) + sin(x*y)", SQUARE, error=1e-3)
    made = direct_form.on_device(layer, "float32")
    constants = {**made.constants(), "D": 2, "K": 1, "BLOCK": 256}
    assert "div.rn.f32" in compiled(kernels_direct.direct, constants, {"count": "i32"}).asm["ptx"]


def test_direct_forms_of_a_gpu_say_what_they_cannot_do():
    layer = ma.compile("where(x > 0.3, 1, 0)", {"x": (-1, 1)}, error=1e-3, gap=1e-2)
    assert "may jump" in layer.statement("direct tensors", "float32", "cuda").why
    smooth = ma.compile("sin(x)", {"x": (-1, 1)}, error=1e-3)
    assert "CUDA" in smooth.statement("direct tensors").why
    with pytest.raises(ma.MaxaffineError, match="CUDA device"):
        smooth(torch.zeros(3, 1), runtime="direct")


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_narrow_tensors_are_answered_within_their_statement(name):
    layer = ma.compile("sin(x) + cos(y)", {"x": (-3, 3), "y": (-3, 3)}, error=1e-6)
    dtype = getattr(torch, name)
    x = ((torch.rand((4000, 2), generator=torch.Generator().manual_seed(0)) - 0.5) * 6.0).to(dtype).requires_grad_()
    y = layer(x)
    wide = x.detach().double().clamp(-3.0, 3.0).numpy()
    away = np.abs(y.detach().double().numpy() - np.sin(wide[:, 0]) - np.cos(wide[:, 1])).max()
    bound = layer.statement("tensors", name).bound
    assert y.dtype == dtype and bound / 4 < away <= bound
    y.sum().backward()
    assert x.grad is not None and x.grad.dtype == dtype
