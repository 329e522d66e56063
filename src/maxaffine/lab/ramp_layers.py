"""The trainable attention of the second paper's experiments, and its data: settings as in the authors' code, written anew.

The linear map acts token by token, the same for all but for one factor per position and coordinate, and appends p - n tokens
that are parameters; so no part of the model can hold another w for every position except through these factors.
"""

import math
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array

WIDTH = 32  # hidden dimension, and outputs of the truncated setting
BETA = 25.0  # of attention maps


def truncated_data(n: int, d: int, span: float, count: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """x ~ U[-5, 5], w and t normal by position: x, s = w.x + t, and s clamped to a range of length `span`."""
    x = rng.uniform(-5, 5, (count, n, d))
    w, t = rng.standard_normal((n, d)), rng.standard_normal(n)
    s = (x * w).sum(axis=2) + t
    return x, s, np.clip(s, -span / 2, span / 2)


def sequence_data(n: int, d: int, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """X ~ U[0, 1] of n x d, and a two-layer ReLU net of width 10 on all of it, all weights normal."""
    x = rng.uniform(0, 1, (count, n, d))
    A, b = rng.standard_normal((n * d, 10)), rng.standard_normal(10)
    B, c = rng.standard_normal((10, n * d)), rng.standard_normal(n * d)
    return x, (np.maximum(x.reshape(count, n * d) @ A + b, 0.0) @ B + c).reshape(count, n, d)


def attention_model(n: int, d: int, p: int, heads: int, out: int, layers: int, width: int = WIDTH) -> Any:
    """The map to p tokens, one or two layers of attention with linear maps between, and the first n tokens."""
    from torch import nn

    body: list[Any] = [_mapping(n, d, p, width), _attention(width, heads)]
    if layers == 2:
        body += [nn.Linear(width, width), _attention(width, heads)]
    body.append(_first(n))
    if out != width:
        body.append(nn.Linear(width, out))
    return nn.Sequential(*body)


def map_model(n: int, d: int, span: float, where: int) -> Any:
    """One head of width d + 1 whose last row of keys is the theorem's at t = 1, and one row of values, `where`, its sites."""
    import torch
    from torch import nn

    width = d + 1
    sites = torch.linspace(-span / 2, span / 2, n)
    k = torch.arange(n, dtype=torch.float32)

    class Map(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mapping = _mapping(n, d, n, width)
            self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

        def attention(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            """Weights (batch, n, n), and the tokens that they are of."""
            z = self.mapping(x)
            keys = self.key(z)
            own = (k * (sites + sites[0]) - 2.0 * k).expand(len(x), n)
            keys = torch.cat([keys[:, :, :-1], own[:, :, None]], dim=2)
            return torch.softmax(BETA / math.sqrt(width) * (self.query(z) @ keys.transpose(1, 2)), dim=-1), z

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights, z = self.attention(x)
            values = self.value(z)
            own = sites.expand(len(x), n)[:, :, None]
            values = torch.cat([values[:, :, :where], own, values[:, :, where + 1 :]], dim=2)
            said: torch.Tensor = self.out(weights @ values)
            return said

    return Map()


def ramp_attention(s: Array, span: float, p: int) -> Array:
    """The theorem's own attention at s (.., ) over p sites."""
    sites, k = np.linspace(-span / 2, span / 2, p), np.arange(p)
    logits = BETA * (2.0 * k * s[..., None] - k * (sites + sites[0]))
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def _mapping(n: int, d: int, p: int, width: int) -> Any:
    import torch
    from torch import nn

    class Mapping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project, self.factor = nn.Linear(d, width), nn.Parameter(torch.ones(n, width))
            self.extra = nn.Parameter(torch.linspace(-1.0, 1.0, p - n)[:, None].repeat(1, width))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([self.project(x) * self.factor, self.extra.expand(len(x), p - n, width)], dim=1)

    return Mapping()


def _attention(width: int, heads: int) -> Any:
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = [one(x).unflatten(2, (heads, width // heads)).transpose(1, 2) for one in (self.query, self.key, self.value)]
            said = nn.functional.scaled_dot_product_attention(*parts)
            answer: torch.Tensor = self.out(said.transpose(1, 2).flatten(2))
            return answer

    return Attention()


def _first(n: int) -> Any:
    import torch
    from torch import nn

    class First(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, :n]

    return First()
