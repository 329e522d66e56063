"""Tables as text: CSV in the long form, one entry per row, or a matrix with an axis along its top and one down its side.

The long form has a header of names or none; the last column (or the one of --values) holds the values, the others the
coordinates.  A matrix is a first row whose first cell is no number (empty, or `x/y`, the names of the side and of the top)
and whose other cells are.  Cells are separated by commas, semicolons or tabs; an empty cell, NA or NaN is a missing value; lines
that begin with # are remarks.
"""

import csv
import io
import re
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.core.progress import Progress
from maxaffine.target.box import default_names
from maxaffine.target.table_files.contents import Contents, grid, listed, pick, rows

MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "-"))
ROWS = 65_536  # rows that are read at a time

Line = tuple[int, str]  # its number in the file, and its text


def read_csv(path: Path, shown: str, values: str | None, axes: str | None, progress: Progress) -> Contents:
    """The grid or the samples of a text file."""
    with path.open("rb") as handle:
        text = io.TextIOWrapper(handle, encoding="utf-8-sig", newline="")
        try:
            source = _Source(enumerate(text, start=1), handle, max(path.stat().st_size, 1), progress)
            first = source.take(1)
            if not first:
                raise BadInput(f"{shown} is empty; give a header such as x,y,value and one entry per line.")
            source.separator = next((mark for mark in "\t;" if mark in first[0][1]), ",")
            head = [cell.strip() for cell in next(csv.reader([first[0][1]], delimiter=source.separator, strict=True))]
            if len(head) > 1 and not _is_number(head[0]) and all(_is_number(cell) for cell in head[1:]):
                return _matrix(source, head, shown, values, axes)
            return _long(source, first, head, shown, values, axes)
        except UnicodeDecodeError as failure:
            raise BadInput(f"{shown} is not UTF-8 text ({failure.reason}); tables as text are CSV.") from None
        except csv.Error as failure:
            raise BadInput(f"{shown} is not CSV: {failure}.") from None
        finally:
            text.detach()


@dataclass
class _Source:
    """The lines of a file that say something."""

    lines: Any  # (number, text)
    handle: Any
    size: int
    progress: Progress
    separator: str = ","

    def take(self, count: int) -> list[Line]:
        """The next lines, blank ones and remarks left out; fewer at the end."""
        found: list[Line] = []
        for number, line in self.lines:
            if line.strip() and not line.lstrip().startswith("#"):
                found.append((number, line))
                if len(found) == count:
                    break
        self.progress("read the table (percent)", min(100, 100 * self.handle.tell() // self.size), 100)
        return found


def _long(source: _Source, first: list[Line], head: list[str], shown: str, values: str | None, axes: str | None) -> Contents:
    """One entry per row."""
    named = not any(_is_number(cell) for cell in head)
    if len(head) < 2:
        raise BadInput(f"{shown} has one column ({head[0][:60]!r}); a table needs coordinates and a value, such as x,y,value.")
    columns = head if named else [*default_names(len(head) - 1), "value"]
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
    table = _numbers(source, [] if named else first, columns, [*coordinates, *outputs], shown)
    points, found = table[:, : len(coordinates)], table[:, len(coordinates) :]
    unused = [column for column in others if column not in coordinates]
    said = [f"not used: {listed(unused)}"] if unused else []
    made = np.ascontiguousarray(found[:, 0] if len(outputs) == 1 else found)
    return rows(shown, coordinates, np.ascontiguousarray(points), made, outputs, said)


def _matrix(source: _Source, head: list[str], shown: str, values: str | None, axes: str | None) -> Contents:
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
    if len(set(columns)) < len(columns):
        raise BadInput(f"{shown}: an entry of the axis along the top occurs twice; an axis must be strictly monotone.")
    table = _numbers(source, [], columns, columns, shown)
    top = np.array([float(cell) for cell in head[1:]])
    return grid(shown, names, [np.ascontiguousarray(table[:, 0]), top], np.ascontiguousarray(table[:, 1:]), ["value"])


def _numbers(source: _Source, begun: list[Line], columns: list[str], used: list[str], shown: str) -> Array:
    """The used columns of every row, float64; a missing cell is NaN."""
    places = [columns.index(name) for name in used]
    blocks = []
    while chunk := [*begun, *source.take(ROWS)]:
        begun = []
        found = _plain(chunk, source.separator, len(columns), places)
        blocks.append(found if found is not None else _cells(chunk, source.separator, columns, places, shown))
    if not blocks:
        raise BadInput(f"{shown} has a header and no entries; give one entry per line below it.")
    return np.concatenate(blocks)


def _plain(chunk: list[Line], separator: str, width: int, places: list[int]) -> Array | None:
    """Rows of plain numbers, all at once; None where something in them wants to be looked at."""
    if any(line.count(separator) != width - 1 or '"' in line for _, line in chunk):
        return None
    try:
        lines = [line for _, line in chunk]
        return np.loadtxt(lines, delimiter=separator, comments=None, usecols=places, ndmin=2)
    except ValueError:
        return None


def _cells(chunk: list[Line], separator: str, columns: list[str], places: list[int], shown: str) -> Array:
    """Rows cell by cell, which knows missing values and what to say of others."""
    collected = array("d")
    reader = csv.reader((line for _, line in chunk), delimiter=separator, strict=True)
    for row in reader:
        number = chunk[reader.line_num - 1][0]
        if len(row) != len(columns):
            raise BadInput(
                f"{shown}, line {number}: {len(row)} cells came where {len(columns)} ({', '.join(columns[:8])}"
                f"{', ..' if len(columns) > 8 else ''}) are wanted."
            )
        collected.extend([_cell(row[place], columns[place], number, shown) for place in places])
    return np.frombuffer(collected, dtype=np.float64).reshape(-1, len(places))


def _cell(cell: str, column: str, line: int, shown: str) -> float:
    try:
        return float(cell)
    except ValueError:
        if cell.strip().lower() in MISSING:
            return float("nan")
        hint = "; write decimals with a point" if "," in cell else ""
        raise BadInput(f"{shown}, line {line}, column {column[:60]}: {cell[:60]!r} is not a number{hint}.") from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return cell.strip().lower() not in MISSING
