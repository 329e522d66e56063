"""The section "GPU" of docs/benchmarks.md and its figure, from benchmarks/results/gpu.json."""

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

from maxaffine.core.records import replace_atomically

ROOT = Path(__file__).parent.parent
NAMES = {
    "sum": "sin x + cos y", "product": "sin x cos y", "franke": "Franke", "runge": "1/(1 + 25 x^2)", "gauss": "exp(-r^2), 3-D",
    "coupled": "cos(x y + z)",
}  # fmt: skip
KINDS = {
    "max": "max(x, y)", "abs-sin": "abs(sin 7x)", "crease": "abs(x+2y-.3) cos x", "sum-kink": "abs(sin 5x) + cos(y)^2",
    "product-kink": "abs(sin 7x) e^y", "curved": "max(r^2, .5)", "bump": "bump of width .02", "ring": "atan(30(r^2 - .5))",
    "relu-16": "ReLU network, 16 units", "regions": "abs(x+2y-.3) cos(xy)", "maximum": "max(sin 3x, y)",
    "factors-3": "abs x abs y abs z", "regions-3": "abs(x + y + z) e^(xy)",
    "franke": "Franke", "coupled": "cos(xy + z)", "runge": "1/(1 + 25 x^2)",
}  # fmt: skip
PLANE = ("sum", "product", "franke")
BEGIN, END = "<!-- gpu -->", "<!-- /gpu -->"


def good(results: dict[str, Any], key: str) -> dict[str, Any] | None:
    """A section that ran, or None."""
    found = results.get(key)
    return found if isinstance(found, dict) and "failed" not in found and "skipped" not in found else None


def rate(value: float) -> str:
    """Queries per second as a person reads them."""
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.3g}"


def best(results: dict[str, Any], name: str) -> dict[str, Any] | None:
    """The collapsed layer of that name, the faster of its two measurements."""
    found = [one for one in (good(results, f"ours {name}"), good(results, f"configs {name}")) if one]
    return max(found, key=lambda one: one["queries_per_s"]) if found else None


def at_error(rows: list[dict[str, Any]], error: float) -> tuple[float, str]:
    """Throughput of a texture at that error, between the sizes that were measured; beyond them at the best error there is."""
    useful, low = [], math.inf  # sizes that lower the error; larger ones are slower and no better
    for row in rows:
        if row["error"] < low:
            useful.append(row)
            low = row["error"]
    for a, b in pairwise(useful):
        if b["error"] <= error <= a["error"]:
            share = math.log(a["error"] / error) / math.log(a["error"] / b["error"])
            return a["queries_per_s"] ** (1 - share) * b["queries_per_s"] ** share, f"{a['texels']} to {b['texels']}"
    if error > useful[0]["error"]:
        return useful[0]["queries_per_s"], f"{useful[0]['texels']}"
    last = max((row for row in rows if row["error"] <= 1.25 * low), key=lambda row: row["queries_per_s"])
    return last["queries_per_s"], f"{last['texels']}, error {last['error']:.1e}: the best it reaches"


def literal_at(found: dict[str, Any], error: float, dimension: int) -> tuple[float, float]:
    """Keys that the paper's lookup needs for that error, its error falling like 1/cells, and attention's rate over them."""
    last = found["rows"][-1]
    keys = (last["cells"] * last["error"] / error) ** dimension
    return keys, max(row["pairs_per_s"] for row in found["rows"]) / keys


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Markdown."""
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows), ""]


def ours(results: dict[str, Any]) -> list[str]:
    """What the kernels reach."""
    rows = []
    for name in NAMES:
        for key, dtype in ((name, "float32"), (f"{name} float64", "float64")):
            found = best(results, name) if dtype == "float32" else good(results, f"ours {key}")
            if found is None:
                continue
            shares = f"{found['of_bandwidth']:.0%}, {found['of_arithmetic']:.0%}" if "of_bandwidth" in found else "not measured"
            rows.append([NAMES[name], dtype, f"{found['tokens']:,}", rate(found["queries_per_s"]), f"{found['error']:.1e}",
                         f"{found['proved_total']:.1e}", str(found["multiply_adds"]), shares])  # fmt: skip
    head = ["target", "dtype", "tokens", "queries/s", "largest error", "proved", "multiply-adds", "of bandwidth, of arithmetic"]
    return table(head, rows)


def beside(results: dict[str, Any]) -> list[str]:
    """Peers at equal error, as ratios."""
    rows = []
    for name in ("sum", "product", "franke", "gauss", "coupled"):
        mine = best(results, name)
        if mine is None:
            continue
        speed, cells = mine["queries_per_s"], [NAMES[name], f"{rate(mine['queries_per_s'])}, {mine['error']:.1e}"]
        textures = good(results, f"textures {name}")
        for mode in ("bilinear", "bicubic"):
            if textures and mode in textures:
                other, size = at_error(textures[mode], mine["error"])
                cells.append(f"{rate(other)} ({size}): {speed / other:.3g}x")
            else:
                cells.append("none in 3-D")
        same = good(results, f"same layer {name}")
        slow = same["sdpa_queries_per_s"] if same else 1.0
        cells.append(f"{rate(slow)}, {same['sdpa_error']:.1e}: {speed / slow:,.0f}x" if same else "not run")
        paper = good(results, f"paper {name}")
        if paper:
            keys, other = literal_at(paper, mine["error"], 3 if name in ("gauss", "coupled") else 2)
            cells.append(f"{keys:.1e} keys, {other:.2g}/s: {speed / other:.1e}x")
        else:
            cells.append("not run")
        network = good(results, f"network {name}")
        slow = network["queries_per_s"] if network else 1.0
        cells.append(f"{rate(slow)}, {network['error']:.1e}: {speed / slow:.3g}x" if network else "not run")
        formula = (good(results, "torch.compile") or {}).get(name)
        slow = formula["formula_queries_per_s"] if formula else 1.0
        peer = f"{rate(slow)}, {formula['formula_error']:.1e}: {speed / slow:.2g}x" if formula else "not run"
        cells.append(peer)
        series = good(results, f"series {name}")
        slow = series["queries_per_s"] if series else 1.0
        cells.append(f"{rate(slow)}: {speed / slow:.3g}x" if series else "two variables alone")
        rows.append(cells)
    head = ["target", "collapsed", "grid_sample bilinear at equal error", "bicubic", "SDPA, same layer"]
    head += ["SDPA, the paper's lookup", "3 x 64 network", "the formula itself by torch.compile", "Clenshaw in PyTorch"]
    return table(head, rows)


SAID = """### Every kind of layer, and its formula

`benchmarks/gpu_clusters.py`, float32, queries per second, one run; the formula by torch.compile is the peer to beat. *The
layer* is `layer(tensor)`, a kernel that follows the softmax; *direct form* is `layer(tensor, runtime="direct")`, the target's
own formula in one kernel. *Seen* is the largest error over 2^24 points (2^22 for the direct form), *stated* what
`layer.statement` proves of that route; the last columns are the same layer in float64. All have the same bits in every batch;
of each layer in float32 the best of six launch shapes is shown.
"""
CALLS = "Microseconds of wall time per call: the kernel called from Python, replayed as a CUDA graph, the compiled formula.\n"
INSIDE = """A module (`layer.to_torch()`) between two linear layers of a model compiled by torch.compile, batch 10,000: it runs
in float64 by PyTorch's own operations, which inductor fuses into several kernels, not into one.
"""


FUSED = """A layer between two linear layers of a float32 model (`benchmarks/gpu_fused.py`), beside the same model with a ReLU
and a sum in its place. *Kernel* is `layer.to_torch(form="kernel")`, one operator; *structure* is `layer.to_torch()`, by
PyTorch's own operations in float64. Kernels of one call of the compiled model, batch 10,000, and of one step of training, forward
and backward.
"""
FUSED_CALLS = """Microseconds of wall time per call of that model: run eagerly, compiled, and with mode="reduce-overhead",
which replays a CUDA graph.
"""
SLOPES = """Gradients in x by one kernel, float32, 2^24 points; *apart* is from the gradient of the softmax in float64 at 10^5
points, relative to the largest one.
"""


def fused() -> list[str]:
    """Models with a layer in them: benchmarks/gpu_fused.py; empty where that was not run."""
    path = ROOT / "benchmarks" / "results" / "gpu_fused.json"
    if not path.exists():
        return []
    kernels, calls, slopes, ways = [], [], [], ("eager", "compiled", "reduce-overhead")
    for one in json.loads(path.read_text())["rows"]:
        if "failed" in one:
            kernels.append([KINDS[one["name"]], one["failed"], *["failed"] * 4])
            continue
        own = one["gradients"]
        cells = [rate(own["rate"]), rate(own["values"]), f"{own['median']:.1e}", f"{own['most']:.1e}"] if "rate" in own else []
        slopes.append([KINDS[one["name"]], *(cells or [own.get("why not", "not measured"), *["no kernel"] * 3])])
        if "by" not in one:
            continue
        for form in ("kernel", "structure", "relu"):
            here = one[f"{form}, float32, 10000, compiled"]
            step, word = here["training"], {"relu": "ReLU and sum"}.get(form, form)
            cells = (f"{part[what]:.0f}" for part in (here, step) for what in ("kernels", "microseconds"))
            kernels.append([KINDS[one["name"]], word, *cells])
            times = (f"{one[f'{form}, float32, {batch}, {how}']['call']:.0f}" for batch in (1, 10000) for how in ways)
            calls.append([KINDS[one["name"]], word, *times])
    head = ["target", "in the model", "kernels", "microseconds of kernels", "kernels of a step of training", "microseconds"]
    timed = [f"{how}, batch {batch}" for batch in ("1", "10,000") for how in ("eager", "compiled", "CUDA graph")]
    told = [FUSED, *table(head, kernels), FUSED_CALLS, *table(["target", "in the model", *timed], calls)]
    measured = ["target", "gradients/s", "values/s", "apart, median", "apart, 95%"]
    return [*told, SLOPES, *table(measured, slopes)]


def kinds() -> list[str]:
    """Every kind of layer beside its formula by torch.compile, and the direct form: benchmarks/gpu_clusters.py."""
    path = ROOT / "benchmarks" / "results" / "gpu_clusters.json"
    rows, small, inside = [], [], []
    for one in json.loads(path.read_text())["rows"]:
        direct, formula, calls, name = one["direct"], one["formula"], one["calls"], KINDS[one["name"]]
        own = [rate(one["ours"]), f"{one['ours'] / formula:.2f}", f"{one['seen']:.1e}", f"{one['stated']:.1e}"]
        form = [rate(direct["rate"]), f"{direct['rate'] / formula:.2f}", f"{direct['seen']:.1e}", f"{direct['stated']:.1e}"]
        wide = [rate(one["float64"]["rate"]), f"{one['float64']['seen']:.1e}", f"{one['float64']['stated']:.1e}"]
        rows.append([name, f"{one['error']:g}", rate(formula), *own, *form, *wide])
        times = [f"{calls[batch][key]:.0f}" for batch in ("1", "10000") for key in ("call", "graph", "formula")]
        small.append([name, *times, str(calls["1"]["launches"])])
        if "in a compiled model" in one:
            found = [one["in a compiled model"][key] for key in ("layer", "relu")]
            inside.append([name, *(f"{part[what]:.0f}" for part in found for what in ("kernels", "microseconds"))])
    columns = ["over the formula", "seen", "stated"]
    head = ["target", "error asked", "the formula by torch.compile", "the layer", *columns, "direct form", *columns]
    head += ["the layer in float64", "seen", "stated"]
    timed = [f"{what}, batch {batch}" for batch in ("1", "10,000") for what in ("call", "CUDA graph", "formula")]
    models = ["layer in the model", "kernels", "microseconds of kernels", "kernels with a ReLU in its place", "microseconds"]
    said = [SAID, *table(head, rows), CALLS, *table(["target", *timed, "launches"], small)]
    return [*said, *(fused() or [INSIDE, *table(models, inside)])]


STACKS = """### Stacks

`benchmarks/gpu_stacks.py`, queries per second, one run: a stack as one kernel, by PyTorch's operations in float64, and the
formula (of a network: the network) by torch.compile in the dtype of the row. *Seen* is the largest error over 2^24 points,
*stated* what `stack.statement` proves of that route.
"""


def stacks() -> list[str]:
    """Stacks beside their formulas: benchmarks/gpu_stacks.py."""
    rows = []
    for one in json.loads((ROOT / "benchmarks" / "results" / "gpu_stacks.json").read_text())["rows"]:
        about = [one["name"], f"{one['error']:.1e}", f"{one['layers']}", f"{one['tokens']}", one["dtype"]]
        if "failed" in one:
            rows.append([*about, *[one["failed"]] * 3, "none", "none", "none"])
            continue
        speeds = [rate(one["formula"]), rate(one["kernel"]), rate(one["operations"]), f"{one['kernel'] / one['formula']:.2f}"]
        rows.append([*about, *speeds, f"{one['seen']:.1e}", f"{one['stated']:.1e}"])
    head = ["stack", "error asked", "layers", "tokens", "tensors", "the formula by torch.compile", "one kernel", "operations"]
    return [STACKS, *table([*head, "kernel over the formula", "seen", "stated"], rows)]


def windows(results: dict[str, Any]) -> list[str]:
    """Lookups of growing size."""
    found = good(results, "windows")
    if found is None:
        return []
    rows = [
        [NAMES[name], f"{row['tokens']:,}", str(row["gathers"]), rate(row["queries_per_s"]), f"{row['error']:.1e}"]
        for name, several in found.items() for row in several
    ]  # fmt: skip
    said = ["Lookups by the windowed kernel (sharpness 20 per cell):", ""]
    return said + table(["lookup", "tokens", "keys per query", "queries/s", "largest error"], rows)


def checks(results: dict[str, Any]) -> list[str]:
    """Agreement with the CPU, batches, gradients."""
    rows = []
    for name in PLANE:
        same, grads = good(results, f"agreement {name}"), good(results, f"gradients {name}")
        if not same or not grads:
            continue
        narrow, wide = same["float32"], same["float64"]
        worst = max(value for key, value in grads.items() if key != "points")
        rows.append([
            NAMES[name], f"{same['certificate']:.1e}", f"{narrow['largest_difference']:.1e}", f"{narrow['kernel_bound']:.1e}",
            f"{wide['largest_difference']:.1e}",
            "yes" if narrow["independent_of_batch"] and wide["independent_of_batch"] else "NO", f"{worst:.1e}",
        ])  # fmt: skip
    head = ["target", "certificate", "float32 - CPU, 1e7 points", "the float32 kernel's bound", "float64 - CPU",
            "same bits in every batch", "gradients - dense autograd, relative"]  # fmt: skip
    return table(head, rows)


def by_batch() -> list[str]:
    """What a call costs by the size of its batch, where benchmarks/gpu_batch.py was run."""
    path = ROOT / "benchmarks" / "results" / "gpu_batch.json"
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    rows = []
    for name, one in found["layers"].items():
        for row in one["rows"]:
            plain = f"{row['factorised_seconds'] * 1e6:,.0f}" if "factorised_seconds" in row else "not run"
            speed, bits = rate(row["batch"] / row["chosen_seconds"]), "yes" if row["same_bits"] else "NO"
            cells = [NAMES.get(name, name), one["runtime"], f"{row['batch']:,}", f"{row['chosen_seconds'] * 1e6:,.0f}"]
            rows.append([*cells, speed, plain, bits])
    told = (
        "Whole calls by the size of their batch (`benchmarks/gpu_batch.py`, float32, wall time until the answer is there): below "
        "a million queries a call costs its launch and nothing else, the kernel is the fastest way at every size, and the batch "
        "decides nothing."
    )
    head = ["layer", "kernel", "batch", "microseconds per call", "queries/s", "PyTorch's operations, microseconds", "same bits"]
    return [told, "", *table(head, rows)]


def section(results: dict[str, Any]) -> str:
    """The whole section."""
    about, limit = results["machine"], good(results, "limits") or {}
    copies, narrow, wide = (limit.get(f"{key}_per_s", 0.0) / 1e12 for key in ("copy_bytes", "float32_fma", "float64_fma"))
    lines = [
        BEGIN, "## GPU", "",
        f"One {about.get('gpu', 'CPU')}, PyTorch {about['torch']}, Triton {about['triton']}; one run of `benchmarks/gpu.py`.",
        "Uniform queries, medians of CUDA events, arrays far beyond the L2 cache, TF32 off. Measured in the same run: copies",
        f"{copies:.2f} TB/s (read plus written), fused multiply-adds {narrow:.1f} T/s in float32, {wide:.1f} T/s in float64.", "",
        *kinds(),
        *stacks(),
        "### Spectral layers and their peers", "",
        "Layers by the collapsed kernels. *Proved* is the layer's certificate plus the kernel's own bound, all roundings",
        "counted; *largest error* is over 2^24 points against float64 formulas.", "", *ours(results),
        "Beside what else one would use. Throughput of a texture at equal error lies between the measured sizes; where it",
        "never gets that accurate, its best size is taken. The paper's lookup is measured up to 256^2 (40^3) keys and",
        "extrapolated: its error falls like 1/cells, attention costs in proportion to keys. Where the target is a formula that",
        "PyTorch can compile, evaluating the formula itself is the peer to beat: a layer reads and writes as many bytes, and its",
        "series may cost more arithmetic than four exponentials do.", "", *beside(results),
        "![error against throughput](images/benchmarks-gpu.png)", "",
        *windows(results),
        "Agreement with the softmax on the CPU, batches, gradients (float64, in x, keys and values):", "", *checks(results),
        *by_batch(), END,
    ]  # fmt: skip
    return "\n".join(lines)


def draw(results: dict[str, Any], path: Path) -> None:
    """Error against throughput for the three targets of two variables."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(11, 3.6), sharey=True, layout="constrained")
    for panel, name in zip(axes, PLANE, strict=True):
        for mode, colour in (("bilinear", "#0072B2"), ("bicubic", "#56B4E9")):
            rows = (good(results, f"textures {name}") or {}).get(mode, [])
            x, y = [row["error"] for row in rows], [row["queries_per_s"] for row in rows]
            panel.loglog(x, y, "o-", color=colour, label=f"grid_sample {mode}", markersize=4)
        same, net = good(results, f"same layer {name}"), good(results, f"network {name}")
        if same:
            panel.loglog(same["sdpa_error"], same["sdpa_queries_per_s"], "s", color="#D55E00", label="SDPA, same layer")
        paper = good(results, f"paper {name}")
        if paper:
            x, y = [row["error"] for row in paper["rows"]], [row["queries_per_s"] for row in paper["rows"]]
            panel.loglog(x, y, "^-", color="#E69F00", label="SDPA, the paper's lookup", markersize=4)
        if net:
            panel.loglog(net["error"], net["queries_per_s"], "D", color="#999999", label="3 x 64 network")
        rows = (good(results, "windows") or {}).get(name, [])
        if rows:
            x, y = [row["error"] for row in rows], [row["queries_per_s"] for row in rows]
            panel.loglog(x, y, "v-", color="#009E73", label="windowed lookup", markersize=4)
        mine = best(results, name)
        if mine:
            panel.loglog(mine["error"], mine["queries_per_s"], "*", color="black", label="collapsed, float32", markersize=12)
        wide = good(results, f"ours {name} float64")
        if wide:
            panel.loglog(wide["error"], wide["queries_per_s"], "*", color="#CC79A7", label="collapsed, float64", markersize=10)
        panel.set_title(NAMES[name], fontsize=10)
        panel.set_xlabel("largest error")
        panel.grid(alpha=0.3)
    axes[0].set_ylabel("queries per second")
    handles = {label: handle for panel in axes for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    figure.savefig(path, dpi=130, metadata={"Software": None})


def main() -> None:
    """Write the section into docs/benchmarks.md, and the figure."""
    results = json.loads((ROOT / "benchmarks" / "results" / "gpu.json").read_text())
    page = ROOT / "docs" / "benchmarks.md"
    text = page.read_text() if page.exists() else "# Benchmarks\n\n"
    made = section(results)
    if BEGIN in text and END in text:
        text = text[: text.index(BEGIN)] + made + text[text.index(END) + len(END) :]
    else:
        text = text.rstrip("\n") + "\n\n" + made + "\n"
    draw(results, ROOT / "docs" / "images" / "benchmarks-gpu.png")
    replace_atomically(page, lambda temporary: temporary.write_text(text) and None)


if __name__ == "__main__":
    main()
