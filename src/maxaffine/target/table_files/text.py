"""Tables as text: CSV in the long form, one entry per row, or a matrix with an axis along its top and one down its side.

The long form has a header of names or none; the last column (or the one of --values) holds the values, the others the
coordinates.  A matrix is a first row whose first cell is no number (empty, or `x/y`, the names of the side and of the top)
and whose other cells are.  Cells are separated by commas, semicolons or tabs; an empty cell, NA or NaN is a missing value; lines
that begin with # are remarks.
"""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.core.errors import BadInput
from maxaffine.core.progress import Progress
from maxaffine.target.table_files.contents import Array, Contents, grid, listed, pick, rows

MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "-"))
ROWS = 65_536  # rows between two reports of progress


def read_csv(path: Path, shown: str, values: str | None, axes: str | None, progress: Progress) -> Contents:
    """The grid or the samples of a text file."""
    with path.open("rb") as handle:
        text = io.TextIOWrapper(handle, encoding="utf-8-sig", newline="")
        try:
            lines = _Lines(text, handle, path.stat().st_size, progress)
            first = next(lines, None)
            if first is None:
                raise BadInput(f"{shown} is empty; give a header such as x,y,value and one entry per line.")
            reader = csv.reader(chain([first], lines), delimiter=_separator(first), strict=True)
            head = [cell.strip() for cell in next(reader)]
            if len(head) > 1 and not _is_number(head[0]) and all(_is_number(cell) for cell in head[1:]):
                return _matrix(reader, lines, head, shown, values, axes)
            return _long(reader, lines, head, shown, values, axes)
        except UnicodeDecodeError as failure:
            raise BadInput(f"{shown} is not UTF-8 text ({failure.reason}); tables as text are CSV.") from None
        except (csv.Error, StopIteration) as failure:
            raise BadInput(f"{shown} is not CSV: {failure or 'it ends too early'}.") from None
        finally:
            text.detach()


class _Lines:
    """Lines that say something, with their number in the file; how far the file is read is reported on the way."""

    def __init__(self, text: io.TextIOWrapper, handle: Any, size: int, progress: Progress) -> None:
        self.text, self.handle, self.size, self.progress = text, handle, max(size, 1), progress
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        for line in self.text:
            self.number += 1
            if self.number % ROWS == 0:
                self.progress("read the table (percent)", min(100, 100 * self.handle.tell() // self.size), 100)
            if line.strip() and not line.lstrip().startswith("#"):
                return line
        raise StopIteration


def _separator(line: str) -> str:
    return next((mark for mark in "\t;" if mark in line), ",")


def _long(reader: Any, lines: _Lines, head: list[str], shown: str, values: str | None, axes: str | None) -> Contents:
    named = not any(_is_number(cell) for cell in head)
    if len(head) < 2:
        raise BadInput(f"{shown} has one column ({head[0][:60]!r}); a table needs coordinates and a value, such as x,y,value.")
    D = len(head) - 1
    columns = head if named else [*(["x"] if D == 1 else [f"x{d + 1}" for d in range(D)]), "value"]
    for column in columns:
        if not column:
            raise BadInput(f"{shown}: a column has no name in the header; name every column, such as x,y,value.")
        if columns.count(column) > 1:
            raise BadInput(f"{shown}: the header names {column[:60]!r} twice; columns need names of their own.")
    outputs = [columns[-1]] if values is None else pick(values, columns, shown, "--values", "its values are")
    others = [column for column in columns if column not in outputs]
    if not others:
        raise BadInput(f"--values (={values!r}) leaves no column of {shown} for the coordinates; there are {listed(columns)}.")
    coordinates = others if axes is None else pick(axes, others, shown, "--axes", "its coordinates are")
    table = _numbers(reader, lines, columns, [*coordinates, *outputs], None if named else head, shown)
    points, found = table[:, : len(coordinates)], table[:, len(coordinates) :]
    unused = [column for column in others if column not in coordinates]
    said = [f"not used: {listed(unused)}"] if unused else []
    made = np.ascontiguousarray(found[:, 0] if len(outputs) == 1 else found)
    return rows(shown, coordinates, np.ascontiguousarray(points), made, outputs, said)


def _numbers(reader: Any, lines: _Lines, columns: list[str], used: list[str], first: list[str] | None, shown: str) -> Array:
    """The used columns of every row, float64; a missing cell is NaN."""
    places = [columns.index(name) for name in used]
    collected = array("d")
    for row in chain([first] if first is not None else [], reader):
        if len(row) != len(columns):
            raise BadInput(
                f"{shown}, line {lines.number}: {len(row)} cells came where {len(columns)} ({', '.join(columns[:8])}"
                f"{', ..' if len(columns) > 8 else ''}) are wanted."
            )
        cells = [row[place] for place in places]
        try:
            numbers = [float(cell) for cell in cells]
        except ValueError:
            numbers = [_cell(cell, name, lines.number, shown) for cell, name in zip(cells, used, strict=True)]
        collected.extend(numbers)
    if not collected:
        raise BadInput(f"{shown} has a header and no entries; give one entry per line below it.")
    return np.frombuffer(collected, dtype=np.float64).reshape(-1, len(used))


def _matrix(reader: Any, lines: _Lines, head: list[str], shown: str, values: str | None, axes: str | None) -> Contents:
    """A first row with the second axis, and rows that begin with the first."""
    if values is not None:
        raise BadInput(f"{shown} is a matrix of one table, whose values have no name; leave --values out.")
    corner = re.split(r"[/\\]", head[0]) if head[0] else []
    names = [part.strip() for part in (axes.split(",") if axes is not None else corner)]
    if axes is not None and len(names) != 2:
        raise BadInput(f"--axes (={axes!r}) must name the side and the top of the matrix in {shown}, such as --axes x,y.")
    if len(names) != 2 or not all(names) or names[0] == names[1]:
        names = ["x1", "x2"]
    columns = ["the side", *head[1:]]
    top = np.array([float(cell) for cell in head[1:]])
    table = _numbers(reader, lines, columns, columns, None, shown) if len(set(columns)) == len(columns) else None
    if table is None:
        raise BadInput(f"{shown}: an entry of the axis along the top occurs twice; an axis must be strictly monotone.")
    return grid(shown, names, [np.ascontiguousarray(table[:, 0]), top], np.ascontiguousarray(table[:, 1:]), ["value"])


def _cell(cell: str, column: str, line: int, shown: str) -> float:
    try:
        return float(cell)
    except ValueError:
        if cell.strip().lower() in MISSING:
            return float("nan")
        raise BadInput(f"{shown}, line {line}, column {column[:60]}: {cell[:60]!r} is not a number.") from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return cell.strip().lower() not in MISSING
