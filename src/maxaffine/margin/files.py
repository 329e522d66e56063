"""Tokens from a file: .npz with X, Y, v (and W, start) or keys and scores, or .csv with one token per line.

    input,score,k1,k2,..            a key and its score
    input,label,value,x1,x2,..      a token, its value v.x, and the label +-1 of its input
"""

import csv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.margin.examples import EXAMPLES
from maxaffine.margin.problem import Tokens, labels

FORMS = (("X", "Y", "v"), ("keys", "scores"))


@dataclass(frozen=True)
class Given:
    """What a file holds: the tokens, and the query to begin at where it has one."""

    tokens: Tokens
    start: Array | None
    name: str


def read(source: str) -> Given:
    """The tokens of a file, or of an example by name."""
    if source in EXAMPLES:
        return Given(EXAMPLES[source](), None, source)
    path = Path(source)
    if path.suffix.lower() not in (".npz", ".csv"):
        names = ", ".join(EXAMPLES)
        raise BadInput(f"`DATA` (={source!r}) must be a file .npz or .csv, or one of the examples {names}.")
    if not path.is_file():
        raise BadInput(f"`DATA` (={source!r}): there is no such file.")
    return _npz(path) if path.suffix.lower() == ".npz" else _csv(path)


def _npz(path: Path) -> Given:
    try:
        with np.load(path, allow_pickle=False) as archive:
            held = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as failure:
        raise BadInput(f"cannot read {str(path)!r} as .npz: {failure}.") from None
    form = next((form for form in FORMS if set(form) <= set(held)), None)
    if form is None:
        raise BadInput(f"{str(path)!r} holds {', '.join(held) or 'nothing'}; it must hold X, Y and v, or keys and scores.")
    if form == FORMS[0]:
        tokens = Tokens.of(held["X"], held["Y"], held["v"], held.get("W"))
    else:
        tokens = Tokens(held["keys"], held["scores"])
    start = tokens.query(held["start"], "start") if "start" in held else None
    return Given(tokens, start, path.name)


def _csv(path: Path) -> Given:
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            rows = [(reader.line_num, row) for reader in [csv.reader(handle)] for row in reader if any(map(str.strip, row))]
    except (OSError, UnicodeDecodeError, csv.Error) as failure:
        raise BadInput(f"cannot read {str(path)!r} as CSV: {failure}.") from None
    head = [cell.strip() for cell in rows[0][1]] if rows else []
    labelled = head[:3] == ["input", "label", "value"]
    if not labelled and head[:2] != ["input", "score"]:
        raise BadInput(
            f"{str(path)!r}, line 1: the header must begin with input,score or with input,label,value, and then name the "
            f"coordinates of the key; it is {','.join(head[:6]) or 'empty'}."
        )
    width = 3 if labelled else 2
    if len(head) == width:
        raise BadInput(f"{str(path)!r}, line 1: after {','.join(head)} the coordinates of the key must follow.")
    groups: dict[str, list[list[float]]] = {}
    for line, row in rows[1:]:
        if len(row) != len(head):
            raise BadInput(f"{str(path)!r}, line {line}: {len(row)} cells came where {len(head)} are wanted.")
        try:
            numbers = [float(cell) for cell in row[1:]]
        except ValueError:
            raise BadInput(f"{str(path)!r}, line {line}: every cell after the input must be a number.") from None
        if not np.isfinite(numbers).all():
            raise BadInput(f"{str(path)!r}, line {line}: every number must be finite; leave such tokens out.")
        groups.setdefault(row[0].strip(), []).append(numbers)
    sizes = {len(group) for group in groups.values()}
    if len(sizes) != 1:
        counts = ", ".join(f"{name} has {len(group)}" for name, group in list(groups.items())[:4])
        raise BadInput(f"{str(path)!r}: every input must have the same number of tokens; {counts or 'there is no token'}.")
    data = np.array(list(groups.values()))
    if not labelled:
        return Given(Tokens(data[:, :, 1:], data[:, :, 0]), None, path.name)
    y = labels(data[:, 0, 0], len(data))
    if (data[:, :, 0] != y[:, None]).any():
        i = int(np.flatnonzero((data[:, :, 0] != y[:, None]).any(axis=1))[0])
        raise BadInput(f"{str(path)!r}: input {list(groups)[i]} has two labels; all its tokens carry the same one.")
    return Given(Tokens(data[:, :, 2:], y[:, None] * data[:, :, 1]), None, path.name)
