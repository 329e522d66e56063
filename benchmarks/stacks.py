"""Formulas as stacks: known ones, what one layer refuses, and three as the error falls; the record behind docs/stacks.md.

    python benchmarks/stacks.py [--section NAME ...] [--only NAME ...] [--again] [--record FILE] [--write]

Errors are in units of the formula's largest value.  Every cell (a formula at an error) runs in a process of its own, forked
after `maxaffine` is imported, and is added to the record at once; what is in the record is left alone unless `--again` is given.
Of every stack the independent checker is asked, and the error is searched for twice; of ten stacks the literal blocks are run in
every way.  `--write` makes the tables and the figure.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import maxaffine as ma
from formulas import keep
from maxaffine.stack.observe import observe
from stack_targets import SECTIONS, Asked
from stacks_literal import literal
from stacks_speed import speed

RECORD = Path(__file__).resolve().parent / "results" / "stacks.json"
LIMIT = 240  # processor seconds of a cell


def child(asked: Asked, pipe: Any) -> None:
    """One cell in this process."""
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 2))
    target = asked.target()
    row: dict[str, Any] = {"dimension": len(asked.box), "alone": asked.alone, "kind": "refused"}
    begun = time.process_time()
    try:
        made = ma.compile(target, ma.Box(**asked.box), error=asked.error, relative=True, layers="auto")
    except ma.Refused as refusal:
        pipe.send(row | {"reason": str(refusal), "seconds": time.process_time() - begun})
        return
    seconds, unit = time.process_time() - begun, asked.error / made.error
    stack = isinstance(made, ma.Stack)
    verdict = made.check()
    seen = made.observed.error
    if stack:
        seen = max(seen, observe(lambda x: made.values(x)[-1], made.target, 1).error)
    row |= {"literal": literal(made)} if asked.section == "literal" else {}
    row |= {"speed": speed(made)} if asked.section == "speed" else {}
    pipe.send(
        row
        | {
            "kind": made.certificate.kind, "method": made.method, "layers": made.layers if stack else 1, "tokens": made.tokens,
            "nodes": len(made.nodes) if stack else 1, "cut": made.style if stack else "",
            "longest": max(node.tokens for node in made.nodes) if stack else made.tokens,
            "bound": made.bound, "proved": made.bound * unit,
            "observed": seen * unit, "confirmed": verdict.passed, "checked": verdict.bound and verdict.bound * unit,
            "doubt": "" if verdict.passed else verdict.reason, "seconds": seconds,
        }
    )  # fmt: skip


def measured(asked: Asked) -> dict[str, Any]:
    """One cell, in a process of its own."""
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(asked, theirs))
    process.start()
    theirs.close()
    try:
        row: dict[str, Any] = mine.recv()
    except EOFError:
        row = {"dimension": len(asked.box), "alone": asked.alone, "kind": "stopped", "seconds": float(LIMIT)}
        row["reason"] = f"stopped after {LIMIT} processor seconds"
    process.join()
    return row


def is_above(row: dict[str, Any]) -> bool:
    """Whether a point was found above a bound, of the stack or of its literal blocks."""
    if "tokens" not in row:
        return False
    return row["observed"] > row["proved"] or any(way["worst"] > 1.0 for way in row.get("literal", {}).values())


def told(asked: Asked, row: dict[str, Any]) -> str:
    """A cell in a line."""
    head = f"{asked.section:7s} {asked.name:24s} {asked.error:7.0e} {row['seconds']:6.1f} s"
    if "tokens" not in row:
        return f"{head} {row['kind']} {row['reason'][:160]}"
    above = "  ABOVE ITS BOUND" if is_above(row) else ""
    doubt = "" if row["confirmed"] else "  NOT CONFIRMED"
    size = f"{row['layers']} layers {row['tokens']} tokens"
    return f"{head} {size}, proved {row['proved']:.1e}, observed {row['observed']:.1e}{above}{doubt}"


def main() -> int:
    """Run what the record lacks; with --write make the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--section", nargs="*", default=list(SECTIONS), choices=list(SECTIONS), dest="sections")
    parser.add_argument("--only", nargs="*", default=(), help="targets with one of these names")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    record: dict[str, Any] = json.loads(given.record.read_text()) if given.record.exists() else {}
    box = {"x": (0, 1), "y": (0, 1), "z": (0, 1)}
    ma.compile("sinh(x)*y + z", box, error=0.1, layers=4).check()  # what is imported late is imported here
    above = 0
    for section in given.sections:
        for asked in SECTIONS[section]():
            rows = record.setdefault(section, {}).setdefault(asked.name, {})
            if (given.only and asked.name not in given.only) or (f"{asked.error:g}" in rows and not given.again):
                continue
            row = rows[f"{asked.error:g}"] = measured(asked)
            above += is_above(row)
            keep(record, given.record)
            print(told(asked, row), flush=True)
    if given.write:
        from stacks_page import write

        write(record)
    print(f"points above a bound: {above}")
    return int(above > 0)


if __name__ == "__main__":
    sys.exit(main())
