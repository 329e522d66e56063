"""Write the CPU section of docs/benchmarks.md from the results that the CPU benchmarks keep.

    python benchmarks/cpu_page.py
"""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- cpu -->", "<!-- /cpu -->"
START = """# Benchmarks

What a query costs, and what people would use instead, measured side by side in one run. `make bench` runs the CPU part;
the GPU part is one script for a machine that has one.

<!-- cpu -->
<!-- /cpu -->
"""


def kept(name: str) -> dict[str, Any] | None:
    """The results of one script, where it was run."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def number(value: float | None) -> str:
    """Short."""
    return "" if value is None else f"{value:.2g}"


def rate(value: float) -> str:
    """Queries per second, as a person reads them."""
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:.3g}"


def words(machine: dict[str, Any]) -> str:
    """The machine."""
    return (
        f"{machine['processor']}, {machine['cores']} cores (load {machine['load_at_start']:.1f} when the run began), "
        f"NumPy {machine['numpy']}, SciPy {machine['scipy']}, torch {machine['torch']}"
    )


def peers(found: dict[str, Any]) -> list[str]:
    """One table per target."""
    lines = [
        "### Peers at equal error", "",
        f"`benchmarks/cpu_peers.py`, one thread, processor time, medians. Machine: {words(found['machine'])}.", "",
        "Layers by `method=\"spectral\"`, proved error 1e-6, float64. Peers have the smallest grid or degree that reaches 1e-6 "
        "on samples, or the largest one tried. Error: the largest seen on 20,000 random points. KeOps was not at hand; its place "
        "is taken by the streaming log-sum-exp of `blocked`. The network is trained for two seconds of processor time "
        "(eight without `--quick`).", "",
        "![error against speed](images/benchmarks-cpu-peers.svg)", "",
    ]  # fmt: skip
    for case, rows in found["cases"].items():
        lines += [f"**{case}**", "", "| | size | proved | error seen | queries/s |", "|---|---|---|---|---|"]
        for row in rows:
            cells = (row["peer"], row["size"], number(row["bound"]), number(row["error"]), rate(row["queries_per_second"]))
            lines.append(f"| {' | '.join(cells)} |")
        told = ", ".join(f"{name} {value:,.3g}" for name, value in found["ratios"][case].items())
        lines += ["", f"`maxaffine` over: {told} times.", ""]
    return lines


def scaling(found: dict[str, Any]) -> list[str]:
    """Tokens, variables, batch."""
    lines = [
        "### How the cost grows", "",
        f"`benchmarks/cpu_scaling.py`, one thread unless said. Machine: {words(found['machine'])}.", "",
        "Windowed lookups of sharpness 40 (four sites per variable), ns per query; beside them one random read of an array of as "
        "many numbers, each place known only after the last was read, and the same read ahead of time (NumPy's `take`).", "",
        "![ns per query against tokens](images/benchmarks-cpu-scaling.svg)", "",
        "| variables | tokens | windowed | dense or blocked | one random read | reads ahead |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in found["tokens"]:
        cells = [f"{row[key]:,.3g}" if key in row else "" for key in ("windowed_ns", "dense_ns", "random_ns", "gather_ns")]
        lines.append(f"| {row['D']} | {row['tokens']:,} | {' | '.join(cells)} |")
    grown = ", ".join(f"{found[f'growth_{D}']:.2f} for {D}" for D in (1, 2, 3))
    lines += ["", f"From the first to the last row of each number of variables: {grown}.", ""]
    lines += ["Spectral layers at a proved 1e-6 in several variables:", ""]
    lines += ["| variables | target | tokens | runtime | ns per query |", "|---|---|---|---|---|"]
    lines += [
        f"| {row['D']} | {row['kind']} | {row['tokens']:,} | {row['runtime']} | {row['ns']:.3g} |" for row in found["variables"]
    ]
    keys = [key for key in found["batch"][0] if key != "batch"]
    lines += ["", "sin x + cos y at 1e-6, queries per second by batch (wall time):", ""]
    lines += ["| batch | " + " | ".join(key.split("_")[-2] + " threads" for key in keys) + " |", "|---|" + "---|" * len(keys)]
    lines += [f"| {row['batch']:,} | " + " | ".join(rate(row[key]) for key in keys) + " |" for row in found["batch"]]
    return [*lines, ""]


def big(found: dict[str, Any]) -> list[str]:
    """The billion tokens, and a part of it."""
    lines = [
        "### A billion tokens", "",
        "`benchmarks/big_layer.py`: sin(x) + cos(y) by the paper's lookup, values computed by two processes and written as they "
        "came, the file loaded by mapping (hash and finiteness checked) and evaluated by `windowed`, which gives pages back "
        "as it goes. MiB resident in the compiling process; *own* is what does not belong to the file's pages. On a "
        "busy machine.", "",
        "| " + " | ".join(BIG) + " |", "|" + "---|" * len(BIG),
    ]  # fmt: skip
    for row in [found, kept("big_layer_part")]:
        if row is not None:
            made, run = row["memory_compiled_mib"], row["memory_evaluated_mib"]
            cells = (
                f"{row['tokens']:,}", f"{row['bound']:.4g}", f"{row['file_bytes'] / 1e9:.2f} GB",
                f"{row['compile_seconds']:.0f} s", f"{row['stated_peak_mib']:,}", f"{made['peak']:,}", str(made["own"]),
                f"{row['load_seconds']:.1f} s",
                rate(row["queries_per_second"]), f"{run['peak']:,}", f"{row['error_seen']:.3g}",
            )  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", NOTE, ""]


BIG = (
    "tokens", "proved", "file", "compile", "stated peak", "peak, compiling", "own", "load", "queries/s", "peak, evaluating",
    "error seen",
)  # fmt: skip
NOTE = (
    "In the run of the first row, small batches did not give pages back yet: 5,956 MiB of the file's pages were resident while "
    "the worst point was searched for (32 MiB were the process's own). The second row was run after that was mended."
)


def main() -> None:
    """Replace the section, or begin the page."""
    page = PAGE.read_text() if PAGE.exists() else START
    if BEGIN not in page:
        page += f"\n{BEGIN}\n{END}\n"
    lines = ["", "## CPU", ""]
    for name, tell in (("cpu_peers", peers), ("cpu_scaling", scaling), ("big_layer", big)):
        found = kept(name)
        lines += tell(found) if found is not None else []
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(before + BEGIN + "\n".join(lines) + END + after)


if __name__ == "__main__":
    main()
