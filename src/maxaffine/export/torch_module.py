"""A layer as a torch.nn.Module: the literal attention, or the fast form through its structure.

Both take a batch of points (B, D) and give what `layer(x)` gives; sequences are (B, d, n), two inputs two arguments.  Queries are
clamped to the box.  Buffers have the layer's dtype, so that `.double()` loses nothing; with `trainable=True` keys and values are
parameters, and a compiled layer can be fine-tuned.  What maps x to coordinates is stored and applied in float64 and its result
rounded once, as the certificate assumes; its buffers stay float64 through `.float()` and `.to(dtype)`: a rounded centre costs
four digits on a box around 1000.  Needs the extra ``maxaffine[torch]``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from maxaffine.core.errors import BadInput
from maxaffine.export.head import Head, head_of
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.layer import Layer
from maxaffine.layer.records import CrossMatrices, LinearMap, SelfMatrices
from maxaffine.runtime import torch_factorised

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}


class Exported(nn.Module):
    """What all exported modules share: the box, the shapes, and what the numbers mean (`semantics`)."""

    low: Tensor
    high: Tensor

    def __init__(self, low: NDArray[Any], high: NDArray[Any], inputs: Any, output: tuple[int, ...], carrier: str) -> None:
        super().__init__()
        self.inputs = tuple((int(d), int(n)) for d, n in inputs)
        self.output = tuple(output)
        self.semantics: dict[str, Any] = {}
        self.exact: tuple[str, ...] = ()  # buffers that stay float64
        self.carrier = carrier
        self.keep_exact("low", low)
        self.keep_exact("high", high)

    @property
    def dtype(self) -> torch.dtype:
        """What the module computes in: the dtype of the tensor named `carrier`."""
        found: torch.dtype = getattr(self, self.carrier).dtype
        return found

    def points(self, *x: Tensor) -> Tensor:
        """Points (B, D) in the module's dtype, moved into the box; a sequence (B, d, n) is read column by column."""
        flat = [one.transpose(1, 2).reshape(one.shape[0], -1) if one.dim() == 3 else one for one in x]
        joined = flat[0] if len(flat) == 1 else torch.cat(flat, dim=1)
        exact = joined.to(self.dtype).double()
        return torch.minimum(torch.maximum(exact, self.low), self.high).to(self.dtype)

    def present(self, y: Tensor) -> Tensor:
        """(B, d_out, n_out) in the shape of the target: (B,), (B, K) or (B, d_out, n_out)."""
        return y.reshape(y.shape[0], *self.output)

    def keep(self, name: str, array: Any, dtype: torch.dtype, trainable: bool) -> None:
        """A tensor of the module, as parameter or buffer."""
        tensor = torch.as_tensor(np.array(array, dtype=np.float64)).to(dtype)
        if trainable:
            self.register_parameter(name, nn.Parameter(tensor))
        else:
            self.register_buffer(name, tensor)

    def keep_exact(self, name: str, array: Any, trainable: bool = False) -> None:
        """A tensor in float64, whatever the layer's dtype; as a buffer it also stays so when the module is moved."""
        self.keep(name, array, torch.float64, trainable)
        if not trainable:
            self.exact = (*self.exact, name)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        kept = {name: getattr(self, name) for name in self.exact}
        super()._apply(fn, recurse)
        for name, tensor in kept.items():  # moved to where the others went, but not rounded
            setattr(self, name, tensor.to(device=getattr(self, name).device))
        return self

    def extra_repr(self) -> str:
        """What it computes."""
        inputs = sum(d * n for d, n in self.inputs)
        return f"{self.semantics.get('target', 'layer')!r}, {inputs} inputs -> {self.output or 'scalar'}"


class FastLayer(Exported):
    """The layer through its structure: one softmax per group and direction, or per cluster."""

    def __init__(self, layer: Layer | GroupedLayer, output: tuple[int, ...], trainable: bool) -> None:
        dtype = DTYPES[layer.dtype]
        tensors = {n: t for n, t in torch_factorised.tensors_of(layer, dtype=dtype).items() if not n.startswith("box.")}
        moving = [name for name in tensors if not name.endswith(torch_factorised.COORDINATES)]
        super().__init__(layer.low, layer.high, layer.inputs, output, moving[0].replace(".", "_"))
        self.structure = torch_factorised.structure_of(layer)
        self.names: dict[str, str] = {}
        for name, tensor in tensors.items():
            self.names[name] = name.replace(".", "_")
            if name not in moving:
                self.keep_exact(self.names[name], tensor.numpy())
            else:
                self.keep(self.names[name], tensor.double().numpy(), dtype, trainable)

    def forward(self, *x: Tensor) -> Tensor:
        """Values of the layer."""
        tensors = {name: getattr(self, attribute) for name, attribute in self.names.items()}
        return self.present(torch_factorised.evaluate(self.structure, tensors, self.points(*x)))


class LiteralAttention(Exported):
    """Linear(X) = sum_i P_i X Q_i + R_0, then softmax attention with W_Q, W_K, W_V, W_O, for the queries that W_O reads."""

    used: Tensor
    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor

    def __init__(
        self, layer: Layer | GroupedLayer, made: SelfMatrices | CrossMatrices, output: tuple[int, ...], trainable: bool
    ) -> None:
        dtype = DTYPES[layer.dtype]
        super().__init__(layer.low, layer.high, layer.inputs, output, "W_Q")
        self.cross = isinstance(made, CrossMatrices)
        used = np.flatnonzero(made.W_O.any(axis=1))
        self.register_buffer("used", torch.tensor(used, dtype=torch.int64))
        W_O = made.W_O[used]
        if isinstance(made, CrossMatrices):
            self._map("query", made.query, trainable)
            self._map("context", made.context, trainable)
        else:
            self._map("linear", made.linear, trainable)
        for name, matrix in (("W_Q", made.W_Q), ("W_K", made.W_K), ("W_V", made.W_V), ("W_O", W_O)):
            self.keep(name, matrix, dtype, trainable)

    def _map(self, name: str, linear: LinearMap, trainable: bool) -> None:
        if linear.P:
            self.keep_exact(f"{name}_P", np.stack(linear.P), trainable)
            self.keep_exact(f"{name}_Q", np.stack(linear.Q), trainable)
        self.keep_exact(f"{name}_R", linear.R_0, trainable)

    def _linear(self, name: str, X: Tensor) -> Tensor:
        """Linear(X) in float64, where x - centre and value + slope (x - centre) cancel; rounded once."""
        R: Tensor = getattr(self, f"{name}_R").double()
        if not hasattr(self, f"{name}_P"):
            return R.expand(X.shape[0], *R.shape).to(X.dtype)
        P, Q = getattr(self, f"{name}_P").double(), getattr(self, f"{name}_Q").double()
        moved: Tensor = torch.einsum("ipd,bdn,inm->bpm", P, X.double(), Q)
        return (moved + R).to(X.dtype)

    def forward(self, *x: Tensor) -> Tensor:
        """Values of the layer, by literal attention."""
        flat = self.points(*x)
        parts = []
        first = 0
        for d, n in self.inputs:
            parts.append(flat[:, first : first + d * n].reshape(-1, n, d).transpose(1, 2))
            first += d * n
        if self.cross:
            Z_Q, Z_K = self._linear("query", parts[0]), self._linear("context", parts[-1])
        else:
            Z_K = self._linear("linear", parts[0])
            Z_Q = Z_K
        Z_Q = Z_Q[:, :, self.used]
        q, k, v = (self.W_Q @ Z_Q).transpose(1, 2), (self.W_K @ Z_K).transpose(1, 2), (self.W_V @ Z_K).transpose(1, 2)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)
        return self.present(mixed.transpose(1, 2) @ self.W_O)


class AttentionBlock(Exported):
    """A stock torch.nn.MultiheadAttention (`attention`) that holds the layer, with the tokens it is fed and the sum after it."""

    query_map: Tensor
    query_constant: Tensor
    context: Tensor
    centre: Tensor
    mix: Tensor

    def __init__(self, layer: Layer | GroupedLayer, output: tuple[int, ...], head: Head) -> None:
        dtype = DTYPES[layer.dtype]
        super().__init__(layer.low, layer.high, layer.inputs, output, "context")
        n_q, k, D = head.query_map.shape
        d_out = head.outputs[0]
        self.d_out = d_out
        width = max(D + 1 + n_q, k + d_out)  # of all tokens, and of the head
        self.attention = nn.MultiheadAttention(width, 1, bias=False, batch_first=True, dtype=dtype)
        # Query token [x - centre, 1, e_c]; context token [key_j, value_j].
        W_Q = np.zeros((width, width))
        W_Q[:k, :D] = head.query_map[0]
        W_Q[:k, D] = head.query_constant.min(axis=0)
        W_Q[:k, D + 1 : D + 1 + n_q] = (head.query_constant - head.query_constant.min(axis=0)).T
        W_K, W_V = np.zeros((width, width)), np.zeros((width, width))
        W_K[:k, :k] = np.eye(k)
        W_V[:d_out, k : k + d_out] = np.eye(d_out)
        with torch.no_grad():
            stacked = np.concatenate([math.sqrt(width) * W_Q, W_K, W_V])
            self.attention.in_proj_weight.copy_(torch.tensor(stacked))
            self.attention.out_proj.weight.copy_(torch.eye(width, dtype=dtype))
        context = np.zeros((head.tokens, width))
        context[:, :k], context[:, k : k + d_out] = head.keys, head.values
        self.keep("context", context, dtype, False)
        self.keep_exact("centre", head.centre)
        self.keep("mix", head.mix, dtype, False)
        if head.slopes is not None:
            slopes = np.zeros((head.tokens, width, D))
            slopes[:, k : k + d_out] = head.slopes
            self.keep("context_slopes", slopes, dtype, False)
        self.queries, self.dimension, self.width = n_q, D, width

    def embed(self, *x: Tensor) -> tuple[Tensor, Tensor]:
        """Query tokens (B, n_q, width) and context tokens (B, m, width) for the attention module."""
        inside = self.points(*x)
        z = (inside.double() - self.centre).to(inside.dtype)
        query = z.new_zeros(len(z), self.queries, self.width)
        query[:, :, : self.dimension] = z[:, None]
        query[:, :, self.dimension] = 1.0
        place = torch.arange(self.queries, device=z.device)
        query[:, place, self.dimension + 1 + place] = 1.0
        context = self.context.expand(len(z), *self.context.shape)
        if hasattr(self, "context_slopes"):
            context = context + torch.einsum("mwd,bd->bmw", self.context_slopes, z)
        return query, context

    def forward(self, *x: Tensor) -> Tensor:
        """Values of the layer, by MultiheadAttention."""
        query, context = self.embed(*x)
        out = self.attention(query, context, context, need_weights=False)[0][:, :, : self.d_out]
        return self.present(torch.einsum("bcr,cn->brn", out, self.mix))


def to_torch(
    layer: Layer | GroupedLayer, output: tuple[int, ...], made: SelfMatrices | CrossMatrices | None, trainable: bool
) -> Exported:
    """The fast module, or the literal one where its matrices are given."""
    return FastLayer(layer, output, trainable) if made is None else LiteralAttention(layer, made, output, trainable)


def to_multihead_attention(layer: Layer | GroupedLayer, output: tuple[int, ...]) -> AttentionBlock:
    """The layer inside a stock torch.nn.MultiheadAttention."""
    if layer.dtype not in DTYPES:
        raise BadInput(f"`dtype` (={layer.dtype!r}) has no torch dtype.")
    return AttentionBlock(layer, output, head_of(layer))
