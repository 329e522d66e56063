"""`maxaffine attack`: try to break the proofs with random layers, perturbed layers and a search for the worst point."""

from pathlib import Path
from typing import Annotated

import typer

from maxaffine.cli import options
from maxaffine.cli.command import Command, single
from maxaffine.cli.streams import complain, progress_bar, say, say_json
from maxaffine.cli.streams import table as aligned
from maxaffine.core.errors import BadInput

VIOLATED, INTERRUPTED = 1, 130

app = single()


@app.command("attack", cls=Command)
def run(
    layers: Annotated[
        int | None, typer.Option(help="Layers per head (8 by default); with --routes per head and dtype (2 by default).")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the targets, perturbations and searches.")] = 0,
    seconds: Annotated[float | None, typer.Option("--seconds", help="Stop after this time.")] = None,
    heads: Annotated[str | None, typer.Option("--heads", help='Some heads only, such as "axis;regions"; all by default.')] = None,
    routes: Annotated[bool, typer.Option("--routes", help="Every way to run a layer against its own statement.")] = False,
    stacks: Annotated[
        int | None, typer.Option("--stacks", help="Stacks of so many random formulas, and forged files of them.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="F.jsonl", help="With --stacks: a line per formula, to go on from.")
    ] = None,
    table: Annotated[bool, typer.Option("--table", help="With --routes: the table as Markdown.")] = False,
    json: options.Json = False,
) -> int:
    """Attack the proofs: random targets, stored numbers moved, dtypes mixed, errors maximised from many starts.

    Every head is attacked in turn, --layers of each: in every runtime as compiled, and with its stored numbers moved and proved
    anew by the checker and by its certificate.
    With --routes every way to run a layer (arrays, tensors, gradients, modules, matrices, ONNX, files) is attacked against what
    is stated of that way alone, and the table shows the largest error found in units of that statement.
    With --stacks random formulas of 3 to 20 variables become stacks, whose nodes are moved as far as their heads may err;
    --record keeps what was found, formula by formula, and the same command goes on from there.
    Exit code 0 when no point lies above a proved bound, 1 otherwise.
    """
    if (layers is not None and layers < 1) or seed < 0 or (seconds is not None and not seconds > 0):
        raise BadInput("`--layers` must be at least 1, `--seed` not negative and `--seconds` positive.")
    if table and not routes:
        raise BadInput("`--table` goes with `--routes`.")
    if record is not None and stacks is None:
        raise BadInput("`--record` goes with `--stacks`.")
    if stacks is not None:
        return _stacks(stacks, seed, seconds, record, json)
    if routes:
        return _routes(heads, layers or 2, seed, seconds, json, table)
    from maxaffine.attack.heads import attack_heads
    from maxaffine.attack.heads import table as as_text
    from maxaffine.compiler import compile

    with progress_bar() as progress:
        rows = attack_heads(compile, _named(heads), layers=layers or 8, seed=seed, seconds=seconds, progress=progress)
    if json:
        say_json({"seed": seed, "heads": [row.to_json() for row in rows]})
    else:
        say(as_text(rows))
    violations = [one for row in rows for one in row.violations]
    for one in violations[:20]:
        complain(f"{one['what']}: found {one['found']!r} above the bound {one['bound']!r} at {one['at']} for {one['target']}")
    return VIOLATED if violations else 0


def _named(heads: str | None) -> list[str] | None:
    return None if heads in (None, "all") else [name.strip() for name in str(heads).split(";")]


def _stacks(formulas: int, seed: int, seconds: float | None, record: Path | None, json: bool) -> int:
    from maxaffine.attack.stacks import attack_stacks
    from maxaffine.compiler import compile

    if formulas < 1:
        raise BadInput(f"`--stacks` (={formulas}) must be at least 1.")
    with progress_bar() as progress:
        tally = attack_stacks(compile, formulas, seed, seconds, progress, record=record)
    if json:
        say_json(tally.to_json())
    else:
        say("\n".join(tally.lines()))
    for row, what in tally.violations[:20]:
        complain(f"formula {row.number} of seed {seed}: {what}; {row.formula[:200]}")
    return VIOLATED if tally.violations else 0


def _routes(heads: str | None, layers: int, seed: int, seconds: float | None, json: bool, as_markdown: bool) -> int:
    from maxaffine.attack.routes import attack_routes, markdown, table
    from maxaffine.compiler import compile

    with progress_bar() as progress:
        tally = attack_routes(compile, _named(heads), layers=layers, seed=seed, seconds=seconds, progress=progress)
    if json:
        say_json(tally.to_json())
    else:
        lines = table([row for _, row in tally.rows])
        say(markdown(lines) if as_markdown else "\n".join(aligned(lines)))
        say(tally.summary())
    for row in tally.violations[:20]:
        name = f"{row.route}, {row.variant}" if row.variant else row.route
        where = f"{row.target} in {row.dtype}, {name} in {row.arithmetic}"
        complain(f"{where}: found {row.worst!r} above {row.bound!r} at {list(row.at)} ({row.why})")
    return VIOLATED if tally.violations else INTERRUPTED if tally.interrupted else 0
