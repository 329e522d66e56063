"""A layer as a torch.nn.Module: the literal attention, or the fast form through its structure.

Both take a batch of points (B, D) and give what `layer(x)` gives; sequences are (B, d, n), two inputs two arguments.  x is taken
as it comes, in float64, and clamped to the box.  The fast form computes in float64 throughout and rounds its answer to the
module's dtype; the literal forms round z once and run in the module's dtype.  That is the layer's, float32 for bfloat16 (whose
numbers float32 holds exactly); with `trainable=True` keys and values are parameters, and a compiled layer can be fine-tuned.
What maps x to coordinates is stored in float64 and stays so through `.float()` and `.to(dtype)`: a rounded centre costs four
digits on a box around 1000.

`module.statement` says what is proved of the module, where something is (stated_module.py).  Needs the extra
``maxaffine[torch]``.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from maxaffine.export.head import Head, head_of
from maxaffine.export.stated_module import Stated
from maxaffine.layer.records import CrossMatrices, LinearMap, SelfMatrices
from maxaffine.layer.side_by_side import AnyLayer
from maxaffine.runtime import torch_factorised, torch_structure

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.float32}


class Exported(Stated):
    """What all exported layers share: box, shapes, what the numbers mean (`semantics`) and what is proved (`statement`)."""

    high: Tensor

    def __init__(self, layer: AnyLayer, output: tuple[int, ...], carrier: str) -> None:
        super().__init__()
        self.inputs = tuple((int(d), int(n)) for d, n in layer.inputs)
        self.output = tuple(output)
        self.semantics: dict[str, Any] = {}
        self.carrier = carrier
        self.keep_exact("low", layer.low)
        self.keep_exact("high", layer.high)

    @property
    def dtype(self) -> torch.dtype:
        """What the module answers in: the dtype of the tensor named `carrier`."""
        found: torch.dtype = getattr(self, self.carrier).dtype
        return found

    def joined(self, *x: Tensor) -> Tensor:
        """Points (B, D) as they came; a sequence (B, d, n) is read column by column."""
        flat = [one.transpose(1, 2).reshape(one.shape[0], -1) if one.dim() == 3 else one for one in x]
        return flat[0] if len(flat) == 1 else torch.cat(flat, dim=1)

    def points(self, *x: Tensor) -> Tensor:
        """Points (B, D) in float64, moved into the box."""
        return torch.clamp(self.joined(*x).to(torch.float64), self.low, self.high)

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

    def extra_repr(self) -> str:
        """What it computes."""
        inputs = sum(d * n for d, n in self.inputs)
        line = f"{self.semantics.get('target', 'layer')!r}, {inputs} inputs -> {self.output or 'scalar'}"
        return line if self.statement is None else f"{line}\n{self.statement}"


class FastLayer(Exported):
    """The layer through its structure: one softmax per group and direction, clusters by two levels, all in float64."""

    def __init__(self, layer: AnyLayer, output: tuple[int, ...], trainable: bool) -> None:
        dtype = DTYPES[layer.dtype]
        tensors = {n: t for n, t in torch_factorised.tensors_of(layer, dtype=dtype).items() if not n.startswith("box.")}
        moving = [name for name in tensors if not name.endswith(torch_factorised.COORDINATES)]
        super().__init__(layer, output, moving[0].replace(".", "_"))
        self.structure = torch_structure.structure_of(layer)
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
        run = torch_factorised.evaluate if torch.compiler.is_compiling() else torch_factorised.in_chunks
        return self.present(run(self.structure, tensors, self.points(*x)).to(self.dtype))


class LiteralAttention(Exported):
    """Linear(X) = sum_i P_i X Q_i + R_0, then softmax attention with W_Q, W_K, W_V, W_O, for the queries that W_O reads."""

    used: Tensor
    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor

    def __init__(
        self, layer: AnyLayer, made: SelfMatrices | CrossMatrices, output: tuple[int, ...], trainable: bool
    ) -> None:
        dtype = DTYPES[layer.dtype]
        super().__init__(layer, output, "W_Q")
        self.cross = isinstance(made, CrossMatrices)
        used = np.flatnonzero(made.W_O.any(axis=1))
        self.register_buffer("used", torch.tensor(used, dtype=torch.int64))
        if isinstance(made, CrossMatrices):
            self._map("query", made.query, trainable)
            self._map("context", made.context, trainable)
        else:
            self._map("linear", made.linear, trainable)
        for name, matrix in (("W_Q", made.W_Q), ("W_K", made.W_K), ("W_V", made.W_V), ("W_O", made.W_O[used])):
            self.keep(name, matrix, dtype, trainable)

    def _map(self, name: str, linear: LinearMap, trainable: bool) -> None:
        for letter, array in (("P", np.stack(linear.P)), ("Q", np.stack(linear.Q)), ("R", linear.R_0)):
            self.keep_exact(f"{name}_{letter}", array, trainable)

    def _linear(self, name: str, X: Tensor) -> Tensor:
        """Linear(X) in float64, where x - centre and value + slope (x - centre) cancel; rounded once."""
        P, Q, R = (getattr(self, f"{name}_{letter}").double() for letter in "PQR")
        # Two at a time: a path over three, where opt_einsum is installed, depends on the batch size, and graphs with it.
        moved: Tensor = torch.einsum("bipn,inm->bpm", torch.einsum("ipd,bdn->bipn", P, X), Q) + R
        return moved.to(self.dtype)

    def forward(self, *x: Tensor) -> Tensor:
        """Values of the layer, by literal attention."""
        flat = self.points(*x).split([d * n for d, n in self.inputs], dim=1)
        parts = [part.reshape(-1, n, d).transpose(1, 2) for part, (d, n) in zip(flat, self.inputs, strict=True)]
        Z_Q = self._linear("query" if self.cross else "linear", parts[0])
        Z_K = self._linear("context", parts[-1]) if self.cross else Z_Q
        q, k, v = self.W_Q @ Z_Q[:, :, self.used], self.W_K @ Z_K, self.W_V @ Z_K
        scores = q.transpose(1, 2) @ k
        # Written out: the exponential of fused attention on the CPU may be off by 20 units in the last place of float32.
        mass = torch.exp(scores - scores.detach().amax(2, keepdim=True))
        alpha = mass / mass.sum(2, keepdim=True)
        return self.present(v @ alpha.transpose(1, 2) @ self.W_O)


class AttentionBlock(Exported):
    """A stock torch.nn.MultiheadAttention (`attention`) that holds the layer, with the tokens it is fed and the sum after it."""

    context: Tensor
    centre: Tensor
    mix: Tensor

    def __init__(self, layer: AnyLayer, output: tuple[int, ...], head: Head) -> None:
        dtype = DTYPES[layer.dtype]
        super().__init__(layer, output, "context")
        n_q, k, D = head.query_map.shape
        m, d_out = head.values.shape
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
        context = np.zeros((m, width))
        context[:, :k], context[:, k : k + d_out] = head.keys, head.values
        self.keep("context", context, dtype, False)
        self.keep_exact("centre", head.centre)
        self.keep("mix", head.mix, dtype, False)
        if head.slopes is not None:
            slopes = np.zeros((m, width, D))
            slopes[:, k : k + d_out] = head.slopes
            self.keep("context_slopes", slopes, dtype, False)
        self.queries, self.dimension, self.width, self.copies = n_q, D, width, head.copies

    def embed(self, *x: Tensor) -> tuple[Tensor, Tensor]:
        """Query tokens (B, n_q, width) and context tokens (B, m, width) for the attention module."""
        z = (self.points(*x).repeat(1, self.copies) - self.centre).to(self.dtype)
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
        """Values of the layer, by MultiheadAttention; asked for its weights, it multiplies and exponentiates plainly."""
        query, context = self.embed(*x)
        out = self.attention(query, context, context, need_weights=True)[0][:, :, : self.d_out]
        return self.present(torch.einsum("bcr,cn->brn", out, self.mix))


def to_torch(
    layer: AnyLayer, output: tuple[int, ...], made: SelfMatrices | CrossMatrices | None, trainable: bool
) -> Exported:
    """The fast module, or the literal one where its matrices are given."""
    return FastLayer(layer, output, trainable) if made is None else LiteralAttention(layer, made, output, trainable)


def to_multihead_attention(layer: AnyLayer, output: tuple[int, ...]) -> AttentionBlock:
    """The layer inside a stock torch.nn.MultiheadAttention."""
    return AttentionBlock(layer, output, head_of(layer))
