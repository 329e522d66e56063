"""`maxaffine check`: prove a saved layer again, from its file alone, by code that the compiler does not share."""

from typing import Annotated, Any

import typer

from maxaffine.cli import arguments, tables
from maxaffine.cli.command import Command, single
from maxaffine.cli.streams import complain, printable, progress_bar, say, say_json, stage

NOT_PROVED = 1

app = single()


@app.command("check", cls=Command)
def run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A layer saved by `maxaffine compile --out`.")],
    table: Annotated[
        str | None, typer.Option(metavar="F.npz|.csv|.nc", help="The table or samples that the layer was compiled from.")
    ] = None,
    values: Annotated[str | None, typer.Option(metavar="NAME", help="--table: as it was given to compile.")] = None,
    axes: Annotated[str | None, typer.Option(metavar="x,y,..", help="--table: as it was given to compile.")] = None,
    max_bytes: Annotated[str | None, typer.Option(metavar="8GiB", help="--table: the most it may take, by default 4GiB.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> int:
    """Prove a saved layer again with the independent checker.

    Exit code 0 when everything that the file promises is proved again, 1 otherwise: the error, the bound that the file states
    (the checker's own must be at most 1.2 times that one), and the bounds that it claims of its literal form, if any.
    A layer does not keep the table that it was compiled from, only its SHA-256: name the table again with --table.

    \b
      maxaffine check f.safetensors
      maxaffine check rho.safetensors --table density.npz
    """
    from maxaffine.core.container import read_container
    from maxaffine.core.scope import Scope
    from maxaffine.report.scope import in_words
    from maxaffine.validate import verdict_of

    limit = arguments.size_in_bytes(max_bytes, "`max_bytes`") if max_bytes is not None else None
    given = {"--values": values, "--axes": axes, "--max-bytes": max_bytes}
    tensors, record = read_container(file)
    target = record.get("target")
    entries = target.get("entries") if isinstance(target, dict) else None
    ignore = isinstance(entries, dict) and bool(entries.get("missing"))  # declared when it was compiled
    named = tables.named(table, {**given, "--missing": "ignore" if table is not None and ignore else None}, {}, limit)
    with progress_bar() as progress:
        data = None if named is None else named.read(progress)[0]
        with stage(progress, "prove again"):
            verdict = verdict_of(file, tensors, record, data, progress)
    claimed = verdict.claimed if isinstance(verdict.claimed, (int, float)) else None
    reason = verdict.reason
    if not verdict.passed and _is_callable(record) and "callable" not in reason:
        reason += " Its target is a Python callable, which a file cannot hold, so it cannot be proved again from the file."
    if json:
        say_json(
            {
                "file": file,
                "target": _target(record),
                "passed": verdict.passed,
                "error": verdict.error,
                "bound": verdict.bound,
                "claimed": claimed,
                "bound_confirmed": verdict.confirmed,
                "literal": {
                    claim.arithmetic: {"stated": claim.stated, "checked": claim.checked, "confirmed": claim.confirmed}
                    for claim in verdict.claims
                },
                "how": verdict.how,
                "reason": reason,
            }
        )
    else:
        say(f"file       {file}")
        say(f"target     {printable(_target(record))}")
        say(f"promised   error <= {verdict.error!r}")
        if verdict.passed:
            norm = str(record.get("norm"))
            where = in_words(Scope.of(record["certificate"]))
            say(f"scope      {printable(where)}{'' if norm in ('inf', 'entries') else printable(f', in L_{norm}')}")
        say(f"claimed    bound {_number(claimed)}, by the compiler")
        say(f"checked    bound {_number(verdict.bound)}, by the checker{f': {verdict.how}' if verdict.how else ''}")
        for claim in verdict.claims:
            say(f"literal    {claim.arithmetic}: stated {_number(claim.stated)}, checked {_number(claim.checked)}")
        say(f"verdict    {'proved' if verdict.passed else 'not proved'}")
    if verdict.passed:
        return 0
    complain(f"{file} is not proved: {reason}")
    return NOT_PROVED


def _is_callable(record: Any) -> bool:
    target = record.get("target")
    return isinstance(target, dict) and target.get("kind") == "callable"


def _target(record: Any) -> str:
    target = record.get("target")
    target = target if isinstance(target, dict) else {}
    text, name, kind = target.get("text"), target.get("name"), target.get("kind")
    if kind in ("table", "samples"):
        return f"the {kind}{f' {name}' if name and name != kind else ''}"
    return str(text) if text is not None else f"a Python function{f' ({name})' if name else ''}"


def _number(value: float | None) -> str:
    # repr: a bound must not be rounded down in print.
    return "none" if value is None else repr(float(value))
