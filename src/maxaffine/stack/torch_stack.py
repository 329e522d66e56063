"""The literal stack as a torch.nn.Module: blocks around stock torch.nn.MultiheadAttention between linear maps.

A trainable one learns the linear maps between the layers, keys and values.  What a node does not read it does not learn to read:
weights of the maps that are 0 stay 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.export.stated_module import Stated
from maxaffine.runtime.queries import flattened
from maxaffine.stack.blocks import Block, blocks, last_map

if TYPE_CHECKING:
    from maxaffine.stack.stack import Stack


def _tensor(array: Any) -> Tensor:
    return torch.tensor(np.asarray(array), dtype=torch.float64)


class Reading(nn.Linear):
    """A linear map in float64 whose zeros stay zeros when it is trained."""

    kept: Tensor

    def __init__(self, weight: Array, bias: Array) -> None:
        super().__init__(weight.shape[1], weight.shape[0], dtype=torch.float64)
        with torch.no_grad():
            self.weight.copy_(_tensor(weight))
            self.bias.copy_(_tensor(bias))
        self.register_buffer("kept", torch.tensor(weight != 0.0), persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        """Weights times input, and bias."""
        return nn.functional.linear(input, self.weight * self.kept, self.bias)


class AttentionLayer(nn.Module):
    """One block: s -> [s ; heads(s)], one MultiheadAttention with a head per node (see stack/blocks.py)."""

    marks: Tensor
    spread: Tensor
    centre: Tensor
    context: Tensor
    slopes: Tensor
    sloped: Tensor
    mask: Tensor
    read: Tensor

    def __init__(self, block: Block, trainable: bool) -> None:
        super().__init__()
        total = len(block.W_Q)
        self.before = Reading(block.before, block.constant)
        self.attention = nn.MultiheadAttention(total, block.heads, bias=False, batch_first=True, dtype=torch.float64)
        with torch.no_grad():
            self.attention.in_proj_weight.copy_(_tensor(np.concatenate([block.W_Q, block.W_K, block.W_V])))
            self.attention.out_proj.weight.copy_(torch.eye(total, dtype=torch.float64))
        self.requires_grad_(False)
        self.before.requires_grad_(trainable)
        for name in ("marks", "spread", "centre", "context", "slopes", "read"):
            if trainable and name in ("context", "slopes"):
                self.register_parameter(name, nn.Parameter(_tensor(getattr(block, name))))
            else:
                self.register_buffer(name, _tensor(getattr(block, name)))
        self.register_buffer("sloped", torch.tensor(block.slopes != 0.0), persistent=False)
        self.register_buffer("mask", torch.tensor(block.mask))
        self.nodes = block.nodes

    def forward(self, s: Tensor) -> Tensor:
        """The stream (B, S) after this block, (B, S + H)."""
        z = self.before(s) - self.centre
        queries = (z @ self.spread.T)[:, None] + self.marks
        context = self.context + torch.einsum("mwe,be->bmw", self.slopes * self.sloped, z)
        mask = self.mask[None, :, None, :].expand(len(s), -1, queries.shape[1], -1).reshape(-1, *self._mask_shape(queries))
        out = self.attention(queries, context, context, attn_mask=mask, need_weights=True)[0]
        return torch.cat([s, torch.einsum("hcw,bcw->bh", self.read, out)], dim=1)

    def _mask_shape(self, queries: Tensor) -> tuple[int, int]:
        return int(queries.shape[1]), int(self.mask.shape[1])


class StackModule(Stated):
    """A stack as blocks of stock MultiheadAttention; (B, D) -> (B,), in float64 inside, points moved into the box."""

    high: Tensor

    def __init__(self, stack: Stack, trainable: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(AttentionLayer(block, trainable) for block in blocks(stack))
        weights, constant = last_map(stack)
        self.last = Reading(weights[None], np.array([constant]))
        self.last.requires_grad_(trainable)
        self.exact = ("low", "high")
        self.register_buffer("low", _tensor(stack.box.low))
        self.register_buffer("high", _tensor(stack.box.high))
        self.box = stack.box
        self.statement = stack.statement("multihead")

    def forward(self, x: Tensor) -> Tensor:
        """Values in the dtype of x."""
        points, single = flattened(self.box, x.to(torch.float64))
        if points.shape[1] != len(self.low):
            raise BadInput(f"a batch of shape {tuple(x.shape)} does not fit the {len(self.low)} variables of this stack.")
        s = torch.minimum(torch.maximum(points, self.low), self.high).to(self.last.weight.dtype)
        for block in self.blocks:
            s = block(s)
        out: Tensor = self.last(s)[:, 0].to(x.dtype)
        return out[0] if single else out


def module_of(stack: Stack, trainable: bool = False) -> StackModule:
    """The module of a stack, compared with the stack before it is handed out."""
    module = StackModule(stack, trainable).eval()
    x = stack.box.sample(64, np.random.default_rng(0))
    with torch.no_grad():
        away = float(np.abs(module(torch.tensor(x)).numpy() - stack(x)).max())
    said = stack.statement("multihead")
    allowed = float(stack.certificate.bound or 0.0) + (said.bound if said.bound is not None else stack.error)
    if not away <= allowed:
        raise AssertionError(f"the module is {away!r} away from the stack: please report this")
    return module
