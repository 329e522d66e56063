"""Real formulas through `auto`: AI Feynman's hundred and classical functions, proved, confirmed and searched for worse points.

    python benchmarks/formulas.py [--set feynman|classical ...] [--only TEXT ...] [--errors 1e-2,1e-4,1e-6] [--seconds 60]
        [--again] [--record FILE] [--page] [--warm]

Errors are relative to the formula's largest value.  Every cell (a formula at an error) runs in a process of its own, forked after
`maxaffine` is imported, and is added to the record at once; cells that are in the record are not run again unless `--again` says
so.  Of a layer that is proved the independent checker is asked, and points are searched: random ones, corners, faces, and from
all of them by climbing (proofs/observe.py inside `compile`, then attack/search.py).  `--page` makes docs/formulas.md and stops.
A cell's seconds include the libraries that its compile loads at first use.  `--warm` compiles the hundred one after another in
one process, after three small compiles, and keeps the seconds of that.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import resource
import sys
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import maxaffine as ma
from formula_targets import COARSE, ERRORS, SETS, Formula
from maxaffine.attack.search import worst_point
from maxaffine.layer.blocks import count_text
from maxaffine.runtime import chooser

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "results" / "formulas.json"
SECONDS = 60.0  # of one search
GRACE = 240.0  # processor seconds beyond those of the search, for proof, checker and attack
BYTES = 1 << 30
SCATTERED, FACES = 4000, 4000


def scattered(formula: Formula, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Random points, corners, and points on random faces of every dimension."""
    low, high = (np.array([side[end] for side in formula.box.values()], dtype=float) for end in (0, 1))
    inside = rng.uniform(low, high, (SCATTERED + FACES, len(low)))
    held = rng.random((FACES, len(low))) < rng.random((FACES, 1))
    held[: FACES // 2] |= rng.random((FACES // 2, 1)) < 0.5  # a quarter are corners
    ends = np.where(rng.random((FACES, len(low))) < 0.5, low, high)
    inside[SCATTERED:] = np.where(held, ends, inside[SCATTERED:])
    return inside


def judged(made: ma.Compiled, formula: Formula, error: float) -> dict[str, float]:
    """The largest error seen, absolute: by the search inside `compile`, by scattered points, and by the attack."""
    rng = np.random.default_rng(zlib.crc32(f"{formula.name} {error:g}".encode()))
    x = scattered(formula, rng)
    with np.errstate(all="ignore"):
        away = np.abs(np.asarray(made(x)).reshape(len(x)) - made.target.expression.evaluate(x).reshape(len(x)))
    runtime, _ = chooser.choose(made.weights, made.reserve)
    found = worst_point(made.weights, made.target, rng, runtime, reserve=made.reserve)
    return {"searched": made.observed.error, "scattered": float(np.nanmax(away)), "attacked": found.error}


def child(formula: Formula, error: float, seconds: float, pipe: Any) -> None:
    """One cell in this process: what is known is sent as soon as it is, so that a stop loses the rest alone."""
    limit = int(seconds + GRACE)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 2))
    row: dict[str, Any] = {"dimension": formula.dimension, "kind": "refused", "method": None, "reason": None}
    begun = time.process_time()
    try:
        made = ma.compile(formula.text, formula.box, error=error, relative=True,
                          run=ma.Run(max_bytes=BYTES, max_seconds=seconds))  # fmt: skip
    except ma.Refused as refusal:
        pipe.send(row | {"reason": str(refusal), "seconds": time.process_time() - begun})
        return
    except Exception as failure:  # a crash is a result, and the loudest one
        row |= {"kind": "crashed", "reason": f"{type(failure).__name__}: {failure}"}
        pipe.send(row | {"seconds": time.process_time() - begun})
        return
    row |= {
        "seconds": time.process_time() - begun, "kind": made.certificate.kind, "method": made.method, "tokens": made.tokens,
        "numbers": made.weights.nbytes // np.dtype(np.float64).itemsize, "asked": made.error, "bound": made.bound,
        "observed": {"searched": made.observed.error},
    }  # fmt: skip
    pipe.send(row)
    begun = time.process_time()
    verdict = made.check()
    row |= {"checked": verdict.bound, "confirmed": verdict.passed and verdict.confirmed, "doubt": verdict.reason}
    row |= {"checking": time.process_time() - begun}
    pipe.send(row)
    row["observed"] = judged(made, formula, error)
    pipe.send(row)


def measured(formula: Formula, error: float, seconds: float) -> dict[str, Any]:
    """One cell, in a process of its own."""
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(formula, error, seconds, theirs))
    process.start()
    theirs.close()
    row: dict[str, Any] = {"dimension": formula.dimension, "kind": "stopped", "method": None, "seconds": seconds + GRACE}
    row["reason"] = f"stopped after {seconds + GRACE:g} processor seconds"
    try:
        while True:
            row = mine.recv()
    except EOFError:
        pass
    process.join()
    return row


def warm(errors: Sequence[float], seconds: float) -> dict[str, dict[str, float]]:
    """Processor seconds of one compile after another in this process, by error and formula of the hundred."""
    for text in ("a*b/c", "1/(1 + a**2 + b**2 + c**2 + a*b)", "sin(a) + cos(b*c)"):
        ma.compile(text, {"a": (1, 2), "b": (1, 3), "c": (2, 3)}, error=1e-3)
    found: dict[str, dict[str, float]] = {}
    for error in errors:
        row = found[f"{error:g}"] = {}
        for formula in SETS["feynman"]():
            begun, limits = time.process_time(), ma.Run(max_bytes=BYTES, max_seconds=seconds)
            with contextlib.suppress(ma.Refused):
                ma.compile(formula.text, formula.box, error=error, relative=True, run=limits)
            row[formula.name] = time.process_time() - begun
        middle, late = np.percentile(list(row.values()), (50, 90))
        print(f"{error:g}: median {middle:.2f} s, 90th percentile {late:.2f} s", flush=True)
    return found


def worst(row: dict[str, Any]) -> float:
    """The largest error seen of a cell."""
    return max(row["observed"].values())


def told(name: str, error: str, row: dict[str, Any]) -> str:
    """A cell in a line."""
    head = f"{name:22s} {error:6s} {row['seconds']:7.2f} s  {row['kind']:8s}"
    if row["method"] is None:
        return f"{head} {str(row['reason'])[:200]}"
    confirmed = {True: "confirmed", False: "NOT CONFIRMED", None: "not checked"}[row.get("confirmed")]
    line = f"{head} {row['method']} {count_text(row['tokens'])} tokens {row['numbers']:,} numbers {confirmed}"
    if row["bound"] is None:
        return line
    above = "  ABOVE ITS BOUND" if worst(row) > row["bound"] else ""
    return f"{line} bound {row['bound']:.3g} observed {worst(row):.3g}{above}"


def keep(record: dict[str, Any], path: Path) -> None:
    """Write the record whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(record, indent=1) + "\n")
    beside.replace(path)


def main() -> int:
    """Run what the record lacks, or make the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--set", nargs="*", default=list(SETS), choices=list(SETS), dest="sets")
    parser.add_argument("--only", nargs="*", default=(), help="formulas with one of these names")
    parser.add_argument("--errors", default=",".join(f"{error:g}" for error in (*COARSE, *ERRORS)))
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--warm", action="store_true", help="the seconds of the hundred in one process, and nothing else")
    asked = parser.parse_args()
    record: dict[str, Any] = json.loads(asked.record.read_text()) if asked.record.exists() else {}
    if asked.page:
        from formulas_page import write

        write(record)
        return 0
    if asked.warm:
        record["warm"] = warm(ERRORS, asked.seconds)
        keep(record, asked.record)
        return 0
    sys.set_int_max_str_digits(0)
    errors, above = [float(text) for text in asked.errors.split(",")], 0
    for group in asked.sets:
        cells = [(f, e) for f in SETS[group]() for e in errors if e in f.errors and (not asked.only or f.name in asked.only)]
        for number, (formula, error) in enumerate(cells, 1):
            rows = record.setdefault(group, {}).setdefault(formula.name, {})
            if f"{error:g}" in rows and not asked.again:
                continue
            row = rows[f"{error:g}"] = measured(formula, error, asked.seconds)
            above += row["method"] is not None and row["bound"] is not None and worst(row) > row["bound"]
            keep(record, asked.record)
            print(f"{number}/{len(cells)} {told(formula.name, f'{error:g}', row)}", flush=True)
    print(f"points above a bound: {above}")
    return int(above > 0)


if __name__ == "__main__":
    sys.exit(main())
