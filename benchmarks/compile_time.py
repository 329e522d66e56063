"""How long a compile takes: processor seconds by stage, and the share spent on heads that did not win.

    python benchmarks/compile_time.py [--set named|read|gallery|hard|refused ...] [--only TEXT ...] [--against FILE]
        [--write [FILE]] [--page]      record (in benchmarks/results by default), and make its section of docs/benchmarks.md

Every request runs in a process of its own, forked after `maxaffine` is imported: a first compile, on one BLAS thread.  `named`
are the 26 requests that are compared from commit to commit, `read` the callables among them read as expressions; `gallery` and
`hard` those of benchmarks/gallery.py and of hard_targets.py; `refused` cannot be met, and are timed until they say so.  Ratios
are against the last committed record, or against the record of another commit measured beside it (`--against`).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import signal
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import maxaffine as ma

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "results" / "compile_time.json"
FIGURE, PAGE = ROOT / "docs" / "images" / "compile-time.svg", ROOT / "docs" / "benchmarks.md"
MARKS = ("<!-- compile -->", "<!-- /compile -->")
LIMIT = 120.0  # seconds of one request
STOPPED = (-signal.SIGXCPU, -signal.SIGKILL)  # how a process ends at its limit
SETS = ("named", "read", "gallery", "hard", "refused")


@dataclass(frozen=True)
class Ask:
    """A request: its name, and the arguments of `compile`."""

    name: str
    target: Any
    box: Any
    error: float
    options: dict[str, Any] = field(default_factory=dict)


def cube(names: str, half: float = 1.0) -> dict[str, tuple[float, float]]:
    """The box [-half, half] in every variable named."""
    return dict.fromkeys(names.split(), (-half, half))


def _table() -> ma.Table:
    a, b = np.linspace(-1, 1, 500), np.linspace(-1, 1, 500)
    x, y = np.meshgrid(a, b, indexing="ij")
    return ma.Table([a, b], np.sin(3 * x) * np.cos(2 * y) + np.exp(-4 * (x - y) ** 2))


FRANKE = (
    "0.75*exp(-((9*x-2)**2+(9*y-2)**2)/4) + 0.75*exp(-(9*x+1)**2/49-(9*y+1)/10)"
    " + 0.5*exp(-((9*x-7)**2+(9*y-3)**2)/4) - 0.2*exp(-(9*x-4)**2-(9*y-7)**2)"
)
UNIT = {"x": (0.0, 1.0), "y": (0.0, 1.0)}


def named() -> list[Ask]:
    """The 26 requests; [-1, 1] unless said."""
    X, XY, XYZ = cube("x"), cube("x y"), cube("x y z")
    sines = " + ".join(f"sin({k}*x{k})" for k in range(1, 21))
    return [
        Ask("sin x+cos y", "sin(x)+cos(y)", cube("x y", 3), 1e-6),
        Ask("sin x cos y", "sin(x)*cos(y)", cube("x y", 3), 1e-6),
        Ask("exp(-x^2)cos y", "exp(-x**2)*cos(y)", {"x": (-2, 2), "y": (0, 2)}, 1e-8),
        Ask("Franke 1e-6", FRANKE, UNIT, 1e-6),
        Ask("Franke 1e-9", FRANKE, UNIT, 1e-9),
        Ask("sin(xy)", "sin(x*y)", cube("x y", 3), 1e-6),
        Ask("1/(1+r^2) 3-D", "1/(1+x**2+y**2+z**2)", XYZ, 1e-4),
        Ask("cos(xy+z)", "cos(x*y+z)", XYZ, 1e-4),
        Ask("sin(xy+zw)", "sin(x*y+z*w)", cube("x y z w"), 1e-2),
        Ask("20 sines", sines, cube(" ".join(f"x{k}" for k in range(1, 21))), 1e-4),
        Ask("tanh 5(x+y)", "tanh(5*(x+y))", XY, 1e-6),
        Ask("abs(sin 7x)", "abs(sin(7*x))", X, 1e-6),
        Ask("abs(sin 7x) float32", "abs(sin(7*x))", X, 1e-4, {"dtype": "float32"}),
        Ask("abs(sin 5x)+cos(y)^2", "abs(sin(5*x))+cos(y)**2", XY, 1e-6),
        Ask("abs(sin 7x)exp y", "abs(sin(7*x))*exp(y)", XY, 1e-4),
        Ask("sqrt(xy) 1e-2", "sqrt(x*y)", UNIT, 1e-2),
        Ask("sqrt(xy) 1e-4", "sqrt(x*y)", UNIT, 1e-4),
        Ask("bump", "exp(-((x-.3)**2+(y+.2)**2)/.0004)", XY, 1e-4),
        Ask("max(r^2,.5)", "max(x**2+y**2,.5)", XY, 1e-4),
        Ask("max(x,y)", "max(x,y)", XY, 1e-8),
        Ask("step", "where(x > 0.3, 1, 0)", X, 1e-4, {"gap": 1e-3}),
        Ask("disc L1", "where(x**2+y**2 < 0.5, 1, 0)", XY, 1e-2, {"norm": 1}),
        Ask("table 500x500", _table, None, 1e-3),
        *(Ask(f"callable {name}", f, box, error, {"trace": False}) for name, f, box, error in callables()),
    ]


def callables() -> list[tuple[str, Callable[[np.ndarray], np.ndarray], dict[str, tuple[float, float]], float]]:
    """Functions of which nothing is known: they are not read as expressions."""
    return [
        ("sin(5x)exp x", lambda x: np.sin(5 * x[:, 0]) * np.exp(x[:, 0]), cube("x"), 1e-6),
        ("sin(3xy)+x^2", lambda x: np.sin(3 * x[:, 0] * x[:, 1]) + x[:, 0] ** 2, cube("x y"), 1e-4),
        ("cos(xy+z)", lambda x: np.cos(x[:, 0] * x[:, 1] + x[:, 2]), cube("x y z"), 1e-3),
    ]


def read() -> list[Ask]:
    """The same functions read as expressions, as is usual, and proved."""
    return [Ask(f"read {name}", f, box, error) for name, f, box, error in callables()]


def refused() -> list[Ask]:
    """Requests that cannot be met, and the three that are asked from the command line."""
    X = cube("x")
    return [
        Ask("1/(1.05+x)", "1/(1.05+x)", X, 1e-5),
        Ask("abs(sin 7x) float32 1e-6", "abs(sin(7*x))", X, 1e-6, {"dtype": "float32"}),
        Ask("sin x on +-1e9", "sin(x)", cube("x", 1e9), 1e-2),
        Ask("sin x on +-1e5", "sin(x)", cube("x", 1e5), 1e-2),
        Ask("sin x 1e-15", "sin(x)", X, 1e-15),
        Ask("5-D hopeless", "1/(1.01+sin(9*a*b+7*c*d*f+5*a*c))", cube("a b c d f"), 1e-4),
        Ask("5-D", "sin(a*b+c*d*f)", cube("a b c d f"), 1e-4),
        Ask("5-D 1e-2", "1/(1.5+sin(a*b+c*d*f))", cube("a b c d f"), 1e-2),
    ]


def gallery() -> list[Ask]:
    """Every entry at two relative errors, as benchmarks/gallery.py asks."""
    asks = []
    for name in ma.gallery:
        entry = ma.gallery[name]
        norm = 1 if "discontinuous" in entry.tags else "inf"
        options = {"relative": True, "norm": norm, "run": ma.Run(max_bytes=2 << 30)}
        asks += [Ask(f"{name} {error:g}", entry, None, error, options) for error in (1e-2, 1e-4)]
    return asks


def hard() -> list[Ask]:
    """Every cell of the hard targets."""
    import hard_targets as table

    asks, functions = [], table.callables()
    for row in (*table.ROWS, *table.BEYOND):
        box = ma.Box([-1.0] * row.dimension, [1.0] * row.dimension) if row.expression is None else cube(
            " ".join(table.NAMES[: row.dimension])
        )  # fmt: skip
        gap = table.GAP if row.gap or (row.expression is None and row.name.startswith(("floor", "where"))) else None
        target = row.expression or functions[row.name]
        asks += [Ask(f"{row.name} {error:g}", target, box, error, {"relative": True, "gap": gap}) for error in table.ERRORS]
    return asks


ASKS: dict[str, Callable[[], list[Ask]]] = {"named": named, "read": read, "gallery": gallery, "hard": hard, "refused": refused}


# ---------------------------------------------------------------------- one request, stage by stage


class Clock:
    """Processor seconds by stage and by head; a stage inside another is taken out of it."""

    def __init__(self) -> None:
        self.stages: dict[str, float] = defaultdict(float)
        self.heads: dict[str, float] = defaultdict(float)
        self._stack: list[list[float]] = []

    def timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its own seconds added to a stage."""

        def run(*args: Any, **kwargs: Any) -> Any:
            with self._inside(stage):
                return function(*args, **kwargs)

        return run

    def _inside(self, stage: str) -> Any:
        from contextlib import contextmanager

        @contextmanager
        def inside() -> Iterator[None]:
            begun, within = time.process_time(), [0.0]
            self._stack.append(within)
            try:
                yield
            finally:
                took = time.process_time() - begun
                self._stack.pop()
                self.stages[stage] += took - within[0]
                if self._stack:
                    self._stack[-1][0] += took

        return inside()

    def watch(self) -> None:
        """Put the clock around the stages of `compile`; proposals are generators, and timed step by step."""
        from maxaffine import compiler, one_layer, search
        from maxaffine.heads import HEADS, found

        compiler.request_of = self.timed("request", compiler.request_of)
        for module, name, stage in ((one_layer, "search_worst", "observe"), (one_layer, "validate", "validate")):
            setattr(module, name, self.timed(stage, getattr(module, name)))
        found.unconfirmed = self.timed("check", found.unconfirmed)
        search.lookup.search = self._of_head("lookup", search.lookup.search)
        for head in HEADS.values():
            kind = type(head)
            for stage in ("build", "prove"):
                if stage in vars(kind):
                    setattr(kind, stage, self.timed(stage, vars(kind)[stage]))
            if "propose" in vars(kind):
                kind.propose = self._steps(vars(kind)["propose"])
        attempt = search.attempt
        search.attempt = lambda name, *args: self._of_head(name, attempt)(name, *args)

    def _of_head(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            begun = time.process_time()
            try:
                return self.timed("plan", function)(*args, **kwargs)
            finally:
                self.heads[name] += time.process_time() - begun

        return run

    def _steps(self, propose: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            plans = self.timed("plan", propose)(*args, **kwargs)
            while True:
                plan = self.timed("plan", lambda: next(plans, None))()
                if plan is None:
                    return
                yield plan

        return run


def measure(ask: Ask) -> dict[str, Any]:
    """One request in this process."""
    clock = Clock()
    clock.watch()
    target = ask.target() if ask.target is _table else ask.target
    row: dict[str, Any] = {"name": ask.name}
    begun, real = time.process_time(), time.perf_counter()
    try:
        made = ma.compile(target, ask.box, error=ask.error, **ask.options)
        row |= {"kind": made.certificate.kind, "method": made.method, "tokens": made.tokens, "bound": made.bound}
        row |= {"asked": made.error, "observed": made.observed.error}
    except ma.Refused as refusal:
        row |= {"kind": "refused", "method": None, "tokens": None, "bound": None, "said": str(refusal)[:300]}
    row |= {"seconds": time.process_time() - begun, "wall": time.perf_counter() - real}
    lost = sum(took for name, took in clock.heads.items() if name != row["method"])
    row |= {"lost": 0.0 if row["method"] is None else lost, "stages": dict(clock.stages), "heads": dict(clock.heads)}
    return row


def _child(ask: Ask, pipe: Any, limit: float) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 2))
    with np.errstate(all="ignore"):
        pipe.send(measure(ask))


def forked(ask: Ask, limit: float) -> dict[str, Any]:
    """One request in a process of its own; stopped at its limit of processor seconds."""
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(ask, theirs, limit))
    child.start()
    theirs.close()
    try:
        row: dict[str, Any] = mine.recv()
    except EOFError:
        child.join()
        if child.exitcode not in STOPPED:
            raise RuntimeError(f"{ask.name} failed (exit code {child.exitcode})") from None
        row = {"name": ask.name, "kind": "stopped", "method": None, "tokens": None, "bound": None}
        row |= {"seconds": limit, "lost": 0.0, "stages": {}, "heads": {}}
    child.join()
    return row


# ---------------------------------------------------------------------- record and page


def told(row: dict[str, Any]) -> str:
    """A row in a line."""
    what = f"{row['method']} {row['tokens']:,}" if row["method"] else str(row.get("said", ""))[:90]
    bound = f"{row['bound']:.3g}" if row.get("bound") else ""
    stages = " ".join(f"{name} {took:.2f}" for name, took in row["stages"].items() if took >= 0.05)
    lost = " ".join(f"{name} {took:.2f}" for name, took in row["heads"].items() if name != row["method"] and took >= 0.05)
    return f"{row['name']:32s} {row['seconds']:7.2f} s  {row['kind']:8s} {what} {bound} [{stages}] lost: [{lost}]"


def main() -> int:
    """Measure, print, and record where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--set", nargs="*", default=list(SETS), choices=SETS, dest="sets")
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--limit", type=float, default=LIMIT)
    parser.add_argument("--against", type=Path, default=RECORD)
    parser.add_argument("--page", action="store_true", help="write the section of docs/benchmarks.md from the record and stop")
    parser.add_argument("--write", type=Path, nargs="?", const=RECORD, default=None)
    asked = parser.parse_args()
    before = json.loads(asked.against.read_text()) if asked.against.exists() else {}
    if asked.page:
        draw(before)
        text = PAGE.read_text()
        head, tail = text.partition(MARKS[0])[0], text.partition(MARKS[1])[2]
        PAGE.write_text(f"{head.rstrip()}\n\n{MARKS[0]}\n{page(before)}{MARKS[1]}\n{tail.lstrip()}")
        return 0
    made: dict[str, Any] = {}
    for group in asked.sets:
        rows = [ask for ask in ASKS[group]() if not asked.only or any(text in ask.name for text in asked.only)]
        made[group] = {}
        for ask in rows:
            made[group][ask.name] = row = forked(ask, asked.limit)
            old = before.get(group, {}).get(ask.name)
            ratio = f"  {old['seconds'] / max(row['seconds'], 1e-3):5.1f}x" if old else ""
            worse = " MORE TOKENS" if old and old.get("tokens") and (row["tokens"] or np.inf) > old["tokens"] else ""
            print(told(row) + ratio + worse, flush=True)
        print(summary(group, made[group], before.get(group, {})), flush=True)
    if asked.write is not None:
        asked.write.write_text(json.dumps({**before, **made} if asked.write == RECORD else made, indent=1) + "\n")
    return 0


def page(record: dict[str, Any]) -> str:
    """The section of docs/benchmarks.md."""
    known, old = record["named"], record.get("before", {})
    lines = [
        "## Compile time", "",
        "`benchmarks/compile_time.py`, processor seconds of a first compile on one BLAS thread, imports not counted (0.4 s). "
        "*Before* is the commit before searches and proofs were made to look ahead, measured in the same run; *lost* is the time "
        "of heads that did not win.", "",
        "![distribution of compile times](images/compile-time.svg)", "",
    ]  # fmt: skip
    for group in ("gallery", "hard", "named"):
        if group in record:
            lines.append(f"- {summary(group, record[group], old if group == 'named' else {})}".replace("the record", "before"))
    if "gallery" in record and "hard" in record:
        both = {(group, name): row for group in ("gallery", "hard") for name, row in record[group].items()}
        lines.append(f"- {summary('gallery and hard targets together', both, {})}")
    lines += ["", "| request | method | tokens | proved | seconds | before | lost |", "|---|---|---|---|---|---|---|"]
    for name, row in known.items():
        was = old.get(name)
        bound = "" if row["bound"] is None else f"{row['bound']:.2g}"
        tokens = f"{row['tokens']:,}" if row["tokens"] else "refused"
        then = "" if was is None else f"{was['seconds']:.2f}"
        if was is not None and was["tokens"] != row["tokens"]:
            then += f" ({was['tokens']:,} tokens)" if was["tokens"] else " (refused)"
        cells = (name, row["method"] or "", tokens, bound, f"{row['seconds']:.2f}", then, f"{row['lost']:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    if "read" in record:
        told = "; ".join(f"{row['tokens']} tokens in {row['seconds']:.2f} s" for row in record["read"].values())
        asked = "The three callables are asked with `trace=False`, as functions of which nothing is known, and are observed."
        lines += ["", f"{asked} Read as expressions, which is the default, they are proved: {told}."]
    if "refused" in record:
        lines += ["", "What cannot be met, or is hard to, and how long that takes to say:", ""]
        lines += ["| request | seconds | answer |", "|---|---|---|"]
        for name, row in record["refused"].items():
            said = "stopped at the limit"
            if row["kind"] != "stopped":
                said = row.get("said") or f"{row['method']}, {row['tokens']:,} tokens"
            lines.append(f"| {name} | {row['seconds']:.2f} | {str(said).replace('|', ' ')} |")
    return "\n".join(lines) + "\n"


def draw(record: dict[str, Any]) -> None:
    """The share of requests that are answered within so many seconds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.subplots()
    for group, colour in (("gallery", "#0072b2"), ("hard", "#d55e00"), ("named", "#009e73"), ("before", "#6b7280")):
        seconds = sorted(row["seconds"] for row in record.get(group, {}).values())
        if seconds:
            label = {"hard": "hard targets", "named": "26 requests", "before": "26 requests, before"}.get(group, group)
            axes.step(seconds, np.arange(1, len(seconds) + 1) / len(seconds), where="post", color=colour, label=label, lw=1.6)
    axes.set(xscale="log", xlabel="processor seconds", ylabel="share of requests", ylim=(0, 1))
    axes.grid(True, color="#e5e7eb", lw=0.6)
    axes.legend(frameon=False, fontsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(FIGURE, metadata={"Date": None})


def summary(group: str, rows: dict[Any, Any], before: dict[str, Any]) -> str:
    """Median, 95th percentile, the largest, the share of heads that lost, and the ratio to the record."""
    seconds = [row["seconds"] for row in rows.values()]
    if not seconds:
        return f"{group}: nothing"
    tail = float(np.percentile(seconds, 95))
    lost = sum(row["lost"] for row in rows.values()) / max(sum(seconds), 1e-9)
    known = [name for name in rows if name in before]
    ratio = sum(before[name]["seconds"] for name in known) / max(sum(rows[name]["seconds"] for name in known), 1e-9)
    return (
        f"{group}: {len(rows)} requests, {sum(seconds):.1f} s in all, median {statistics.median(seconds):.2f} s, 95th percentile "
        f"{tail:.2f} s, largest {max(seconds):.2f} s, {lost:.0%} on heads that did not win"
        + (f"; {ratio:.2f} times faster than the record" if known else "")
    )


if __name__ == "__main__":
    sys.exit(main())
