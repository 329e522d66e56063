"""Write the CPU section of docs/benchmarks.md from the results that the CPU benchmarks keep.

    python benchmarks/cpu_page.py
"""

import json
from collections.abc import Callable
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


def number(value: float | None, none: str = "none") -> str:
    """Short."""
    return none if value is None else f"{value:.2g}"


def rate(value: float | None) -> str:
    """Queries per second, as a person reads them."""
    if value is None:
        return "not run"
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:.3g}"


def few(value: float) -> str:
    """Microseconds: whole ones from ten on."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


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
        "First the formula itself, then the direct form of it (`layer(x, runtime=\"direct\")`), then layers by "
        "`method=\"spectral\"`, proved error 1e-6, float64. Peers have the smallest grid or degree that reaches 1e-6 "
        "on samples, or the largest one tried. Error: the largest seen on 20,000 random points. KeOps was not at hand; its place "
        "is taken by the streaming log-sum-exp of `blocked`. The network is trained for two seconds of processor time "
        "(eight without `--quick`).", "",
        "![error against speed](images/benchmarks-cpu-peers.svg)", "",
    ]  # fmt: skip
    for case, rows in found["cases"].items():
        lines += [f"**{case}**", "", "| | size | proved | error seen | queries/s |", "|---|---|---|---|---|"]
        for row in rows:
            error = number(row["error"], "not run")
            cells = (row["peer"], row["size"], number(row["bound"]), error, rate(row["queries_per_second"]))
            lines.append(f"| {' | '.join(cells)} |")
        told = ", ".join(f"{name} {value:,.3g}" for name, value in found["ratios"][case].items())
        lines += ["", f"The direct form over: {told} times.", ""]
    return lines


def scaling(found: dict[str, Any]) -> list[str]:
    """Tokens, variables, batch."""
    lines = [
        "### How the cost grows", "",
        f"`benchmarks/cpu_scaling.py`, one thread unless said. Machine: {words(found['machine_tokens'])}.", "",
        "Windowed lookups of sharpness 40 (four sites per variable), ns per query in batches of different size, no query asked "
        "twice; the literal softmax over all tokens, streamed in blocks; one random read of an array of as many numbers, each "
        "place known only after the last was read, and the same read ahead of time (NumPy's `take`).", "",
        "![ns per query against tokens](images/benchmarks-cpu-scaling.svg)", "",
    ]  # fmt: skip
    sizes = list(found["tokens"][0]["windowed_ns"])
    heads = ["variables", "tokens", *(f"windowed, {int(size):,}" for size in sizes)]
    heads += ["literal softmax", "one random read", "reads ahead"]
    lines += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in found["tokens"]:
        cells = [f"{row['windowed_ns'][size]:,.3g}" for size in sizes]
        cells += [f"{row[key]:,.3g}" if key in row else "see above" for key in ("literal_ns", "random_ns", "gather_ns")]
        lines.append(f"| {row['D']} | {row['tokens']:,} | {' | '.join(cells)} |")
    lines += ["", "From the first to the last row of each number of variables the cost grows", ""]
    lines += ["| variables | " + " | ".join(heads[2:-2]) + " |", "|---|" + "---|" * (len(sizes) + 1)]
    for D, grown in found["growth"].items():
        cells = [f"{grown[size]:.2f}" for size in sizes] + [f"{grown['literal']:,.0f}"]
        lines.append(f"| {D} | {' | '.join(cells)} |")
    lines += ["", ORDER, ""]
    lines += ["Spectral layers at a proved 1e-6 in several variables, ns per query:", ""]
    names = ("formula", "numba", "direct", "ns")
    titles = ("variables", "target", "tokens", "formula, NumPy", "formula, numba", "direct", "the layer, collapsed")
    lines += [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    for row in found["variables"]:
        lines.append(f"| {row['D']} | {row['kind']} | {row['tokens']:,} | {' | '.join(f'{row[key]:.3g}' for key in names)} |")
    keys = [key for key in found["batch"][0] if key != "batch"]
    lines += ["", "sin x + cos y at 1e-6, queries per second by batch (wall time):", ""]
    heads = ["the formula in NumPy" if key == "formula" else f"the layer, {key.split('_')[-2]} threads" for key in keys]
    lines += ["| batch | " + " | ".join(heads) + " |", "|---|" + "---|" * len(keys)]
    lines += [f"| {row['batch']:,} | " + " | ".join(rate(row[key]) for key in keys) + " |" for row in found["batch"]]
    return [*lines, ""]


def calls(found: dict[str, Any]) -> list[str]:
    """Microseconds per call by batch and runtime."""
    names = ("formula", "numba", "direct", "NumPy", "compiled", "factorised", "dense")
    heads = ("formula, NumPy", "formula, numba", "direct", "layer, NumPy", "layer, compiled", "factorised", "dense")
    taken = max(found["load_seconds"].values())
    lines = [
        "### What a call costs by its batch", "",
        f"`benchmarks/cpu_batch.py`, one thread. Machine: {words(found['machine'])}.", "",
        "Microseconds of processor time per call, checks of the queries included: the formula itself, the direct form, the "
        "layer's own runtime before and after compiled code is loaded, and two other runtimes of the same layer (*cannot*: not "
        "of clusters; *left out*: more than 20 million weights a call). Compiled code is the fastest at every "
        f"batch and has the bits of its NumPy version; loading it takes {taken:.1f} s once, so one large batch loads it, or "
        "small ones that have cost as much. Then nothing would be gained by another runtime for another batch.", "",
        "| layer | tokens | runtime | batch | " + " | ".join(heads) + " |", "|" + "---|" * (4 + len(heads)),
    ]  # fmt: skip
    for name, one in found["layers"].items():
        for batch, row in one["rows"].items():
            cells = [row[key] if isinstance(row[key], str) else few(row[key]) for key in names]
            lines.append(f"| {name} | {one['tokens']:,} | {one['runtime']} | {int(batch):,} | {' | '.join(cells)} |")
    return [*lines, ""]


def clusters(found: dict[str, Any]) -> list[str]:
    """Kinks, jumps and local detail."""
    names = ("formula", "numba", "direct", "pieces", "layer", "numpy", "literal")
    heads = ("formula, NumPy", "formula, numba", "direct", "pieces", "two-level", "two-level, NumPy", "literal softmax")
    heads = (*heads, "SciPy, linear")
    exponential = found["exponential"]
    lines = [
        "### Kinks, regions and trees", "",
        f"`benchmarks/cpu_clusters.py`, one thread, processor time. Machine: {words(found['machine'])}.", "",
        "Targets whose layers have keys in clusters, queries per second: the formula itself in NumPy, on contiguous columns, and "
        "in a loop that numba compiles; the direct form; the layer by pieces (`runtime='pieces'`), by two levels, compiled and in"
        " NumPy (the same bits), and by NumPy's softmax over all tokens; and SciPy's RegularGridInterpolator, linear, on the "
        "smallest grid that has the "
        "error asked for on 20,000 points (at most 4e6 points; else the error that it has).", "",
        "| target | error | method | tokens | " + " | ".join(heads) + " |", "|" + "---|" * (4 + len(heads)),
    ]  # fmt: skip
    for row in found["rows"]:
        cells = ["none" if row[name] is None else rate(row[name]) for name in names]
        cells.append(f"{rate(row['interpolator'])} ({row['grid']:,} points, error {row['grid_error']:.1e})")
        start = f"| {row['target']} | {row['error']:g} | {row['method']} | {row['tokens']:,} |"
        lines.append(f"{start} {' | '.join(cells)} |")
    lines += [
        "", "What is proved of the layer by pieces, and how many times as fast it is: over two levels in this run, and over "
        "*before*, the layer in this table as it was before there were pieces and direct forms.", "",
        "| target | the layer is proved to | by pieces | error seen | pieces over before | over two levels |", "|" + "---|" * 6,
    ]  # fmt: skip
    for row in found["rows"]:
        if row["pieces"] is None:
            lines.append(f"| {row['target']} | {row['bound']:.2g} | {row['pieces_why']} | none | none | none |")
            continue
        proved = [f"{row[name]:.2g}" for name in ("bound", "pieces_proved", "pieces_seen")]
        over = [f"{row['pieces'] / row[name]:.3g}" for name in ("before", "layer")]
        lines.append(f"| {row['target']} | {' | '.join([*proved, *over])} |")
    lines += [
        "", "What is proved of the direct form, and how many times as fast it is: over the layer in this run, and over *before*, "
        "the layer in this table as it was before there were direct forms.", "",
        "| target | the layer is proved to | direct is proved to | error seen | before | direct over before | over the layer "
        "| over the formula in NumPy | over it in numba | over SciPy |", "|" + "---|" * 10,
    ]  # fmt: skip
    for row in found["rows"]:
        over = [f"{row['direct'] / row[name]:.3g}" for name in ("before", "layer", "formula", "numba", "interpolator")]
        proved = [f"{row[name]:.2g}" for name in ("bound", "proved", "seen")]
        lines.append(f"| {row['target']} | {' | '.join(proved)} | {rate(row['before'])} | {' | '.join(over)} |")
    speeds = {name: rate(speed) for name, speed in exponential.items()}
    return [
        *lines, "", "The exponential that kernels of layers share, per second: "
        f"{speeds['bits']} by powers of two from shifted bits, "
        f"{speeds['table']} by a table of them as before (the same bits), NumPy's own {speeds['numpy']}.", "",
    ]  # fmt: skip


def tables(found: dict[str, Any]) -> list[str]:
    """Where there is no formula."""
    lines = [
        "### Tables and black boxes", "",
        f"`benchmarks/cpu_tables.py`, one thread, processor time. Machine: {words(found['machine'])}.", "",
        "Where no formula exists there is no direct form, and the layer is what runs. Errors of 1e-3 are asked for: at the "
        "entries of the table, and on the box of the function, which is not read. Peers take the smallest grid that has the "
        "error, or the largest one tried; errors are seen at the entries, and at 20,000 random points.", "",
    ]  # fmt: skip
    for name, one in found["sources"].items():
        lines += [f"**{name}**, the layer: {one['note']}", "", "| | size | error seen | queries/s |", "|---|---|---|---|"]
        for row in one["rows"]:
            error = number(row["error"], "not run")
            lines.append(f"| {row['peer']} | {row['size']} | {error} | {rate(row['queries_per_second'])} |")
        lines.append("")
    return lines


ORDER = (
    "In three variables every query looks at 16 rows of values, and beyond the caches every row is a wait. Batches from "
    "32,768 queries on are answered in the order of their cells, which saves the more waits the more queries share what was "
    "fetched; smaller batches pay the machine's latency. In one and two variables ordering gains nothing and is not done. A "
    "query's value has the same bits in every batch and every order."
)


def big(found: dict[str, Any]) -> list[str]:
    """The billion tokens."""
    made, run, stages = found["memory_compiled_mib"], found["memory_evaluated_mib"], found["stages_seconds"]
    lines = [
        "### A billion tokens", "",
        "`benchmarks/big_layer.py`: sin(x) + cos(y) by the paper's lookup. Values are computed by two processes and written as "
        "they come; the checker proves the written file again, value by value; the file is loaded by mapping (hash and "
        "finiteness checked) and evaluated by `windowed`, which gives pages back as it goes. The machine was busy: load "
        f"{found['load_at_start']:.0f} on two cores at the beginning, {found['load_at_end']:.0f} at the end.", "",
        "| | |", "|---|---|",
        f"| tokens | {found['tokens']:,} |",
        f"| proved error | {found['bound']:.4g} |",
        f"| file | {found['file_bytes'] / 1e9:.2f} GB |",
        f"| compile | {found['compile_seconds']:,.0f} s: " + ", ".join(f"{name} {s:,.0f} s" for name, s in stages.items()) + " |",
        f"| memory stated before compiling | {found['stated_peak_mib']:,} MiB |",
        f"| peak while compiling | {made['peak']:,} MiB resident, of them {made['own']} MiB its own at the end; "
        f"{found['worker_peak_mib']} MiB in a worker |",
        f"| load | {found['load_seconds']:.0f} s, peak {found['memory_loaded_mib']['peak']:,} MiB |",
    ]  # fmt: skip
    speeds = found["queries_per_second"].items()
    lines += [f"| queries/s in batches of {int(batch):,} | {rate(speed)} |" for batch, speed in speeds]
    lines += [
        f"| peak while evaluating | {run['peak']:,} MiB resident, the largest batch and its answers included |",
        f"| largest error seen | {found['error_seen']:.3g} |",
    ]
    return [*lines, "", PAGES, ""]


PAGES = (
    "Resident pages of the file are the system's cache and are kept below 1 GiB. Batches from 4,096 queries on are answered in "
    "the order of their cells, so that a page is fetched once per batch; queries of small batches fetch four pages each."
)


SECTIONS: dict[str, tuple[str, Callable[[dict[str, Any]], list[str]]]] = {
    "cpu_peers": ("Peers at equal error", peers),
    "cpu_clusters": ("Kinks, regions and trees", clusters),
    "cpu_tables": ("Tables and black boxes", tables),
    "cpu_scaling": ("How the cost grows", scaling),
    "cpu_batch": ("What a call costs by its batch", calls),
    "big_layer": ("A billion tokens", big),
}


def main() -> None:
    """Replace the section, or begin the page."""
    page = PAGE.read_text() if PAGE.exists() else START
    if BEGIN not in page:
        page += f"\n{BEGIN}\n{END}\n"
    lines = ["", "## CPU", ""]
    for name, (title, tell) in SECTIONS.items():
        found = kept(name)
        if found is None:
            found = {"failed": "it was not run here"}
        if "failed" in found:
            lines += [f"### {title}", "", f"`benchmarks/{name}.py` gave no results: {found['failed']}.", ""]
        else:
            lines += tell(found)
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(before + BEGIN + "\n".join(lines) + END + after)


if __name__ == "__main__":
    main()
