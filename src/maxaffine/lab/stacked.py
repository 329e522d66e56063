"""Many small attention classifiers trained at once: one model per level, stacked along the first axis. Needs torch.

    Q = W_Q T,  K = W_K T,  V = W_V T,    A = softmax(K^T Q / sqrt(d)) over keys,    O = W_O V A,
    class scores = W_2 relu(W_1 vec(O) + b_1) + b_2

for tokens T (d_tok, n_tok).  The levels share the start and the batch order and never see each other: the loss is the sum of
their losses (training.py), so every level has the gradient it would have alone.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from maxaffine.core.arrays import Array
from maxaffine.lab.training import Objective, Weights

Feed = Callable[[Tensor], tuple[Tensor, Tensor]]  # image numbers (B,) -> inputs (L, B, n_tok, d_tok), labels (L, B)


@dataclass(frozen=True)
class Shape:
    """Sizes of one model."""

    tokens: int
    token_size: int
    hidden: int
    width: int = 64  # d, of queries, keys and values
    classes: int = 10

    @property
    def weights(self) -> dict[str, tuple[int, ...]]:
        """The shape of every weight."""
        return {
            "query": (self.width, self.token_size),
            "key": (self.width, self.token_size),
            "value": (self.width, self.token_size),
            "output": (self.width, self.width),
            "hidden": (self.tokens * self.width, self.hidden),  # W_1 transposed: its gradient then needs no copy
            "hidden_bias": (self.hidden,),
            "classes": (self.classes, self.hidden),
            "classes_bias": (self.classes,),
        }


def initial_weights(shape: Shape, seed: int) -> dict[str, NDArray[np.float32]]:
    """Xavier-uniform matrices, zero biases; the same numbers on every machine."""
    generator = np.random.default_rng([seed, 0])
    weights = {}
    for name, size in shape.weights.items():
        limit = math.sqrt(6.0 / sum(size)) if len(size) == 2 else 0.0
        weights[name] = generator.uniform(-limit, limit, size).astype(np.float32) if limit else np.zeros(size, np.float32)
    return weights


def stack(weights: Mapping[str, NDArray[np.float32]], levels: int, device: str) -> Weights:
    """The same weights for every level: (levels, ...)."""
    return {name: torch.from_numpy(w).to(device).expand(levels, *w.shape).contiguous() for name, w in weights.items()}


def forward(weights: Weights, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Class scores (L, B, classes) and attention logits (L B, queries, keys) of inputs (L, B, n_tok, d_tok)."""
    levels, batch, tokens, size = inputs.shape
    width = weights["query"].shape[1]
    scaled = weights["query"] * (1.0 / math.sqrt(width))  # scaling W_Q is cheaper than scaling every query
    projections = torch.cat([scaled, weights["key"], weights["value"]], dim=1)  # (L, 3 d, d_tok)
    flat = inputs.reshape(levels, batch * tokens, size)
    mixed = torch.bmm(flat, projections.transpose(1, 2)).view(levels * batch, tokens, 3 * width)
    q, k, v = mixed.split(width, dim=2)
    logits = torch.bmm(q, k.transpose(1, 2))
    read = torch.bmm(torch.softmax(logits, dim=2), v).view(levels, batch * tokens, width)
    out = torch.bmm(read, weights["output"].transpose(1, 2)).view(levels, batch, tokens * width)
    hidden = torch.relu(torch.baddbmm(weights["hidden_bias"][:, None], out, weights["hidden"]))
    scores = torch.baddbmm(weights["classes_bias"][:, None], hidden, weights["classes"].transpose(1, 2))
    return scores, logits


def losses(scores: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy per level (L,)."""
    levels, batch, classes = scores.shape
    each = functional.cross_entropy(scores.reshape(levels * batch, classes), labels.reshape(-1), reduction="none")
    return each.view(levels, batch).mean(dim=1)


def objective(weights: Weights, feed: Feed) -> Objective:
    """The losses of all levels on the images of a batch."""

    def loss(index: Tensor) -> Tensor:
        inputs, labels = feed(index)
        return losses(forward(weights, inputs)[0], labels)

    return loss


def frobenius(stacked: Tensor) -> Array:
    """The Frobenius norm of every matrix of a stack."""
    return np.asarray(torch.linalg.matrix_norm(stacked.detach().double()).cpu().numpy())


@torch.no_grad()
def measure(weights: Weights, feed: Feed, images: int, chunk: int) -> dict[str, Array]:
    """Per level: loss, accuracy, entropy of attention, and the std of its logits over keys and over everything.

    A shift common to all keys of a query changes no attention, so `logit_std` is the root of the variance over keys averaged
    over queries; `logit_std_total` pools everything.
    """
    levels = len(weights["query"])
    device = weights["query"].device
    sums = torch.zeros((6, levels), dtype=torch.float64, device=device)
    for start in range(0, images, chunk):
        index = torch.arange(start, min(start + chunk, images), device=device)
        inputs, labels = feed(index)
        scores, logits = forward(weights, inputs)
        logs = torch.log_softmax(logits, dim=2)
        spread, centre = torch.var_mean(logits, dim=2, correction=0)
        per_query = (-(logs.exp() * logs).sum(dim=2), spread, centre, spread + centre**2)
        rows = [losses(scores, labels) * len(index), (scores.argmax(dim=2) == labels).sum(dim=1)]
        rows += [numbers.view(levels, len(index), -1).mean(dim=2).sum(dim=1) for numbers in per_query]
        sums += torch.stack([row.double() for row in rows])
    loss, accuracy, entropy, spread, centre, square = (sums / images).cpu().numpy()
    total = np.sqrt(np.maximum(square - centre**2, 0.0))
    return {"loss": loss, "accuracy": accuracy, "entropy": entropy, "logit_std": np.sqrt(spread), "logit_std_total": total}


def norms(weights: Weights) -> dict[str, Array]:
    """Per level: Frobenius and spectral norms of W_Q and W_K, |W_K^T W_Q|_F, and |W_V|_F, |W_O|_F where there are any."""
    query, key = (weights[name].detach().cpu().double() for name in ("query", "key"))
    found = {f"{name}_frobenius": frobenius(weights[name]) for name in ("query", "key", "value", "output") if name in weights}
    found["query_spectral"] = np.linalg.norm(query.numpy(), 2, axis=(1, 2))
    found["key_spectral"] = np.linalg.norm(key.numpy(), 2, axis=(1, 2))
    found["product_frobenius"] = frobenius(key.transpose(1, 2) @ query)
    return found
