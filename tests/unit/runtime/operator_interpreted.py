"""Runs layers as operators, their kernels in Triton's interpreter, and prints what they are off by, as JSON."""

import json
import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch

import maxaffine as ma
from maxaffine.export import judge

SQUARE = {"x": (-1, 1), "y": (-1, 1)}
CASES = {
    "series": ("sin(x)*cos(y)", SQUARE),
    "edges": ("abs(x + 2*y - 0.3)*cos(x)", SQUARE),
    "tokens": ("max(x, y, 0.2)", SQUARE),
    "three": ("x*y + z", SQUARE | {"z": (-1, 1)}),
}


class Model(torch.nn.Module):
    def __init__(self, inner, dimension):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.inner, self.last = torch.nn.Linear(5, dimension), inner, torch.nn.Linear(1, 5)

    def forward(self, h):
        return self.last(self.inner(torch.tanh(self.first(h))).reshape(-1, 1))


def gradients(model, run, h):
    model.zero_grad()
    h = h.clone().requires_grad_()
    y = run(h)
    y.square().sum().backward()
    return [y.detach(), h.grad, *(p.grad.clone() for p in model.parameters())]


def narrow(kernel, x):
    """Whether a kernel reads bfloat16 and float16, and whether it writes float16 as it is rounded."""
    half, brain = x.half(), x.bfloat16()
    rounded = torch.equal(kernel(half), kernel(half.float()).half())
    near = (kernel(brain).float() - kernel(brain.float())).abs() <= 2.0**-7 * kernel(brain.float()).abs()
    slopes = kernel.slopes(half, torch.ones(len(x), 1).half()) if kernel.has_slopes else half
    return rounded and bool(near.all()) and slopes.dtype == torch.float16


def main():
    judge.POINTS, judge.SWITCHES, found = 96, 6, {}
    for name, (text, box) in CASES.items():
        layer = ma.compile(text, box, error=1e-2)
        module = layer.to_torch(form="kernel")
        D = layer.weights.dimension
        x = torch.rand((120, D), generator=torch.Generator().manual_seed(1)) * 3.0 - 1.5
        exact = layer.target.values(x.double().numpy().clip(-1.0, 1.0))[:, 0, 0]
        made = module.operator.on(x)
        model, h = Model(module, D), torch.randn((30, 5), generator=torch.Generator().manual_seed(2))
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        a, b = (x[:40].clone().requires_grad_() for _ in range(2))
        module(a).sum().backward()
        layer.to_torch()(b).sum().backward()
        found[name] = {
            "seen": float(np.abs(module(x).double().numpy() - exact).max()),
            "bound": layer.statement("kernel module", "float32", "cuda").bound,
            "by": made.runtime,
            "same as the tensors": bool(torch.equal(module(x), layer(x, outside="clamp"))),
            "compiled": max(
                float((one - two).abs().max())
                for one, two in zip(gradients(model, model, h), gradients(model, compiled, h), strict=True)
            ),
            "gradient": float((a.grad - b.grad).abs().median()),
            "outside": bool((a.grad[a.detach().abs() > 1.0] == 0.0).all()),
            "narrow": narrow(made.kernel, x),
        }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
