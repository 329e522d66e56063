"""The literal stack as a torch.nn.Module: blocks around stock torch.nn.MultiheadAttention between linear maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from maxaffine.core.errors import BadInput
from maxaffine.runtime.queries import flattened
from maxaffine.stack.blocks import Block, blocks, last_map

if TYPE_CHECKING:
    from maxaffine.proofs.statement import Statement
    from maxaffine.stack.stack import Stack


def _tensor(array: Any) -> Tensor:
    return torch.tensor(np.asarray(array), dtype=torch.float64)


class AttentionLayer(nn.Module):
    """One block: s -> [s ; heads(s)], one MultiheadAttention with a head per node (see stack/blocks.py)."""

    marks: Tensor
    spread: Tensor
    centre: Tensor
    context: Tensor
    slopes: Tensor
    mask: Tensor
    read: Tensor

    def __init__(self, block: Block) -> None:
        super().__init__()
        E, S = block.before.shape
        total = len(block.W_Q)
        self.before = nn.Linear(S, E, dtype=torch.float64)
        self.attention = nn.MultiheadAttention(total, block.heads, bias=False, batch_first=True, dtype=torch.float64)
        with torch.no_grad():
            self.before.weight.copy_(_tensor(block.before))
            self.before.bias.copy_(_tensor(block.constant))
            self.attention.in_proj_weight.copy_(_tensor(np.concatenate([block.W_Q, block.W_K, block.W_V])))
            self.attention.out_proj.weight.copy_(torch.eye(total, dtype=torch.float64))
        for name in ("marks", "spread", "centre", "context", "slopes", "read"):
            self.register_buffer(name, _tensor(getattr(block, name)))
        self.register_buffer("mask", torch.tensor(block.mask))
        self.nodes = block.nodes

    def forward(self, s: Tensor) -> Tensor:
        """The stream (B, S) after this block, (B, S + H)."""
        z = self.before(s) - self.centre
        queries = (z @ self.spread.T)[:, None] + self.marks
        context = self.context + torch.einsum("mwe,be->bmw", self.slopes, z)
        mask = self.mask[None, :, None, :].expand(len(s), -1, queries.shape[1], -1).reshape(-1, *self._mask_shape(queries))
        out = self.attention(queries, context, context, attn_mask=mask, need_weights=True)[0]
        return torch.cat([s, torch.einsum("hcw,bcw->bh", self.read, out)], dim=1)

    def _mask_shape(self, queries: Tensor) -> tuple[int, int]:
        return int(queries.shape[1]), int(self.mask.shape[1])


class StackModule(nn.Module):
    """A stack as blocks of stock MultiheadAttention; (B, D) -> (B,), in float64 inside, points moved into the box."""

    low: Tensor
    high: Tensor

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(AttentionLayer(block) for block in blocks(stack))
        weights, constant = last_map(stack)
        self.last = nn.Linear(len(weights), 1, dtype=torch.float64)
        with torch.no_grad():
            self.last.weight.copy_(_tensor(weights)[None])
            self.last.bias.fill_(constant)
        self.register_buffer("low", _tensor(stack.box.low))
        self.register_buffer("high", _tensor(stack.box.high))
        self.box = stack.box
        self.statement: Statement | None = stack.statement("multihead")

    def forward(self, x: Tensor) -> Tensor:
        """Values in the dtype of x."""
        points, single = flattened(self.box, x.to(torch.float64))
        if points.shape[1] != len(self.low):
            raise BadInput(f"a batch of shape {tuple(x.shape)} does not fit the {len(self.low)} variables of this stack.")
        s = torch.minimum(torch.maximum(points, self.low), self.high)
        for block in self.blocks:
            s = block(s)
        out: Tensor = self.last(s)[:, 0].to(x.dtype)
        return out[0] if single else out


def module_of(stack: Stack) -> StackModule:
    """The module of a stack, compared with the stack before it is handed out."""
    module = StackModule(stack).eval()
    x = stack.box.sample(64, np.random.default_rng(0))
    with torch.no_grad():
        away = float(np.abs(module(torch.tensor(x)).numpy() - stack(x)).max())
    said = stack.statement("multihead")
    allowed = float(stack.certificate.bound or 0.0) + (said.bound if said.bound is not None else stack.error)
    if not away <= allowed:
        raise AssertionError(f"the module is {away!r} away from the stack: please report this")
    return module
