"""Stock BERT- and GPT-style checkpoints, run far enough to see what every head sees.

The forward pass is NumPy in float64: embeddings, then blocks of attention and feed-forward with residuals and layer norms, after
the block (BERT, RoBERTa, DistilBERT) or before (GPT-2).  What is kept of layer i is its attention's input and the weights of its
heads.
"""

import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.inspection.weights import Weights
from maxaffine.report.diagnosis import softmax


@dataclass(frozen=True)
class Names:
    """Where a family keeps its tensors; {i} is the layer."""

    words: str
    positions: str
    block: str
    attention: list[str]  # query, key, value, or one fused
    output: str
    norms: list[str]
    feed: list[str]
    types: str | None = None
    norm: str | None = None  # of the embeddings

    @property
    def probe(self) -> str:
        """The tensor by which a family is known."""
        return f"{self.block}{self.attention[0]}.weight"


TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
FAMILIES = {family: Names(**names) for family, names in TABLE.items()}
PREFIXES = ("", "bert.", "roberta.", "distilbert.", "transformer.", "model.")


@dataclass(frozen=True)
class Model:
    """A checkpoint that can be run: its family, sizes and weights."""

    weights: Weights
    names: Names
    prefix: str
    family: str
    layers: int
    heads: int
    epsilon: float
    offset: int  # of positions: RoBERTa counts from two

    @property
    def causal(self) -> bool:
        """Whether a token sees only what came before it."""
        return self.family == "gpt2"

    @classmethod
    def of(cls, weights: Weights, config: Mapping[str, Any], heads: int | None = None) -> "Model":
        """The model behind the names of its tensors; the number of heads is read from config.json unless given."""
        kinds = [(f, p) for f, known in FAMILIES.items() for p in PREFIXES if p + known.probe.format(i=0) in weights]
        if not kinds and any(re.search(r"layers\.0\.self_attn\.q_proj\.weight", name) for name in weights.entries):
            raise BadInput(
                f"{weights.shown} uses rotary position embeddings, which are not supported; "
                "give W_Q, W_K, W_V and X to maxaffine.inspect."
            )
        if not kinds:
            raise BadInput(f"{weights.shown} is not a supported checkpoint; supported are BERT, RoBERTa, DistilBERT and GPT-2.")
        family, prefix = kinds[0]
        names = FAMILIES[family]
        pattern = re.compile(re.escape(prefix) + re.escape(names.probe).replace(r"\{i\}", r"(\d{1,6})"))
        found = sorted(int(match.group(1)) for match in map(pattern.fullmatch, weights.entries) if match)
        if found != list(range(len(found))):
            raise BadInput(f"{weights.shown} lacks layers: it has {found[:8]}.")
        count = heads or config.get("num_attention_heads") or config.get("n_head") or config.get("n_heads")
        shape = weights.shape(prefix + names.words + ".weight")
        if len(shape) != 2 or not isinstance(count, int) or not 0 < count <= shape[1] or shape[1] % count:
            raise BadInput(
                f"the number of heads (={count!r}) must divide the width of the embeddings {shape}; it is read from "
                "config.json beside the weights, or given with --heads."
            )
        usual = 1e-5 if family == "gpt2" else 1e-12
        epsilon = float(config.get("layer_norm_eps", config.get("layer_norm_epsilon", usual)))
        offset = 2 if config.get("model_type") == "roberta" or prefix == "roberta." else 0
        return cls(weights, names, prefix, family, len(found), count, epsilon, offset)

    def head(self, layer: int, head: int) -> tuple[list[Array], list[Array]]:
        """W_Q, W_K, W_V of one head, (d_head, d_model) as in torch.nn.Linear, and its biases."""
        if not 0 <= layer < self.layers or not 0 <= head < self.heads:
            there = f"layers are 0..{self.layers - 1}, heads 0..{self.heads - 1}"
            raise BadInput(f"layer {layer}, head {head} does not exist: {there}.")
        W, b = self._projections(layer)
        size = len(W[0]) // self.heads
        rows = slice(head * size, (head + 1) * size)
        return [matrix[rows] for matrix in W], [bias[rows] for bias in b]

    def inputs(self, sequences: Sequence[Sequence[int]]) -> Iterator[tuple[int, list[Array]]]:
        """Layer by layer, the tokens (n, d_model) that the attention of that layer sees, for every sequence."""
        states = [self._embed(np.asarray(ids, dtype=np.int64)) for ids in sequences]
        for layer in range(self.layers):
            seen = [self._norm(h, layer, 0) for h in states] if self.causal else states
            yield layer, seen
            W, b = self._projections(layer)
            states = [self._block(h, x, layer, W, b) for h, x in zip(states, seen, strict=True)]
        yield self.layers, states

    def _embed(self, ids: NDArray[np.int64]) -> Array:
        words = self.weights[self.prefix + self.names.words + ".weight"]
        places = self.weights[self.prefix + self.names.positions + ".weight"]
        if ids.ndim != 1 or not len(ids) or ids.min() < 0 or ids.max() >= len(words):
            raise BadInput(f"token ids must lie between 0 and {len(words) - 1}.")
        if len(ids) + self.offset > len(places):
            most = len(places) - self.offset
            raise BadInput(f"a sequence of {len(ids)} tokens is longer than the model's {most} positions.")
        h = words[ids] + places[self.offset : self.offset + len(ids)]
        if self.names.types is not None:
            h = h + self.weights[self.prefix + self.names.types + ".weight"][0]
        return h if self.names.norm is None else self._normalise(h, self.prefix + self.names.norm)

    def _block(self, h: Array, x: Array, layer: int, W: list[Array], b: list[Array]) -> Array:
        n, size = len(x), len(W[0]) // self.heads
        q, k, v = ((x @ M.T + c).reshape(n, self.heads, size).transpose(1, 0, 2) for M, c in zip(W, b, strict=True))
        logits = q @ k.transpose(0, 2, 1) / math.sqrt(size)
        if self.causal:
            logits = np.where(np.tri(n, dtype=bool), logits, -np.inf)
        mixed = softmax(logits) @ v
        out = self._linear(mixed.transpose(1, 0, 2).reshape(n, -1), layer, self.names.output)
        if self.causal:
            h = h + out
            inner = _gelu_tanh(self._linear(self._norm(h, layer, 1), layer, self.names.feed[0]))
            return h + self._linear(inner, layer, self.names.feed[1])
        h = self._norm(h + out, layer, 0)
        inner = _gelu(self._linear(h, layer, self.names.feed[0]))
        return self._norm(h + self._linear(inner, layer, self.names.feed[1]), layer, 1)

    def _projections(self, layer: int) -> tuple[list[Array], list[Array]]:
        stem = self.prefix + self.names.block.format(i=layer)
        if len(self.names.attention) == 1:  # GPT-2 keeps one matrix (d, 3 d), inputs in rows
            fused = stem + self.names.attention[0]
            return np.split(self.weights[fused + ".weight"].T, 3), np.split(self.weights[fused + ".bias"], 3)
        stems = [stem + name for name in self.names.attention]
        return [self.weights[s + ".weight"] for s in stems], [self.weights[s + ".bias"] for s in stems]

    def _linear(self, x: Array, layer: int, name: str) -> Array:
        stem = self.prefix + self.names.block.format(i=layer) + name
        W = self.weights[stem + ".weight"]
        return np.asarray(x @ (W if self.causal else W.T) + self.weights[stem + ".bias"])

    def _norm(self, x: Array, layer: int, which: int) -> Array:
        return self._normalise(x, self.prefix + self.names.block.format(i=layer) + self.names.norms[which])

    def _normalise(self, x: Array, stem: str) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + self.epsilon)
        return np.asarray(scaled * self.weights[stem + ".weight"] + self.weights[stem + ".bias"])


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1.0 + erf(x / math.sqrt(2.0))))


def _gelu_tanh(x: Array) -> Array:
    return np.asarray(0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))))
