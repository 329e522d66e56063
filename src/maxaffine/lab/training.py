"""Adam on a stack of independent models, as fast as the machine allows. Needs torch.

The loss is the sum of the models' losses and every operation of Adam is elementwise, so that each model moves exactly as it
would alone.  On a GPU one training step is recorded as a CUDA graph and replayed: nothing but the order of an epoch crosses from
the host.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from maxaffine.core.arrays import Array

Weights = dict[str, Tensor]  # (models, ...)
Objective = Callable[[Tensor], Tensor]  # sample numbers (B,) -> mean loss of every model (models,)


@dataclass(frozen=True)
class Training:
    """Settings of the optimiser."""

    epochs: int
    batch: int
    rate: float
    decay: float = 0.0  # decoupled, as in AdamW, on every weight; 0 is Adam
    capture: bool = True  # record the step as a CUDA graph, where there is a GPU


@contextmanager
def matrix_products(tf32: bool) -> Iterator[None]:
    """TensorFloat-32 products on GPUs that have them, or full float32; as before afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class Trainer:
    """Adam (0.9, 0.999) on the weights named by `trained`; the others stay as they are."""

    def __init__(
        self, weights: Weights, objective: Objective, samples: int, seed: int, settings: Training,
        trained: Sequence[str] | None = None,
    ):  # fmt: skip
        self.weights, self.objective, self.samples, self.seed, self.settings = weights, objective, samples, seed, settings
        self.parameters = [weights[name].requires_grad_(True) for name in (weights if trained is None else trained)]
        self.device = self.parameters[0].device
        self.batch = min(settings.batch, samples)
        self.steps = samples // self.batch  # of an epoch; what is left over waits for another order
        self.optimiser = torch.optim.AdamW(
            self.parameters, lr=settings.rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=settings.decay, fused=True,
            capturable=self.device.type == "cuda",
        )  # fmt: skip
        self.order = torch.zeros((self.steps, self.batch), dtype=torch.int64, device=self.device)
        self.position = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.total = torch.zeros(len(self.parameters[0]), device=self.device)
        self.captured = False
        self._advance: Callable[[], Any] | None = None

    def step(self) -> None:
        """One step on the batch at the current position."""
        loss = self.objective(self.order.index_select(0, self.position).view(-1))
        for parameter, gradient in zip(self.parameters, torch.autograd.grad(loss.sum(), self.parameters), strict=True):
            parameter.grad = gradient.contiguous()  # fused Adam reads gradients as if they were laid out like the weights
        self.optimiser.step()
        self.total.add_(loss.detach())
        self.position.add_(1)

    def epoch(self, number: int) -> Array:
        """One pass over the samples in the order of (seed, number); the mean loss of every model along the way."""
        shuffled = np.random.default_rng([self.seed, 1, number]).permutation(self.samples)[: self.steps * self.batch]
        self.order.copy_(torch.from_numpy(shuffled.reshape(self.steps, self.batch)))
        if self._advance is None:
            self._advance = self._prepared()
        self.position.zero_()
        self.total.zero_()
        for _ in range(self.steps):
            self._advance()
        return np.asarray((self.total / self.steps).cpu().double().numpy())

    def _prepared(self) -> Callable[[], Any]:
        """The step to call: the recorded one where it can be recorded."""
        if self.device.type != "cuda" or not self.settings.capture:
            return self.step
        start = [parameter.detach().clone() for parameter in self.parameters]
        advance: Callable[[], Any] = self.step
        try:
            beside = torch.cuda.Stream()
            beside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(beside):
                for _ in range(3):  # workspaces and the optimiser's state must exist before recording
                    self.position.zero_()
                    self.step()
            torch.cuda.current_stream().wait_stream(beside)
            self.position.zero_()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.step()
            advance, self.captured = graph.replay, True
        except RuntimeError:  # a machine that cannot record takes the steps one by one
            torch.cuda.synchronize()
        with torch.no_grad():
            for parameter, value in zip(self.parameters, start, strict=True):
                parameter.copy_(value)
            for state in self.optimiser.state.values():
                for tensor in state.values():
                    tensor.zero_()
        return advance
