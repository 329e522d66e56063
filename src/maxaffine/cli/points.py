"""Points from CSV: a header in any order or none, every cell a finite number, every complaint with its line and column."""

import csv
import io
import os
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput

if TYPE_CHECKING:
    from maxaffine.core.progress import Progress
    from maxaffine.target.box import Box

ROWS = 65_536  # points that are evaluated and written at a time


@dataclass(frozen=True)
class Points:
    """Points of a box, one a row, as the file has them: columns in its own order, those of other names as text."""

    columns: tuple[str, ...]
    order: tuple[int, ...]  # which of the columns of `numbers` holds each coordinate of the box
    numbers: Array  # (rows, D)
    others: Mapping[int, list[str]] = field(default_factory=dict)  # columns that are no coordinate, by their place

    @property
    def count(self) -> int:
        """The number of points."""
        return len(self.numbers)

    @property
    def blocks(self) -> list[Array]:
        """Some rows at a time."""
        return [self.numbers[start : start + ROWS] for start in range(0, self.count, ROWS)]

    def rows(self, values: Iterator[Any]) -> Iterator[list[list[Any]]]:
        """Rows for output, block by block: the point as the file has it, then its values."""
        for n, (block, found) in enumerate(zip(self.blocks, values, strict=True)):
            rows: list[list[Any]] = np.concatenate([block, np.asarray(found, dtype=np.float64)], axis=1).tolist()
            for place in sorted(self.others):
                for row, cell in zip(rows, self.others[place][n * ROWS : (n + 1) * ROWS], strict=True):
                    row.insert(place, cell)
            yield rows


def read_points(source: IO[bytes], box: "Box", outside: str, name: str, progress: "Progress") -> Points:
    """All points of a CSV stream, checked one by one; `name` is what messages call the stream."""
    text = io.TextIOWrapper(source, encoding="utf-8-sig", newline="")
    try:
        return _read(csv.reader(text), source, box, outside, name, progress)
    except UnicodeDecodeError as failure:
        raise BadInput(f"{name} is not UTF-8 text ({failure.reason}); points are given as CSV.") from None
    except csv.Error as failure:
        raise BadInput(f"{name} is not CSV: {failure}.") from None
    finally:
        text.detach()


def _read(reader: Any, source: IO[bytes], box: "Box", outside: str, name: str, progress: "Progress") -> Points:
    total = _length(source)
    first = next((row for row in reader if any(cell.strip() for cell in row)), None)
    if first is None:
        raise BadInput(f"{name} is empty; give one point per line, such as {','.join('0' for _ in box.names[:4])}.")
    columns: tuple[str, ...] = box.names
    if not any(_is_number(cell) for cell in first):
        columns = _header(first, box, name)
        first = None
    numbers, lines = array("d"), array("q")
    others: dict[int, list[str]] = {k: [] for k, column in enumerate(columns) if column not in box.names}
    for row in chain([first] if first is not None else [], reader):
        if not row or (len(row) == 1 and not row[0].strip()):
            continue
        if len(row) != len(columns):
            raise BadInput(
                f"{name}, line {reader.line_num}: {len(row)} cells came where {len(columns)} ({', '.join(columns[:8])}"
                f"{', ..' if len(columns) > 8 else ''}) are wanted."
            )
        for place, cells in others.items():
            cells.append(row[place])
        try:
            numbers.extend(float(cell) for k, cell in enumerate(row) if k not in others)
        except ValueError:
            cell, column = next((c, k) for c, k in zip(row, columns, strict=True) if k in box.names and not _is_number(c))
            raise BadInput(f"{name}, line {reader.line_num}, column {column}: {cell[:60]!r} is not a number.") from None
        lines.append(reader.line_num)
        if total and len(lines) % ROWS == 0:
            progress("read points (percent)", min(100, 100 * source.tell() // total), 100)
    if not lines:
        raise BadInput(f"{name} has a header and no points; give one point per line below it.")
    kept = [column for column in columns if column in box.names]
    order = tuple(kept.index(variable) for variable in box.names)
    found = Points(columns, order, np.frombuffer(numbers, dtype=np.float64).reshape(-1, len(kept)), others)
    for n, block in enumerate(found.blocks):
        _check_inside(block[:, order], lines[n * ROWS : (n + 1) * ROWS], box, outside, name)
    return found


def _header(row: list[str], box: "Box", name: str) -> tuple[str, ...]:
    columns = tuple(cell.strip() for cell in row)
    variables = ", ".join(box.names[:12]) + (", .." if box.dimension > 12 else "")
    for column in columns:
        if column in box.names and columns.count(column) > 1:
            raise BadInput(f"{name}: the header names {column!r} twice.")
    missing = [variable for variable in box.names if variable not in columns]
    if missing:
        has = ", ".join(column[:40] for column in columns[:8]) + (", .." if len(columns) > 8 else "")
        raise BadInput(f"{name}: the column {missing[0]!r} is missing; the variables are {variables}, and the header has {has}.")
    return columns


def _check_inside(points: Array, lines: "array[int]", box: "Box", outside: str, name: str) -> None:
    finite = np.isfinite(points)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise BadInput(f"{name}, line {lines[row]}, column {box.names[column]}: {points[row, column]} is not a finite number.")
    if outside == "clamp":
        return
    # The layer's own rule: beyond an edge by no more than a rounding is on the edge.
    slack = float(np.finfo(np.float64).eps) * np.maximum(np.abs(box.low), np.abs(box.high))
    bad = (points < box.low - slack) | (points > box.high + slack)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise BadInput(
            f"{name}, line {lines[row]}: {box.names[column]} = {points[row, column]!s} lies outside "
            f"[{box.low[column]!s}, {box.high[column]!s}]; pass --outside clamp to use the nearest point of the box."
        )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _length(source: IO[bytes]) -> int:
    """Bytes of a plain file, 0 for a pipe."""
    try:
        return os.fstat(source.fileno()).st_size if source.seekable() else 0
    except (OSError, ValueError):
        return 0
