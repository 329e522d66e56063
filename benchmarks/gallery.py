"""Every target of the gallery through `auto` at 1e-2 and 1e-4: docs/gallery.md and docs/images/gallery.png.

    python benchmarks/gallery.py [--errors 1e-2,1e-4] [--only NAME ...]

Errors are relative to the target's largest value, so that targets of any scale are asked for the same digits.
Discontinuous targets have no sup-norm proof and are asked for the same error in L_1.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import maxaffine as ma
from maxaffine.core.budget import count_text

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 2 << 30  # bytes a layer may take while it is made


def run(name: str, error: float) -> dict[str, object]:
    """One target at one relative error."""
    entry = ma.gallery[name]
    norm = 1 if "discontinuous" in entry.tags else "inf"
    begun = time.perf_counter()
    row: dict[str, object] = {"name": name, "dimension": entry.dimension, "error": error, "norm": str(norm)}
    try:
        compiled = ma.compile(entry, error=error, relative=True, norm=norm, run=ma.Run(max_bytes=LIMIT))
        row |= {
            "method": compiled.method, "tokens": compiled.tokens, "asked": compiled.error, "bound": compiled.bound,
            "kind": compiled.certificate.kind, "observed": compiled.observed.error, "reason": None,
        }  # fmt: skip
    except ma.Refused as refusal:
        row |= {"method": None, "tokens": None, "asked": None, "bound": None, "kind": "refused", "observed": None}
        row["reason"] = str(refusal)
    row["seconds"] = time.perf_counter() - begun
    return row


def page(rows: list[dict[str, object]]) -> str:
    """The table as Markdown."""
    met = sum(row["kind"] == "proved" for row in rows)
    seen = sum(row["kind"] == "none" for row in rows)
    lines = [
        "# The gallery through `auto`",
        "",
        f"Made by `make gallery`. {len(rows)} requests: {met} proved, {seen} compiled and only observed (callables), "
        f"{len(rows) - met - seen} refused. Errors are relative to the target's largest value; discontinuous targets are asked "
        "for in L_1. Seconds are those of one run on one machine.",
        "",
        "![tokens by target](images/gallery.png)",
        "",
        "| target | D | norm | asked | method | tokens | bound | observed | kind | s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row["kind"] == "refused":
            reason = str(row["reason"]).replace("|", "\\|")
            head = f"| {row['name']} | {row['dimension']} | {row['norm']} | {row['error']:g} | refused"
            lines.append(f"{head} | | | | {reason} | {row['seconds']:.1f} |")
            continue
        bound = "" if row["bound"] is None else f"{row['bound']:.3g}"
        lines.append(
            f"| {row['name']} | {row['dimension']} | {row['norm']} | {row['asked']:.3g} | {row['method']} | "
            f"{count_text(int(str(row['tokens'])))} | "
            f"{bound} | {row['observed']:.3g} | {row['kind']} | {row['seconds']:.1f} |"
        )
    return "\n".join(lines) + "\n"


def draw(rows: list[dict[str, object]], path: Path) -> None:
    """Tokens of every target, one column per error; refusals marked at the top."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(str(row["name"]) for row in rows))
    errors = sorted({float(str(row["error"])) for row in rows}, reverse=True)
    colours = {"spectral": "#0072b2", "lookup": "#d55e00"}  # others: clusters of some kind
    figure = Figure(figsize=(11, 0.19 * len(names) + 1.6), layout="constrained")
    panels = figure.subplots(1, len(errors), sharey=True, squeeze=False)[0]
    for axes, error in zip(panels, errors, strict=True):
        for row in rows:
            if float(str(row["error"])) != error:
                continue
            y = names.index(str(row["name"]))
            if row["tokens"] is None:
                axes.plot(1.0, y, marker="x", color="#6b7280", ms=6)
                continue
            tokens, colour = float(str(row["tokens"])), colours.get(str(row["method"]), "#009e73")
            axes.plot([1.0, tokens], [y, y], color=colour, lw=1.0, alpha=0.5)
            axes.plot(tokens, y, marker="o", ms=5, mec=colour, mfc=colour if row["kind"] == "proved" else "white")
        axes.set_xscale("log")
        axes.set_title(f"relative error {error:g}", fontsize=10, loc="left")
        axes.set_xlabel("tokens")
        axes.grid(True, axis="x", color="#e5e7eb", lw=0.6)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    panels[0].set_yticks(range(len(names)), names, fontsize=7)
    panels[0].invert_yaxis()
    told = "blue: spectral, green: clusters, orange: lookup; filled: proved, open: observed only, cross: refused"
    figure.suptitle(told, fontsize=9, x=0.01, ha="left")
    figure.savefig(path, dpi=110, metadata={"Software": None})


def main() -> int:
    """Run, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--errors", default="1e-2,1e-4")
    parser.add_argument("--only", nargs="*", default=None)
    arguments = parser.parse_args()
    names = arguments.only or list(ma.gallery)
    rows = []
    for name in names:
        for error in (float(text) for text in arguments.errors.split(",")):
            row = run(name, error)
            rows.append(row)
            what = row["reason"] or f"{row['method']} {row['tokens']} bound {row['bound']} observed {row['observed']}"
            print(f"{name} {error:g}: {row['kind']} {str(what)[:150]} {row['seconds']:.1f}s", flush=True)
    if arguments.only is None:
        (ROOT / "docs/images").mkdir(exist_ok=True)
        (ROOT / "docs/gallery.md").write_text(page(rows))
        draw(rows, ROOT / "docs/images/gallery.png")
    print(json.dumps({"proved": sum(r["kind"] == "proved" for r in rows), "rows": len(rows)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
