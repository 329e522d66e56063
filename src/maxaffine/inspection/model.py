"""Every head of a checkpoint on some sentences: what `maxaffine inspect` reports."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maxaffine.core.errors import BadInput
from maxaffine.core.progress import Progress, silent
from maxaffine.inspection.head import HeadInspection, inspect
from maxaffine.inspection.transformer import Model
from maxaffine.inspection.weights import MAX_BYTES, read_weights

SENTENCES = tuple(Path(__file__).with_name("sentences.md").read_text(encoding="utf-8").splitlines())
MOST_TOKENS = 20_000


@dataclass(frozen=True)
class ModelInspection:
    """All heads that were looked at, in order, and the tokens they were looked at on."""

    heads: tuple[HeadInspection, ...]
    tokens: tuple[tuple[str, ...], ...]
    layers: int
    per_layer: int
    family: str

    @property
    def near_hard(self) -> int:
        """How many heads are close to a hard lookup on these tokens."""
        return sum(head.near_hard for head in self.heads)

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary."""
        return {
            "family": self.family, "layers": self.layers, "heads_per_layer": self.per_layer,
            "sequences": len(self.tokens), "tokens": sum(len(t) for t in self.tokens), "near_hard": self.near_hard,
            "heads": [head.to_json() for head in self.heads],
        }  # fmt: skip


def inspect_model(
    path: str | Path, sentences: Sequence[str] | None = None, ids: Sequence[Sequence[int]] | None = None,
    layer: int | None = None, head: int | None = None, heads: int | None = None, max_bytes: int = MAX_BYTES,
    progress: Progress = silent,
) -> ModelInspection:  # fmt: skip
    """Look at the heads of a checkpoint, all of them or one layer's or one, on sentences or token ids.

    Sentences need the package `tokenizers` and the model's tokenizer.json; without either, give `ids`.
    """
    weights, config = read_weights(path, max_bytes)
    model = Model.of(weights, config, heads)
    if ids is None:
        ids, words = tokenize(path, sentences or SENTENCES)
    else:
        words = tuple(tuple(str(i) for i in row) for row in ids)
    if not ids or any(len(row) < 2 for row in ids):
        raise BadInput("every sequence needs at least two tokens.")
    if sum(len(row) for row in ids) > MOST_TOKENS:
        raise BadInput(f"the sequences have more than {MOST_TOKENS:,} tokens in all; give fewer.")
    wanted = [h for h in range(model.heads) if head is None or h == head]
    if (layer is not None and not 0 <= layer < model.layers) or not wanted:
        model.head(layer if layer is not None else 0, head if head is not None else 0)  # says which there are
    found = []
    for index, states in model.inputs(ids):
        if index == model.layers or (layer is not None and index > layer):
            break
        progress("layers", index, model.layers)
        if layer is None or index == layer:
            found += [_look(model, index, h, states) for h in wanted]
    progress("layers", model.layers, model.layers)
    return ModelInspection(tuple(found), words, model.layers, model.heads, model.family)


def _look(model: Model, layer: int, head: int, states: list[Any]) -> HeadInspection:
    (W_Q, W_K, W_V), (b_Q, b_K, b_V) = model.head(layer, head)
    name = f"layer {layer} head {head}"
    return inspect(W_Q, W_K, W_V, states, b_Q=b_Q, b_K=b_K, b_V=b_V, causal=model.causal, name=name)


def tokenize(path: str | Path, sentences: Sequence[str]) -> tuple[list[list[int]], tuple[tuple[str, ...], ...]]:
    """Token ids and tokens of sentences by the model's own tokenizer.json."""
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise BadInput(f"{str(folder)!r} has no tokenizer.json to read sentences with; give token ids with --tokens 101,2023,..")
    try:
        from tokenizers import Tokenizer
    except ImportError:
        way_out = "pip install maxaffine[inspect], or give token ids"
        raise BadInput(f"reading sentences needs the package `tokenizers`: {way_out}.") from None
    try:
        reader = Tokenizer.from_file(str(file))
    except Exception as failure:  # the library raises plain Exception for a bad file
        raise BadInput(f"{str(file)!r} is not a tokenizer: {failure}.") from None
    reader.no_padding()
    encoded = [reader.encode(sentence) for sentence in sentences]
    return [list(one.ids) for one in encoded], tuple(tuple(one.tokens) for one in encoded)
