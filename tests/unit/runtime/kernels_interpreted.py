"""Runs the Triton kernels in Triton's interpreter and prints what they differ by, as JSON; see test_gpu_kernels.py."""

import json
import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).parent))

import layers_for_tensors as samples
import numpy as np
import torch

from maxaffine import reference
from maxaffine.runtime.gpu.launch import CollapsedKernel
from maxaffine.runtime.gpu.tables import polynomials
from maxaffine.runtime.torch_runtime import TorchLayer


def points(layer, count):
    """Uniform points with all corners and edges of the box among them."""
    rng = np.random.default_rng(1)
    x = rng.uniform(layer.low, layer.high, size=(count, len(layer.low)))
    sides = rng.integers(0, 3, size=x.shape)
    edge = np.where(sides == 0, layer.low, np.where(sides == 1, layer.high, x))
    return np.concatenate([x, edge[: count // 4]])


def by_definition(layer, x):
    """F(x) by reference.py: one softmax over all keys of every group."""
    out = []
    for point in x:
        if hasattr(layer, "groups"):
            total = 0.0
            for group in layer.groups:
                slopes, offsets = group.listed()
                logits = slopes @ (group.matrix @ (point - layer.centre)) + offsets
                total = total + reference.lookup(logits, group.dense_values().reshape(group.count, -1, 1).astype(np.float64))
        else:
            slopes, offsets = layer.keys.listed()
            scores = slopes.astype(np.float64) @ layer.coordinates(point[None])[0] + offsets.astype(np.float64)
            logits = layer.sharpness * scores
            total = reference.lookup(logits, layer.values.reshape(-1, layer.d_out, layer.n_out).astype(np.float64))
        out.append(total)
    return np.stack(out)


def judge(layer, dtype):
    made = TorchLayer(layer, dtype=dtype)
    x = torch.tensor(points(layer, 80), dtype=dtype)
    inside = np.clip(x.double().numpy(), layer.low, layer.high)
    y = made(x)
    found = {"runtime": made.runtime, "bound": made.bound, "shape": list(y.shape)}
    found["apart"] = float(np.abs(y.double().numpy() - by_definition(layer, inside)).max())
    found["size"] = float(y.abs().max())
    found["empty"] = list(made(x[:0]).shape)
    mixed = torch.cat([x[3:6], x[:2] + 100.0, torch.tensor(layer.high, dtype=dtype)[None], x[:1]])
    mixed[-1, 0] = float("nan")
    again = made(mixed)
    found["same in every batch"] = bool(torch.equal(again[:3], y[3:6]))
    found["clamped"] = bool(torch.equal(again[3], again[5]) and torch.equal(again[4], again[5]))
    found["nan"] = bool(torch.isnan(again[-1]).all())
    inner = np.random.default_rng(2).uniform(0.01, 0.99, size=(20, len(layer.low)))
    middle = torch.tensor(layer.low + (layer.high - layer.low) * inner, dtype=dtype)
    a, b = middle.clone().requires_grad_(), middle.clone().double().requires_grad_()
    value = made(a)
    weight = torch.rand(value.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    (value * weight.to(dtype)).sum().backward()
    (TorchLayer(layer, dtype=torch.float64, runtime="factorised")(b) * weight).sum().backward()
    found["gradient"] = float((a.grad.double() - b.grad).abs().max() / b.grad.abs().max())
    found["gradient by kernel"] = made.kernel.has_slopes and dtype == torch.float32
    if made.kernel.has_slopes and dtype == torch.float64:
        slopes = made.kernel.slopes(middle, weight.reshape(len(middle), -1).to(dtype))
        found["slopes"] = float((slopes.double() - b.grad).abs().max() / b.grad.abs().max())
    return found


def tables_from_memory(layer):
    """The same float32 layer with its coefficients in the code and in memory."""
    found = polynomials(layer, "float32")
    x = torch.tensor(points(layer, 50), dtype=torch.float32)
    constant, loaded = CollapsedKernel(found, x.device), CollapsedKernel(found, x.device)
    made, _, table = loaded._program(False)
    loaded._programs[False] = made, None, table
    return bool(torch.equal(constant(x), loaded(x)))


def main():
    found = {}
    for name, layer in (samples.grouped_layers() | samples.lookups()).items():
        for dtype in (torch.float32, torch.float64):
            found[f"{name}, {str(dtype)[6:]}"] = judge(layer, dtype)
    memory = {name: tables_from_memory(layer) for name, layer in samples.grouped_layers().items() if len(layer.low) < 3}
    json.dump({"kernels": found, "memory": memory}, sys.stdout)


if __name__ == "__main__":
    main()
