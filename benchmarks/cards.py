"""The cards of the gallery: a small picture of every target, and its tokens at three errors, for the site.

    python benchmarks/cards.py [--only NAME ...] [--seconds 20]

Errors are relative to the target's largest value; targets that jump are asked for in L_1.  Entries that are in the record
are not run again.  Pictures go to docs/images/cards, the record to benchmarks/results/cards.json, which `make site` reads.
"""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path
from typing import Any

import maxaffine as ma
from maxaffine.report import style
from maxaffine.report.notebook import small_figure
from maxaffine.report.sampling import Probe

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "results" / "cards.json"
PICTURES = ROOT / "docs" / "images" / "cards"
ERRORS = (1e-2, 1e-4, 1e-6)
COLOURS = 48  # of a picture: small files, no visible loss
BYTES = 1 << 30


def picture(layer: ma.Compiled, path: Path) -> None:
    """Layer and error, small."""
    from PIL import Image

    with style.look():
        drawn = style.render(small_figure(Probe(layer)), ".png", dots=70)
    Image.open(io.BytesIO(drawn)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def card(name: str, seconds: float) -> dict[str, Any]:
    """One target at three errors, drawn at the first that is met."""
    entry = ma.gallery[name]
    norm = 1 if "discontinuous" in entry.tags else "inf"
    rows: list[dict[str, Any]] = []
    drawn = None
    for error in ERRORS:
        row: dict[str, Any] = {"error": error, "method": None, "tokens": None, "kind": "refused"}
        try:
            layer = ma.compile(entry, error=error, relative=True, norm=norm, run=ma.Run(max_bytes=BYTES, max_seconds=seconds))
            row |= {"method": layer.method, "tokens": layer.tokens, "kind": layer.certificate.kind}
            if drawn is None:
                drawn = PICTURES / f"{name}.png"
                picture(layer, drawn)
        except ma.Refused as refusal:
            row["reason"] = refusal.reason
        rows.append(row)
    options = " --norm 1" if norm == 1 else ""
    return {
        "text": entry.text, "box": str(entry.box) if not isinstance(entry.box, tuple) else " and ".join(map(str, entry.box)),
        "source": entry.source, "tags": list(entry.tags), "rows": rows, "picture": None if drawn is None else drawn.name,
        "command": f"maxaffine compile {name} --error 1e-2 --relative{options}",
    }  # fmt: skip


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=None)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    PICTURES.mkdir(parents=True, exist_ok=True)
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name in options.only or ma.gallery:
        if options.only is None and name in record:
            continue
        record[name] = card(name, options.seconds)
        print(name, [(row["method"], row["tokens"]) for row in record[name]["rows"]], flush=True)
        ordered = {known: record[known] for known in ma.gallery if known in record}
        RECORD.write_text(json.dumps(ordered, indent=1) + "\n")


if __name__ == "__main__":
    main()
