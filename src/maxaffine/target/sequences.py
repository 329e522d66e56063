"""Expressions of sequences: entries x[i, j] (row i, token j) as variables, output tokens separated by semicolons.

    Box.sequence(d=2, n=3)     x[2,1] is the variable x21
    Box.sequence(d=1, n=3)     x[1,2] and x[2] are x2; x12 is read as x2, as it was called before
    "x1; x1 + x2"              two output tokens of one number
    "x1, x2; x2, x1"           two output tokens of two numbers: columns (x1, x2) and (x2, x1)
"""

import re
from dataclasses import replace
from functools import partial

from maxaffine.core.errors import BadInput
from maxaffine.expression.expression import Expression
from maxaffine.expression.texts import pieces, with_commas
from maxaffine.target.box import Box, sequence_names

_INDEXED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*\[([^\[\]]*)\]")
_INDICES = re.compile(r"\s*(\d{1,6})\s*(?:,\s*(\d{1,6})\s*)?")
_WHOLE = re.compile(r"\b(sort|median|mean|average|softmax|argmax|topk|top_k|cumsum|sum|roll|flip|conv|pool)\s*\(")
_MAPS = {
    "sort": ("sort_2", "sort_3", "sort_4"), "median": ("median_3",), "mean": ("mean_5", "running_mean_5"),
    "softmax": ("softmax_3",), "argmax": ("argmax_2",), "topk": ("top_2_of_4",), "top_k": ("top_2_of_4",),
    "cumsum": ("running_mean_5",), "conv": ("convolution_5",), "pool": ("max_pooling_4", "sliding_maximum_5"),
    "flip": ("reverse_3",),
}  # fmt: skip
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read(text: str, box: Box, boxes: tuple[Box, Box] | None = None) -> tuple[Expression, tuple[int, int] | None]:
    """The expression of a text on a box, its outputs row by row, and its shape (d_out, n_out) where semicolons give one.

    Only on a box of sequences, or two `boxes` of which one is, there are several output tokens.
    """
    sequence = any(one.is_sequence for one in boxes or (box,))
    if not isinstance(text, str):
        return Expression.parse(text, box.names), None
    _doubt(text, box, boxes, sequence)
    if not (sequence or ";" in text):
        return Expression.parse(text, box.names), None
    spelled = _spelled(text, box, boxes)
    columns = pieces(spelled)
    if len(columns) == 1:
        return Expression.parse(spelled, box.names), None
    if not sequence:
        raise BadInput(
            f"the expression has semicolons, which separate output tokens, and its box ({', '.join(box.names[:8])}) is no "
            "sequence: separate outputs by commas, or give a sequence box, Box.sequence(d=1, n=3) or --sequence d=1,n=3."
        )
    if not all(one for column in columns for one in column):
        Expression.parse(with_commas(spelled), box.names)  # which says where a value is missing
    counts = [len(column) for column in columns]
    if len(set(counts)) != 1:
        told = ", ".join(str(count) for count in counts[:12])
        raise BadInput(f"every output token has as many numbers, and the {len(counts)} columns between semicolons have {told}.")
    whole = Expression.parse(with_commas(spelled), box.names)
    d_out, n_out = counts[0], len(columns)
    order = tuple(whole.outputs[c * d_out + r] for r in range(d_out) for c in range(n_out))
    return replace(whole, text=spelled.strip(), outputs=order), (d_out, n_out)


def _doubt(text: str, box: Box, boxes: tuple[Box, Box] | None, sequence: bool) -> None:
    """Say what is meant by the ways to write sequences that have no meaning here."""
    if not sequence:
        found = _INDEXED.search(text)
        if found is not None:
            raise BadInput(
                f"`{found.group()[:40]}` is an entry of a sequence, and the box ({', '.join(box.names[:8])}) is none: write a "
                "name of the box, or give a sequence box, Box.sequence(d=1, n=3) or --sequence d=1,n=3."
            )
        return
    if text.rstrip().endswith(";") and text.strip(" ;\n\t"):
        raise BadInput("the expression ends with a semicolon, which stands between output tokens only: leave the last one out.")
    whole = _WHOLE.search(text)
    if whole is not None:
        name = whole[1]
        known = ", ".join(f"`{one}`" for one in _MAPS.get(name, ()))
        where = f"the gallery has {known}" if known else "the gallery (`maxaffine gallery`) has maps of whole sequences"
        raise BadInput(
            f"`{name}` is not a function of the language, in which every number of an output is written out, by max and +; "
            f"{where}, and Python functions of an array (B, d, n) are read."
        )
    prefix = box.prefix if boxes is None else None
    if prefix is None or prefix in box.names or re.search(rf"\b{prefix}\s*:=", text):
        return
    if re.search(rf"(?<![\w.]){prefix}(?!\w|\s*\[)", text):
        entries = ", ".join(box.names[:3]) + (", .." if len(box.names) > 3 else "")
        raise BadInput(f"`{prefix}` is the whole sequence; write its entries, {entries}, also called {prefix}[i,j].")


def _spelled(text: str, box: Box, boxes: tuple[Box, Box] | None) -> str:
    """The text with the names of the box for x[i, j], and for the names that one-row sequences had before."""
    if boxes is None and box.is_sequence and box.prefix is not None:
        text = _INDEXED.sub(partial(_named, box=box, prefix=box.prefix), text)
    own = boxes or (box,)
    if not any(one.is_sequence and one.d == 1 and one.n <= 9 for one in own):
        return text
    before = [_before(one) for one in own]
    old = Box.join(*before).names if boxes else before[0].names
    names = {one: name for one, name in zip(old, box.names, strict=True) if one not in box.names}
    return _WORD.sub(lambda found: names.get(found.group(), found.group()), text)


def _before(box: Box) -> Box:
    """The box with the names that sequences had in earlier versions."""
    if not box.is_sequence or box.prefix is None or box.n > 9:
        return box
    return Box.named(sequence_names(box.d, box.n, box.prefix, old=True), box.low, box.high)


def _named(found: re.Match[str], box: Box, prefix: str) -> str:
    """The variable that x[i, j] is."""
    name, inside = found.groups()
    if name != prefix:
        raise BadInput(f"`{found.group()[:40]}`: the entries of this sequence are called {prefix}[i,j].")
    indices = _INDICES.fullmatch(inside)
    if indices is None or (indices[2] is None and box.d > 1):
        places = f"with row i from 1 to {box.d} and token j from 1 to {box.n}"
        raise BadInput(f"`{found.group()[:40]}`: write {prefix}[i,j] {places}.")
    row, token = (1, int(indices[1])) if indices[2] is None else (int(indices[1]), int(indices[2]))
    if not (1 <= row <= box.d and 1 <= token <= box.n):
        raise BadInput(
            f"`{found.group()[:40]}` is outside the sequence, whose rows are 1 to {box.d} and whose tokens are 1 to {box.n}."
        )
    return box.names[(token - 1) * box.d + row - 1]
