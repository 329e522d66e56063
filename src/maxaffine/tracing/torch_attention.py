"""Softmax attention of torch on traced arrays: scaled_dot_product_attention, and what nn.MultiheadAttention calls."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from maxaffine.tracing import numpy_functions as of_numpy
from maxaffine.tracing.array import Traced, constant, matmul, named, rearranged
from maxaffine.tracing.record import Recorder


def scaled_dot_product(
    r: Recorder, q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Traced:  # fmt: skip
    """softmax(q k^T scale + mask) v."""
    if dropout_p > 0.0:
        raise r.stop("attention with dropout is random", "call .eval() on the module")
    if enable_gqa:
        raise r.stop("`enable_gqa` repeats keys for several heads", "repeat them in the function")
    return matmul(r, _weights(r, q, k, attn_mask, is_causal, scale), v)


def _weights(r: Recorder, q: Any, k: Any, mask: Any, causal: bool, scale: float | None) -> Traced:
    """softmax(q k^T scale + mask)."""
    shape = tuple(int(n) for n in np.shape(q)[-1:]) or (1,)
    logits = named(r, "multiply", matmul(r, q, _swapped(r, k, -1, -2)), 1.0 / math.sqrt(shape[0]) if scale is None else scale)
    kept = None
    if causal:
        kept = np.tril(np.ones(logits.shape[-2:]))
    elif mask is not None:
        if isinstance(mask, Traced):
            raise r.stop("the mask of an attention depends on the point", "write the softmax out")
        given = constant(mask)
        kept = given.astype(np.float64) if given.dtype == bool else np.isfinite(given).astype(np.float64)
        logits = logits if given.dtype == bool else named(r, "add", logits, np.where(np.isfinite(given), given, 0.0))
    powers = named(r, "exp", logits)
    powers = powers if kept is None else named(r, "multiply", powers, kept)
    return named(r, "divide", powers, of_numpy.total(r, powers, -1, True))


def multi_head(
    r: Recorder, query: Any, key: Any, value: Any, width: int, heads: int, in_weight: Any, in_bias: Any, bias_k: Any, bias_v: Any,
    add_zero: bool, dropout: float, out_weight: Any, out_bias: Any, training: bool = True, key_padding_mask: Any = None,
    need_weights: bool = True, attn_mask: Any = None, use_separate_proj_weight: bool = False, q_proj_weight: Any = None,
    k_proj_weight: Any = None, v_proj_weight: Any = None, **more: Any,
) -> tuple[Traced, None]:  # fmt: skip
    """What nn.MultiheadAttention does to (L, B, E), (S, B, E), (S, B, E); the weights are not handed out."""
    if training and dropout > 0.0:
        raise r.stop("attention with dropout is random", "call .eval() on the module")
    if bias_k is not None or bias_v is not None or add_zero or key_padding_mask is not None or attn_mask is not None:
        raise r.stop("nn.MultiheadAttention with masks or added tokens is not read", "use scaled_dot_product_attention")
    maps = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else np.split(constant(in_weight), 3)
    shifts = [None] * 3 if in_bias is None else np.split(constant(in_bias), 3)
    tokens = [_mapped(r, _swapped(r, x, 0, 1), W, b) for x, W, b in zip((query, key, value), maps, shifts, strict=True)]
    each = width // heads
    parts = [scaled_dot_product(r, *(one[..., h * each : (h + 1) * each] for one in tokens)) for h in range(heads)]
    joined = parts[0] if heads == 1 else of_numpy.concatenate(r, parts, -1)
    return _swapped(r, _mapped(r, joined, out_weight, out_bias), 0, 1), None


def _mapped(r: Recorder, x: Any, weight: Any, bias: Any) -> Any:
    """x W^T + b, of constants a constant."""
    if not isinstance(x, Traced):
        found = constant(x) @ np.swapaxes(constant(weight), -1, -2)
        return found if bias is None else found + constant(bias)
    mapped = matmul(r, x, np.swapaxes(constant(weight), -1, -2))
    return mapped if bias is None else named(r, "add", mapped, bias)


def _swapped(r: Recorder, x: Any, a: int, b: int) -> Any:
    if isinstance(x, Traced):
        return rearranged(r, lambda c: np.swapaxes(c, a, b), x)
    return np.swapaxes(constant(x), a, b)
