"""One attention head on functions of the plane, many seeds at once: fixed tokens, learned W_Q, W_K, values. Needs torch.

    logits l_j(z) = (W_K e_j) . (W_Q (z, 1)),   e_j = (p_j, -|p_j|^2 / 2),   p_j on a grid over [-1, 1]^2
    F(z) = sum_j softmax_j(l(z)) c_j

W_Q = W_K = sqrt(R) I gives l_j = R (p_j . z - |p_j|^2 / 2): square cells at inverse temperature R.  In general
l_j = a_j . z + b_j, and between the two largest the gap grows with the distance from their face by |a_1 - a_2|; the effective
inverse temperature is that slope per distance of the two tokens, averaged over the plane, so that rotated copies of a
partition count the same.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from maxaffine.core.arrays import Array
from maxaffine.lab.training import Weights


def grid_tokens(side: int) -> Array:
    """Tokens (p, -|p|^2 / 2) of the cell centres of a side x side grid over [-1, 1]^2."""
    axis = (2 * np.arange(side) + 1) / side - 1
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    return np.hstack([points, -0.5 * (points**2).sum(axis=1, keepdims=True)])


def tensor(values: Array, device: str) -> Tensor:
    """Numbers on the device in float32."""
    return torch.from_numpy(values).float().to(device)


def waves(points: Array) -> Array:
    """sin x + cos y on [-pi, pi]^2, given z = (x, y) / pi."""
    return np.asarray(np.sin(np.pi * points[..., 0]) + np.cos(np.pi * points[..., 1]))


def test_points(side: int) -> Array:
    """A square grid of side x side points that includes the edges."""
    axis = np.linspace(-1, 1, side)
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)


def start(width: int, tokens: int, seeds: list[int], device: str, square: float | None = None) -> Weights:
    """Xavier-uniform W_Q and W_K, values 0; one model per seed.

    With `square` the start is square cells at that inverse temperature, disturbed by a tenth of the random start.
    """
    limit = math.sqrt(6.0 / (width + 3))
    drawn = np.array([np.random.default_rng([seed, 6]).uniform(-limit, limit, (2, width, 3)) for seed in seeds])
    if square is not None:
        drawn = math.sqrt(square) * (0.1 * drawn + np.eye(width, 3))
    both = tensor(drawn, device)
    values = torch.zeros((len(seeds), tokens), device=device)
    return {"query": both[:, 0].contiguous(), "key": both[:, 1].contiguous(), "values": values}


def matrices(weights: Weights, held: Tensor | None = None) -> Tensor:
    """W_K^T W_Q (S, 3, 3), so that l_j = e_j . M (z, 1); scaled to |M|_F = sqrt(3) R where R is held."""
    product: Tensor = torch.bmm(weights["key"].transpose(1, 2), weights["query"])
    if held is None:
        return product
    scale: Tensor = math.sqrt(3.0) * held / torch.linalg.matrix_norm(product)
    return product * scale.view(-1, 1, 1)


def logits(weights: Weights, tokens: Tensor, points: Tensor, held: Tensor | None = None) -> Tensor:
    """Logits (S, B, N) at points (B, 2) shared by all models, or (S, B, 2)."""
    pieces = torch.matmul(tokens, matrices(weights, held))  # (S, N, 3): slopes a_j and offset b_j
    return torch.matmul(points, pieces[..., :2].transpose(1, 2)) + pieces[..., 2].unsqueeze(1)


def predict(weights: Weights, tokens: Tensor, points: Tensor, held: Tensor | None = None) -> Tensor:
    """F (S, B)."""
    attention = torch.softmax(logits(weights, tokens, points, held), dim=2)
    return torch.bmm(attention, weights["values"].unsqueeze(2)).squeeze(2)


def optimiser(kind: str, parameters: list[Tensor], rate: float, decay: float) -> torch.optim.Optimizer:
    """"adam" with decoupled decay, or plain "sgd" with decay added to the gradient."""
    method = torch.optim.AdamW if kind == "adam" else torch.optim.SGD
    return method(parameters, lr=rate, weight_decay=decay, fused=True)


def descend(
    parameters: list[Tensor], loss: Callable[[int], Tensor], steps: int, method: torch.optim.Optimizer, cool: bool = False
) -> Iterator[tuple[int, Tensor]]:
    """Steps of the optimiser on the sum of the models' losses; yields (steps taken, losses) before the first and after each.

    `cool` lowers the rate along half a cosine to a thousandth of itself.
    """
    rates = [float(group["lr"]) for group in method.param_groups]
    for parameter in parameters:
        parameter.requires_grad_(True)
    yield 0, torch.empty(0)
    for step in range(steps):
        if cool:
            share = 0.001 + 0.999 * 0.5 * (1 + math.cos(math.pi * step / steps))
            for group, rate in zip(method.param_groups, rates, strict=True):
                group["lr"] = rate * share
        each = loss(step)
        for parameter, gradient in zip(parameters, torch.autograd.grad(each.sum(), parameters), strict=True):
            parameter.grad = gradient.contiguous()
        method.step()
        yield step + 1, each.detach()


def moments(steps: int, count: int) -> list[int]:
    """Step 0 and `count` steps from 1 to `steps`, evenly spaced on a logarithmic axis as far as whole numbers allow."""
    return [0, *sorted({int(value) for value in np.round(np.geomspace(1, steps, count))})]


@torch.no_grad()
def describe(weights: Weights, tokens: Tensor, points: Tensor, wanted: Tensor, held: Tensor | None = None) -> dict[str, Array]:
    """Per model: norms, effective inverse temperature, entropy, margins, sup and L2 error at the given points."""
    found = logits(weights, tokens, points, held)
    pieces = torch.matmul(tokens, matrices(weights, held))[..., :2]
    top, which = found.topk(2, dim=2)
    first, second = which.unbind(dim=2)
    apart = torch.linalg.vector_norm(tokens[first, :2] - tokens[second, :2], dim=2)
    a1, a2 = (torch.gather(pieces, 1, index.unsqueeze(2).expand(-1, -1, 2)) for index in (first, second))
    slope = torch.linalg.vector_norm(a1 - a2, dim=2) / apart
    logs = torch.log_softmax(found, dim=2)
    margin = (top[..., 0] - top[..., 1]).double()
    error = (torch.bmm(logs.exp(), weights["values"].unsqueeze(2)).squeeze(2) - wanted).abs().double()
    quantiles = torch.quantile(margin, torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64, device=margin.device), dim=1)
    tensors = {
        "query_norm": torch.linalg.matrix_norm(weights["query"]),
        "key_norm": torch.linalg.matrix_norm(weights["key"]),
        "product_norm": torch.linalg.matrix_norm(matrices(weights)),
        "inverse_temperature": slope.mean(dim=1),
        "entropy": -(logs.exp() * logs).sum(dim=2).mean(dim=1),
        "margin_5": quantiles[0],
        "margin_50": quantiles[1],
        "margin_95": quantiles[2],
        "sup_error": error.amax(dim=1),
        "l2_error": error.square().mean(dim=1).sqrt(),
    }
    return {name: np.asarray(tensor.double().cpu().numpy()) for name, tensor in tensors.items()}


def square_scores(tokens: Array, points: Array, inverse_temperature: float) -> Array:
    """Logits (B, N) at W_Q = W_K = sqrt(R) I, the largest of every point 0."""
    scores = inverse_temperature * (points @ tokens[:, :2].T + tokens[:, 2])
    return np.asarray(scores - scores.max(axis=1, keepdims=True))


def least_squares_values(tokens: Array, points: Array, wanted: Array, inverse_temperature: float) -> Array:
    """The values of least mean squared error at W_Q = W_K = sqrt(R) I."""
    attention = np.exp(square_scores(tokens, points, inverse_temperature))
    attention /= attention.sum(axis=1, keepdims=True)
    return np.asarray(np.linalg.lstsq(attention, wanted, rcond=None)[0])
