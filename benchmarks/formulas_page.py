"""docs/formulas.md and its figure, from the record that benchmarks/formulas.py keeps."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from formula_targets import COARSE, ERRORS, SETS, SINGULAR, Formula
from maxaffine.layer.blocks import count_text
from maxaffine.report.style import BLUE, GREEN, QUIET, RED, look, new_figure, save, shortened

ROOT = Path(__file__).resolve().parent.parent
PAGE, FIGURE = ROOT / "docs" / "formulas.md", ROOT / "docs" / "images" / "formulas.png"
GPU = ROOT / "benchmarks" / "results" / "gpu_variables.json"
CPU = ROOT / "benchmarks" / "results" / "cpu_variables.json"

Row = dict[str, Any]


def rows(record: dict[str, Any], group: str, error: float) -> dict[str, Row]:
    """The cells of one table at one error, by name, in the order of the table."""
    known = record.get(group, {})
    key = f"{error:g}"
    return {f.name: known[f.name][key] for f in SETS[group]() if key in known.get(f.name, {})}


def proved(row: Row) -> bool:
    """Proved by the compiler and confirmed by the checker."""
    return row["kind"] == "proved" and bool(row.get("confirmed"))


def seen(row: Row) -> float:
    """The largest error that any search saw."""
    return max(row["observed"].values())


def relative(row: Row, key: float, error: float) -> float:
    """A number of the row in units of the formula's largest value."""
    return key / row["asked"] * error


def escaped(text: str) -> str:
    """Text in a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def summary(record: dict[str, Any], group: str) -> Iterator[str]:
    """A line of the table of counts per error."""
    for error in ERRORS:
        found = rows(record, group, error)
        if not found:
            continue
        seconds = [row["seconds"] for row in found.values()]
        met = [row for row in found.values() if proved(row)]
        above = sum(row["bound"] is not None and seen(row) > row["bound"] for row in found.values() if row["method"])
        closest = max((seen(row) / row["bound"] for row in met), default=0.0)
        yield (
            f"| {error:g} | {len(found)} | {sum(row['kind'] == 'proved' for row in found.values())} | {len(met)} | {above} | "
            f"{closest:.3f} | {statistics.median(seconds):.2f} | {np.percentile(seconds, 90):.2f} | {max(seconds):.1f} |"
        )


MARKS = {"o": "of the hundred", "D": "classical"}
COUNTS = (
    "| relative error | asked | proved | confirmed | points above a bound | largest observed/bound | median s "
    "| 90th percentile s | longest s |",
    "|---|---|---|---|---|---|---|---|---|",
)


def cell(row: Row | None, error: float) -> str:
    """Proved digits, tokens and seconds of one formula at one error."""
    if row is None:
        return ""
    if row["kind"] != "proved":
        return row["kind"]
    doubt = "" if proved(row) else ", not confirmed"
    return f"{relative(row, row['bound'], error):.1e}, {count_text(row['tokens'])}, {row['seconds']:.1f}{doubt}"


def in_one_process(record: dict[str, Any]) -> Iterator[str]:
    """The seconds of compiles in a process that has compiled before."""
    if "warm" in record:
        columns = [list(row.values()) for row in record["warm"].values()]
        middle, late = (", ".join(f"{np.percentile(one, share):.2f}" for one in columns) for share in (50, 90))
        yield "Every cell runs in a process of its own, whose first compile loads libraries. One after another in one process"
        yield f"(`--warm`) the hundred take {middle} s in the median and {late} s in the ninetieth percentile."
        yield ""


def hundred(record: dict[str, Any]) -> Iterator[str]:
    """One row per formula of the hundred."""
    yield "| formula | | variables | " + " | ".join(f"{error:g}" for error in ERRORS) + " |"
    yield "|---|---|---|" + "---|" * len(ERRORS)
    found = {error: rows(record, "feynman", error) for error in ERRORS}
    for formula in SETS["feynman"]():
        cells = " | ".join(cell(found[error].get(formula.name), error) for error in ERRORS)
        yield f"| {formula.name} | `{formula.text}` | {formula.dimension} | {cells} |"


def numbers(formula: Formula, row: Row, error: float) -> str:
    """Stored numbers, beside those of the design where it gives any."""
    if formula.numbers is None:
        return f"{row['numbers']:,}"
    planned = formula.numbers[formula.errors.index(error)]
    return f"{row['numbers']:,} ({row['numbers'] / planned:.2g} x {planned:,})"


def classical(record: dict[str, Any]) -> Iterator[str]:
    """One row per classical formula and error."""
    yield "| formula | variables | error | method | tokens | stored numbers | proved | observed | s | confirmed |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for formula in SETS["classical"]():
        for error in formula.errors:
            row = rows(record, "classical", error).get(formula.name)
            if row is None:
                continue
            head = f"| {escaped(formula.name)} | {formula.dimension} | {error:g}"
            if row["kind"] != "proved":
                yield f"{head} | {row['kind']} | | | | | {row['seconds']:.1f} | |"
                continue
            yield (
                f"{head} | {row['method']} | {count_text(row['tokens'])} | {numbers(formula, row, error)} | "
                f"{relative(row, row['bound'], error):.2e} | {relative(row, seen(row), error):.2e} | {row['seconds']:.1f} | "
                f"{'yes' if proved(row) else 'no'} |"
            )


def exceptions(record: dict[str, Any]) -> Iterator[str]:
    """The formulas that are not analytic, and what was reached; then every other cell that is not proved, with its sentence."""
    yield "| formula | why | reached |"
    yield "|---|---|---|"
    for name, why in SINGULAR.items():
        reached, reasons = [], dict[str, None]()
        for error in (*COARSE, *ERRORS):
            row = rows(record, "feynman", error).get(name)
            if row is None:
                continue
            if proved(row):
                reached.append(f"{error:g}: proved to {relative(row, row['bound'], error):.1e} ({row['method']})")
            else:
                reached.append(f"{error:g}: {row['kind']}")
                reasons.setdefault(escaped(shortened(str(row["reason"]), 300)))
        yield f"| {name} | {why} | {'; '.join(reached)}{'. ' if reasons else ''}{next(iter(reasons), '')} |"


def refusals(record: dict[str, Any]) -> Iterator[str]:
    """What else is not proved and confirmed, each in the words of its refusal."""
    lines = []
    for group in SETS:
        for error in ERRORS:
            for name, row in rows(record, group, error).items():
                if not proved(row) and name not in SINGULAR:
                    why = row["reason"] or f"the checker: {row.get('doubt', 'not asked')}"
                    lines.append(f"| {escaped(name)} | {error:g} | {escaped(shortened(str(why), 300))} |")
    if lines:
        yield from ("", "Other requests that are not proved:", "", "| formula | error | reason |", "|---|---|---|", *lines)


def on_cpu() -> Iterator[str]:
    """What benchmarks/cpu_variables.py measured, a row per layer: queries per processor second of one thread."""
    yield from (
        "`benchmarks/cpu_variables.py`, one run on one thread; millions of queries per processor second. Direct is the formula "
        "itself by short polynomials, proved to the error in the last column. Collapsed, every "
        "factor of a layer, real or complex, of one direction or of several, is a polynomial within a stated part of the bound.",
        "",
    )
    columns = ("layer", "variables", "factors", "formula in NumPy", "in numba", "direct", "factorised", "collapsed")
    yield f"| {' | '.join(columns)} | direct / formula | collapsed / formula | collapsed: error seen | proved | direct: proved |"
    yield "|" + "---|" * 13
    for row in json.loads(CPU.read_text())["rows"]:
        rates = {name: rate / 1e6 for name, rate in row["rates"].items()}
        yield (
            f"| {escaped(row['name'])} | {row['variables']} | {row['kind']} | {rates['formula']:.3g} | "
            f"{rates['numba']:.3g} | {rates['direct']:.3g} | {rates['factorised']:.3g} | {rates['collapsed']:.3g} | "
            f"{rates['direct'] / rates['formula']:.2f} | {rates['collapsed'] / rates['formula']:.2f} | {row['observed']:.1e} | "
            f"{row['proved']:.1e} | {row['direct']:.1e} |"
        )


def on_gpu() -> Iterator[str]:
    """What benchmarks/gpu_variables.py measured, a row per layer and dtype: queries per second beside the formula's own."""
    made = json.loads(GPU.read_text())
    where = f"an {made['gpu']}, torch {made['torch']}"
    told = "inverse-D is 1/(1 + |x|^2) in D variables, wave-10 exp(sin |x|^2) in 10, alignment-4 tanh(q.k) with 2 + 2"
    yield from (f"`benchmarks/gpu_variables.py`, one run on {where}; billions of queries per second; {told}.", "")
    yield "| layer | dtype | formula, torch.compile | eager | layer | how it runs | layer / formula | error seen | proved |"
    yield "|---|---|---|---|---|---|---|---|---|"
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in made["rows"]:
        found.setdefault((row["target"], row["dtype"]), {})[row["way"]] = row
    for (name, dtype), ways in found.items():
        peer, eager = (ways[f"formula, {how}"]["rate"] / 1e9 for how in ("torch.compile", "eager"))
        best = max((row for way, row in ways.items() if way.startswith("layer")), key=lambda row: float(row["rate"]))
        own, how = best["rate"] / 1e9, best["way"].removeprefix("layer, ")
        yield (
            f"| {name} | {dtype} | {peer:.3g} | {eager:.3g} | {own:.3g} | {how} | {own / peer:.2g} | {best['error']:.1e} "
            f"| {best['proved']:.1e} |"
        )


def page(record: dict[str, Any]) -> str:
    """The page as Markdown."""
    analytic = sum(formula.name not in SINGULAR for formula in SETS["feynman"]())
    lines = [
        "# Real formulas", "",
        "Made by `make formulas`: the hundred equations of the AI Feynman benchmark (Udrescu and Tegmark 2020) with the sampling "
        "ranges of its authors, and classical functions of up to 100 variables, each through `auto`. Errors are relative to the "
        "formula's largest value. *Proved* is what `compile` proves, *confirmed* what the independent checker proves again; "
        "*observed* is the largest error among random points, corners, faces and what climbing from them finds, and has to stay "
        "below the bound. Seconds are processor seconds of one `compile`, the proof included, on one thread"
        f"{record.get('note', '')}.", "",
        "![proved digits, tokens and seconds against the number of variables](images/formulas.png)", "",
        "## The hundred", "",
        *COUNTS, *summary(record, "feynman"), "", *in_one_process(record),
        f"{analytic} of the hundred are analytic on their closed box; the other {len(SINGULAR)} are not, and are asked for less "
        "as well:", "",
        *exceptions(record), *refusals(record), "",
        "## Classical functions", "",
        "On [-1, 1] in every variable unless the literature has a box of its own (benchmarks/formula_targets.py). The stored "
        "numbers are keys, two each, and values; in brackets, where there is one, the count that was planned.", "",
        *COUNTS, *summary(record, "classical"), "", *classical(record), "",
        "## On a CPU", "", *on_cpu(), "",
        "## On a GPU", "", *on_gpu(), "",
        "The formula is one line and the layer has thousands of numbers, so the formula wins. The collapsed kernel takes layers "
        "whose series are at most 4,096 numbers, complex ones and blocks of directions too; PyTorch's own operations "
        "run the others.", "",
        "## Every formula of the hundred", "",
        "Proved relative error, tokens of the literal layer (implied where they are products of keys), processor seconds.", "",
        *hundred(record),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def draw(record: dict[str, Any]) -> None:
    """Proved digits, tokens and seconds against the number of variables; a formula is a dot, a classical one a diamond."""
    rng = np.random.default_rng(0)
    with look():
        figure, grid = new_figure((11.0, 3.5), 1, 3)
        for error, colour in zip(ERRORS, (BLUE, GREEN, RED), strict=True):
            for group, marker in (("feynman", "o"), ("classical", "D")):
                met = [row for row in rows(record, group, error).values() if proved(row)]
                if not met:
                    continue
                x = np.array([row["dimension"] for row in met]) * np.exp(rng.uniform(-0.07, 0.07, len(met)))
                heights = (
                    [-math.log10(relative(row, row["bound"], error)) for row in met],
                    [math.log10(row["tokens"]) for row in met],
                    [math.log10(max(row["seconds"], 0.01)) for row in met],
                )
                label = f"{error:g}" if group == "feynman" else None
                style = {"marker": marker, "ls": "none", "ms": 4.0, "mfc": colour, "mec": "white", "mew": 0.4, "alpha": 0.75}
                for axes, y in zip(grid[0], heights, strict=True):
                    axes.plot(x, y, label=label, **style)
        titles = ("proved digits", "tokens, power of ten", "processor seconds")
        for axes, title in zip(grid[0], titles, strict=True):
            axes.set_xscale("log")
            axes.set_xticks([1, 2, 3, 5, 10, 20, 50, 100], ["1", "2", "3", "5", "10", "20", "50", "100"])
            axes.minorticks_off()
            axes.set_xlim(0.8, 130)
            axes.set_xlabel("variables")
            axes.set_title(title)
        grid[0][1].set_yscale("symlog", linthresh=10.0, linscale=1.0)
        grid[0][1].set_ylim(bottom=-0.3)
        grid[0][1].set_yticks([0, 2, 5, 10, 20, 50, 100], ["0", "2", "5", "10", "20", "50", "100"])
        seconds = [-1, 0, 1, 2]
        grid[0][2].set_yticks(seconds, [f"{10.0**power:g}" for power in seconds])
        grid[0][1].legend(title="relative error", loc="upper left", frameon=False)
        kinds = [grid[0][2].plot([], [], mark, color=QUIET, ms=4, label=name)[0] for mark, name in MARKS.items()]
        grid[0][2].legend(handles=kinds, loc="lower right", frameon=False)
        save(figure, FIGURE, 110)


def write(record: dict[str, Any]) -> None:
    """The page and its figure."""
    draw(record)
    PAGE.write_text(page(record))
