"""The tables of docs/stacks.md and docs/images/stacks.png, from the record that benchmarks/stacks.py keeps."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.report.style import BLUE, GREEN, QUIET, RED, look, new_figure, save, shortened
from stack_targets import ERRORS, PLANNED, SECTIONS

ROOT = Path(__file__).resolve().parent.parent
PAGE, FIGURE = ROOT / "docs" / "stacks.md", ROOT / "docs" / "images" / "stacks.png"
Row = dict[str, Any]

EXCEPTIONS = {
    "I.26.2": "`arcsin(n*sin(theta2))` reaches 1: an error of 1e-6 there needs the argument to 1e-13, too little for float64",
    "I.30.5": "`arcsin(lambd/(n*d))` reaches 1 in a corner: for 1e-6 the argument is needed to 1e-13, too little for float64",
}


def rows(record: dict[str, Any], section: str) -> Iterator[tuple[str, float, Row]]:
    """The cells of a section that are in the record, in the order of the section."""
    for asked in SECTIONS[section]():
        row = record.get(section, {}).get(asked.name, {}).get(f"{asked.error:g}")
        if row is not None:
            yield asked.name, asked.error, row


def refusal(row: Row) -> str:
    """Why there is none, in a cell of a table."""
    return f"{row['kind']}: " + shortened(str(row["reason"]).partition(" One layer:")[0].replace("|", "\\|"), 110)


def known(record: dict[str, Any]) -> Iterator[str]:
    """Known formulas and networks; tokens beside those that were planned."""
    yield "| formula | variables | error | layers | tokens | of planned | longest head | proved | observed | s | confirmed |"
    yield "|" + "---|" * 11
    for name, error, row in rows(record, "known"):
        head = f"| {name} | {row['dimension']} | {error:g}"
        if "tokens" not in row:
            yield f"{head} | | | | | | | {row['seconds']:.1f} | {refusal(row)} |"
            continue
        planned = PLANNED.get(name)
        part = "" if planned is None else f"{row['tokens'] / planned[ERRORS.index(error)]:.2f}"
        yield (
            f"{head} | {row['layers']} | {row['tokens']:,} | {part} | {row['longest']:,} | {row['proved']:.1e} | "
            f"{row['observed']:.1e} | {row['seconds']:.1f} | {'yes' if row['confirmed'] else 'no'} |"
        )


def beyond(record: dict[str, Any]) -> Iterator[str]:
    """What one layer refuses or takes more than a million tokens for."""
    yield "| formula | variables | error | one layer, tokens | layers | tokens | proved | observed | s | confirmed |"
    yield "|" + "---|" * 10
    for name, error, row in rows(record, "beyond"):
        head = f"| {name.replace('|', chr(92) + '|')} | {row['dimension']} | {error:g} | {row['alone']}"
        if "tokens" not in row:
            told = EXCEPTIONS.get(name) or refusal(row)
            yield f"{head} | | | | | {row['seconds']:.1f} | {told} |"
            continue
        yield (
            f"{head} | {row['layers']} | {row['tokens']:,} | {row['proved']:.1e} | {row['observed']:.1e} | "
            f"{row['seconds']:.1f} | {'yes' if row['confirmed'] else 'no'} |"
        )


def literal(record: dict[str, Any]) -> Iterator[str]:
    """The literal blocks in every way: the largest error found, in units of what is stated."""
    yield "| stack | layers | tokens | stated | matrices | MultiheadAttention | ONNX |"
    yield "|" + "---|" * 7
    for name, _, row in rows(record, "literal"):
        ways = row["literal"]
        worst = " | ".join(f"{ways[way]['worst']:.3f}" for way in ("matrices", "multihead", "onnx"))
        stated = ways["matrices"]["stated"] * row["proved"] / row["bound"]
        yield f"| {name} | {row['layers']} | {row['tokens']} | {stated:.1e} | {worst} |"


def decay(record: dict[str, Any]) -> Iterator[str]:
    """Layers and tokens of three formulas at nine errors."""
    found: dict[str, dict[float, Row]] = {}
    for name, error, row in rows(record, "decay"):
        found.setdefault(name, {})[error] = row
    errors = sorted({error for cells in found.values() for error in cells}, reverse=True)
    yield "| formula | | " + " | ".join(f"{error:.0e}".replace("e-0", "e-") for error in errors) + " |"
    yield "|---|---|" + "---|" * len(errors)
    for name, cells in found.items():
        for what, form in (("layers", "d"), ("tokens", "d"), ("proved", ".0e")):
            told = [f"{cells[error][what]:{form}}" if what in cells[error] else "refused" for error in errors]
            yield f"| {name} | {what} | " + " | ".join(told).replace("e-0", "e-") + " |"


def speed(record: dict[str, Any]) -> Iterator[str]:
    """Queries per second on one thread, the stack beside its formula in NumPy."""
    batches = ("100", "10000", "1000000")
    yield "| stack | layers | tokens | " + " | ".join(f"{int(b):,} at once" for b in batches) + " | formula in NumPy |"
    yield "|" + "---|" * (4 + len(batches))
    for name, _, row in rows(record, "speed"):
        mine = " | ".join(f"{row['speed'][b]['stack']:.1e}" for b in batches)
        yield f"| {name} | {row['layers']} | {row['tokens']} | {mine} | {row['speed'][batches[-1]]['formula']:.1e} |"


def growth(cells: dict[float, Row]) -> float:
    """Tokens for a tenth of the error, by least squares over all errors."""
    made = [(error, row) for error, row in cells.items() if "tokens" in row]
    return float(np.polyfit([-math.log10(error) for error, _ in made], [row["tokens"] for _, row in made], 1)[0])


def draw(record: dict[str, Any]) -> None:
    """Tokens, layers and proved errors of three formulas against the error that is asked."""
    found: dict[str, dict[float, Row]] = {}
    for name, error, row in rows(record, "decay"):
        found.setdefault(name, {})[error] = row
    with look():
        figure, grid = new_figure((11.0, 3.4), 1, 3)
        tokens, layers, proved = grid[0]
        for (name, cells), colour, marker in zip(found.items(), (BLUE, GREEN, RED), "osD", strict=True):
            made = {error: row for error, row in cells.items() if "tokens" in row}
            digits = [-math.log10(error) for error in made]
            style = {"color": colour, "marker": marker, "ms": 4.5, "mec": "white", "mew": 0.5, "lw": 1.2}
            told = f"{name}: {growth(cells):.1f} tokens per digit"
            tokens.plot(digits, [row["tokens"] for row in made.values()], label=told, **style)
            layers.plot(digits, [row["layers"] for row in made.values()], **style)
            ratios = [row["proved"] / error for error, row in made.items()]
            proved.plot(digits, ratios, **style)
            seen = [row["observed"] / error for error, row in made.items()]
            proved.plot(digits, seen, color=colour, lw=0.9, ls=":")
        ends = [one for cells in found.values() for one in cells]
        ticks = [round(-math.log10(error)) for error in sorted(set(ends), reverse=True)]
        for axes, title in zip(grid[0], ("tokens", "layers", "proved / asked (dotted: observed / asked)"), strict=True):
            axes.set_title(title)
            axes.set_xlabel("relative error asked")
            axes.set_xticks(ticks, [f"1e-{digit}" for digit in ticks])
        tokens.set_ylim(bottom=0)
        tokens.legend(frameon=False, loc="upper left")
        layers.set_ylim(0, 1 + max(row["layers"] for cells in found.values() for row in cells.values() if "layers" in row))
        proved.axhline(1.0, color=QUIET, lw=0.8)
        proved.set_ylim(0.0, 1.08)
        save(figure, FIGURE, 110)


def write(record: dict[str, Any]) -> None:
    """The tables between their marks, and the figure."""
    page = PAGE.read_text()
    for mark, lines in (("stacks", known), ("beyond", beyond), ("literal", literal), ("decay", decay), ("speed", speed)):
        table = "\n".join([f"<!-- {mark} -->", *lines(record), f"<!-- /{mark} -->"])
        page, count = re.subn(rf"<!-- {mark} -->.*?<!-- /{mark} -->", lambda _, table=table: table, page, flags=re.DOTALL)
        assert count == 1, f"{PAGE} has no place for {mark}"
    PAGE.write_text(page)
    draw(record)
