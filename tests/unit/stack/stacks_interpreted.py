"""Runs the kernel of stacks in Triton's interpreter and prints what it is off by, as JSON."""

import json
import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch

import maxaffine as ma
from maxaffine.stack.device import on_device

KINKED = {"x": (-1, 1), "y": (-1, 3), "z": (-1, 1), "w": (0.5, 4)}
CASES = {
    "quotient": ("G*m/((x-a)**2+(y-b)**2)", {"G": (1, 2), "m": (1, 2), "a": (3, 4), "x": (1, 2), "b": (3, 4), "y": (1, 2)}, 1e-5),
    "norm": ("hypot(x, y)*(z + 2) + w", {"x": (-2, 2), "y": (-2, 2), "z": (-1, 1), "w": (0, 1)}, 1e-4),
    "kinks": ("max(x*z, y - w) + abs(x - y)*w + 0.3*max(x - 2*z, 0.1)", KINKED, 1e-4),
    "tokens": ("tanh(0.3*x - 2*z + 0.1)*sigmoid(y) + tanh(y + z)", {"x": (-1, 1), "y": (-3, 3), "z": (-1, 1)}, 1e-4),
    "waves": ("sin(9*x)*y + log(3 + cos(5*y)*x)", {"x": (-1, 1), "y": (-1, 1)}, 1e-5),
    "rough": ("sqrt(x*y)*z", {"x": (0, 1), "y": (0, 1), "z": (1, 2)}, 1e-3),
    "wide": ("log(r/rw)/(1 + T/100)", {"r": (100, 50000), "rw": (0.05, 0.15), "T": (63, 116)}, 1e-7),
}  # fmt: skip


def points(stack, count):
    """Uniform points, corners, and points of few digits, where kinks are."""
    rng = np.random.default_rng(1)
    low, high = stack.box.low, stack.box.high
    x = rng.uniform(low, high, size=(count, len(low)))
    corners = np.where(rng.random((count // 4, len(low))) > 0.5, high, low)
    return np.clip(np.concatenate([x, corners, np.round(x[: count // 4] * 2) / 2]), low, high)


def judge(stack, dtype):
    """Of one dtype: the statement, the largest error at points, whether answers depend on the batch, what happens outside."""
    name, low, high = str(dtype)[6:], stack.box.low, stack.box.high
    said, x = stack.statement("tensors", name, "cuda"), torch.tensor(points(stack, 160), dtype=dtype)
    made = on_device(stack, name)
    y = stack(x, outside="clamp")
    exact = stack.target.values(np.clip(x.double().numpy(), low, high))[:, 0, 0]
    seen = float(np.abs(y.double().numpy() - exact).max())
    found = {"bound": said.bound, "seen": seen, "why": said.why, "computed": made.dtype}
    found["same in every batch"] = bool(torch.equal(stack(x[3:40], outside="clamp"), y[3:40])) and y.dtype == dtype
    corner = torch.tensor(high, dtype=dtype)[None]
    found["clamped"] = bool((stack(corner + 100.0, outside="clamp") == stack(corner, outside="clamp")).all())
    lost = x[:2].clone()
    lost[0, 0] = float("nan")
    found["nan"] = bool(torch.isnan(stack(lost, outside="clamp"))[0])
    a, b = x[5:40].clone().requires_grad_(), torch.tensor(x[5:40].double().numpy(), requires_grad=True)
    stack(a, outside="clamp").sum().backward()
    exact_gradient = torch.tensor(stack.target.expression.gradient().evaluate(b.detach().numpy()))
    found["gradient"] = float((a.grad.double() - exact_gradient).abs().median() / exact_gradient.abs().max())
    return found


def main():
    found = {}
    for name, (text, box, error) in CASES.items():
        stack = ma.compile(text, box, error=error, layers="auto")
        assert isinstance(stack, ma.Stack), name
        for dtype in (torch.float32, torch.float64):
            found[f"{name}, {str(dtype)[6:]}"] = judge(stack, dtype)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
