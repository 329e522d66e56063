"""`maxaffine eval`: a saved layer at the points of a CSV file, to CSV."""

import csv
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from maxaffine.cli import arguments, options
from maxaffine.cli.command import Command, single
from maxaffine.cli.streams import complain, progress_bar, say, say_json
from maxaffine.core.errors import BadInput

if TYPE_CHECKING:
    from maxaffine.cli.points import Points
    from maxaffine.compiled import Compiled
    from maxaffine.core.progress import Progress
    from maxaffine.stack.stack import Stack

app = single()


@app.command("eval", cls=Command)
def run(
    file: options.LayerFile,
    points: Annotated[
        str, typer.Option(metavar="F.csv|-", help="Points, one per row, with or without a header; - is standard input.")
    ] = "-",
    out: Annotated[str, typer.Option("--out", "-o", metavar="F.csv|-", help="Where the values go; - is standard output.")] = "-",
    runtime: Annotated[
        str | None, typer.Option(metavar="dense|blocked|factorised", help="How the layer is run; chosen if not given.")
    ] = None,
    outside: Annotated[str, typer.Option(metavar="error|clamp", help="What to do with points outside the box.")] = "error",
    json: options.Json = False,
) -> None:
    """Evaluate a saved layer at the points of a CSV file.

    A header names the variables of the box, in any order; other columns are repeated as they are.  Without a header
    the columns are the variables in order.  The output repeats the points and adds the values, every number with all
    its digits.  Nothing is written unless
    every point can be evaluated.

    \b
      echo 0.5,1.5 | maxaffine eval f.safetensors
      maxaffine eval f.safetensors --points points.csv --out values.csv
    """
    if outside not in ("error", "clamp"):
        raise BadInput(f"`outside` (={outside!r}) is not known; choose one of error, clamp.")
    path = arguments.writable(Path(out), "--out") if out != "-" else None

    from maxaffine.cli.points import read_points
    from maxaffine.compiler import load
    from maxaffine.runtime.named import output_names
    from maxaffine.stack.stack import Stack

    compiled = load(file)
    if isinstance(compiled, Stack) and runtime is not None:
        raise BadInput(f"`runtime` (={runtime!r}): a stack has one way to run; leave it out.")
    if not isinstance(compiled, Stack) and runtime is not None and runtime not in ("pieces", *compiled.runtimes()):
        known = ", ".join(compiled.runtimes())
        raise BadInput(f"`runtime` (={runtime!r}) cannot run this layer; choose one of {known}.")
    with progress_bar() as progress:
        with _source(points) as source:
            given = read_points(source, compiled.box, outside, "standard input" if points == "-" else points, progress)
        names = output_names(compiled.target, given.columns)
        values = _evaluate(compiled, given, runtime, outside, progress)
        found: dict[str, Any] = {"file": file, "points": given.count, "columns": [*given.columns, *names]}
        if path is not None:
            _write_file(path, given, names, values)
        elif json:
            say_json({**found, "rows": [row for block in given.rows(values) for row in block], "out": None})
        elif sys.stdout is not None:
            _write(sys.stdout, given, names, values)
    if path is not None and json:
        say_json({**found, "rows": None, "out": str(path)})
    elif path is not None:
        say(f"{given.count:,} point{'s' if given.count != 1 else ''} evaluated, values in {path}")


def _source(points: str) -> Any:
    """The points as bytes."""
    if points == "-":
        if sys.stdin is None:
            raise BadInput("standard input is closed; name a file with --points.")
        if sys.stdin.isatty():
            complain("reading points from the terminal, one per line; end with Ctrl-D.")
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(points).open("rb")
    except (OSError, ValueError) as failure:
        raise BadInput(f"cannot read --points (={points!r}): {getattr(failure, 'strerror', None) or failure}.") from None


def _evaluate(
    compiled: "Compiled | Stack", given: "Points", runtime: str | None, outside: str, progress: "Progress"
) -> Iterator[Any]:
    """Values (rows, outputs) block by block; a block is evaluated when its turn to be written comes."""
    from maxaffine.runtime.named import stacked

    for done, block in enumerate(given.blocks, start=1):
        how: dict[str, Any] = {} if runtime is None else {"runtime": runtime}
        yield stacked(compiled(*compiled.target.split(block[:, given.order]), outside=outside, **how))
        progress("evaluate and write (blocks of points)", done, len(given.blocks))


def _write(stream: IO[str], given: "Points", names: list[str], values: Iterator[Any]) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*given.columns, *names])
    for block in given.rows(values):
        # csv writes floats by repr: every digit that is needed to read the same number again.
        writer.writerows(block)


def _write_file(path: Path, given: "Points", names: list[str], values: Iterator[Any]) -> None:
    from maxaffine.core.records import replace_atomically

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", newline="") as stream:
            _write(stream, given, names, values)

    replace_atomically(path, write)
