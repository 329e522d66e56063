"""The dictionary task, in which the best inverse temperature of attention is known exactly. Needs torch.

    x~ = v_J + sigma xi,  J uniform on 1..N,  xi ~ N(0, I_D);        name J from x~

The posterior of J is softmax_j((v_j . x~ - |v_j|^2 / 2) / sigma^2): attention over the dictionary at inverse temperature
R* = 1 / sigma^2, and for any values y_j the posterior mean E[y_J | x~] is that head's output.  The head here has keys
W_K (v_j, -|v_j|^2 / 2) and queries W_Q (x~, 1); its attention is trained by cross-entropy on J, which is convex in W_K^T W_Q, so
that nothing but time and the size of steps stands between training and the known answer.
"""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from maxaffine.core.arrays import Array
from maxaffine.lab.training import Objective, Weights


def dictionary(count: int, dimension: int, seed: int) -> Array:
    """Entries v (N, D), uniform in [-1, 1]^D."""
    return np.random.default_rng([seed, 3]).uniform(-1, 1, (count, dimension))


def tokens_of(entries: Array) -> Array:
    """What the keys are made of: (v_j, -|v_j|^2 / 2), (N, D + 1)."""
    return np.hstack([entries, -0.5 * (entries**2).sum(axis=1, keepdims=True)])


class Task:
    """Samples of one dictionary at many noise levels at once, on a device; (J, xi) are shared by all levels."""

    def __init__(self, entries: Array, sigmas: Array, samples: int, seed: int, device: str):
        self.seed = seed
        self.tokens = torch.from_numpy(tokens_of(entries)).float().to(device)
        self.sigmas = torch.from_numpy(sigmas).float().to(device).view(-1, 1, 1)
        self.which = torch.zeros(samples, dtype=torch.int64, device=device)
        self.noise = torch.zeros((samples, entries.shape[1]), device=device)
        self.draw(0)

    def draw(self, number: int) -> None:
        """Fresh samples in place, the same on every machine."""
        generator = np.random.default_rng([self.seed, 4, number])
        self.which.copy_(torch.from_numpy(generator.integers(0, len(self.tokens), len(self.which))))
        self.noise.copy_(torch.from_numpy(generator.standard_normal(tuple(self.noise.shape), dtype=np.float32)))

    def queries(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs (x~, 1) of every level (L, B, D + 1), and the entries to name (B,)."""
        which = self.which.index_select(0, index)
        entries, drawn = self.tokens.index_select(0, which)[None, :, :-1], self.noise.index_select(0, index)[None]
        return functional.pad(torch.addcmul(entries, self.sigmas, drawn), (0, 1), value=1.0), which

    def objective(self, weights: Weights) -> Objective:
        """Mean cross-entropy of every level."""

        def loss(index: Tensor) -> Tensor:
            inputs, which = self.queries(index)
            logs = torch.log_softmax(logits(weights, self.tokens, inputs), dim=2)
            return -logs.gather(2, which.view(1, -1, 1).expand(len(logs), -1, 1)).mean(dim=(1, 2))

        return loss


def start(entries: Array, width: int, levels: int, seed: int, device: str) -> Weights:
    """Xavier-uniform W_Q and W_K, the same at every level."""
    generator = np.random.default_rng([seed, 5])
    size = (width, entries.shape[1] + 1)
    limit = math.sqrt(6.0 / sum(size))
    one = {name: generator.uniform(-limit, limit, size).astype(np.float32) for name in ("query", "key")}
    return {name: torch.from_numpy(w).to(device).expand(levels, *size).contiguous() for name, w in one.items()}


def logits(weights: Weights, tokens: Tensor, inputs: Tensor) -> Tensor:
    """Attention logits (L, B, N) of inputs (L, B, D + 1)."""
    keys = torch.matmul(tokens, weights["key"].transpose(1, 2))  # (L, N, d)
    queries = torch.bmm(inputs, weights["query"].transpose(1, 2))  # (L, B, d)
    return torch.bmm(queries, keys.transpose(1, 2))


@torch.no_grad()
def measure(weights: Weights, task: Task) -> dict[str, Array]:
    """Per level, on the samples of the task: effective inverse temperature, fit, entropy, std of logits, loss and least loss.

    The effective inverse temperature is the slope of the logits on v_j . x~ - |v_j|^2 / 2, both centred over the keys, as
    attention sees them; `fit` is the share of the logits' variance that this one number explains.
    """
    inputs, which = task.queries(torch.arange(len(task.which), device=task.tokens.device))
    sigmas = task.sigmas.view(-1).double().cpu().numpy()
    rows = []
    for level, sigma in enumerate(sigmas):
        one = {name: w[level : level + 1] for name, w in weights.items()}
        found = logits(one, task.tokens, inputs[level : level + 1])[0].double()
        scores = inputs[level].double() @ task.tokens.double().T  # (x~, 1) . (v, -|v|^2 / 2)
        a, b = found - found.mean(dim=1, keepdim=True), scores - scores.mean(dim=1, keepdim=True)
        slope = float((a * b).sum() / (b * b).sum())
        fit = float((a * b).sum() ** 2 / ((a * a).sum() * (b * b).sum()))
        logs = torch.log_softmax(found, dim=1)
        entropy = float(-(logs.exp() * logs).sum(dim=1).mean())
        least = float(functional.cross_entropy(scores / sigma**2, which)) if sigma > 0 else 0.0
        rows.append((slope, fit, entropy, float(a.square().mean().sqrt()), float(functional.nll_loss(logs, which)), least))
    names = ("inverse_temperature", "fit", "entropy", "logit_std", "loss", "least_loss")
    return dict(zip(names, np.array(rows).T, strict=True))
