"""`maxaffine check`: prove a saved layer again, from its file alone, by code that the compiler does not share."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from maxaffine.cli import arguments, options, tables
from maxaffine.cli.command import Command, single
from maxaffine.cli.streams import complain, progress_bar, stage, tell

if TYPE_CHECKING:
    from maxaffine.checker import Verdict

NOT_PROVED = 1

app = single()


@app.command("check", cls=Command)
def run(
    file: options.LayerFile,
    table: options.TableFile = None,
    values: options.Values = None,
    axes: options.Axes = None,
    max_bytes: Annotated[str | None, typer.Option(metavar="8GiB", help="--table: the most it may take, by default 4GiB.")] = None,
    json: options.Json = False,
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
    from maxaffine.report.by_output import asked
    from maxaffine.report.scope import in_words
    from maxaffine.validate import verdict_of

    limit = arguments.maybe(arguments.size_in_bytes, max_bytes, "`max_bytes`")
    given = {"--values": values, "--axes": axes, "--max-bytes": max_bytes}
    tensors, record = read_container(file)
    about = record.get("target")
    about = about if isinstance(about, dict) else {}
    entries = about.get("entries")
    ignore = isinstance(entries, dict) and bool(entries.get("missing"))  # declared when it was compiled
    named = tables.named(table, {**given, "--missing": "ignore" if table is not None and ignore else None}, {}, limit)
    with progress_bar() as progress:
        data = None if named is None else named.read(progress)[0]
        with stage(progress, "prove again"):
            verdict = verdict_of(file, tensors, record, data, progress)
    claimed = verdict.claimed if isinstance(verdict.claimed, (int, float)) else None
    reason = verdict.reason
    if not verdict.passed and about.get("kind") == "callable" and "callable" not in reason:
        reason += " Its target is a Python callable, which a file cannot hold, so it cannot be proved again from the file."
    literal = {
        one.arithmetic: {"stated": one.stated, "checked": one.checked, "confirmed": one.confirmed} for one in verdict.claims
    }
    found = {
        "file": file, "target": _target(about), "passed": verdict.passed, "error": verdict.error, "bound": verdict.bound,
        "claimed": claimed, "bound_confirmed": verdict.confirmed, "literal": literal, "how": verdict.how, "reason": reason,
    }  # fmt: skip
    of = " |f(x)| at every x" if record.get("norm") == "pointwise" else ""
    each = record.get("errors") if isinstance(record.get("errors"), list) else None
    errors = repr(verdict.error) if each is None else f"{asked(verdict.error, each)}, output by output"
    lines = [("file", file), ("target", _target(about)), (_word(record), f"error <= {errors}{of}")]
    if verdict.passed:
        norm = record.get("norm")
        integral = "" if norm in ("inf", "entries", "pointwise") else f", in L_{norm}"
        if norm == "pointwise":
            integral = f", relative to |f(x)|, which stays above {record['certificate']['least']:.6g}"
        lines.append(("scope", f"{in_words(Scope.of(record['certificate']))}{integral}"))
    lines += _claims(record, verdict)
    tell(json, found, lines)
    if verdict.passed:
        return 0
    complain(f"{file} is not proved: {reason}")
    return NOT_PROVED


def _word(record: dict[str, Any]) -> str:
    """What a file says of the error: a draw promises nothing."""
    return "asked" if record["certificate"].get("kind") == "statistical" else "promised"


def _claims(record: dict[str, Any], verdict: "Verdict") -> list[tuple[str, str]]:
    """What the file claims, and what was made of it."""
    from maxaffine.proofs.certificate import Certificate

    drawn = Certificate.from_json(record["certificate"]).drawn if record["certificate"].get("kind") == "statistical" else None
    if drawn is not None:
        return [
            ("claimed", f"statistical: {drawn.words}, {drawn.how}"),
            ("checked", "nothing: a draw can be repeated with the function, not from the file"),
            ("verdict", "statistical, which no checker can confirm"),
        ]
    claimed = verdict.claimed if isinstance(verdict.claimed, (int, float)) else None
    return [
        ("claimed", f"bound {_number(claimed)}, by the compiler"),
        ("checked", f"bound {_number(verdict.bound)}, by the checker{f': {verdict.how}' if verdict.how else ''}"),
        *(
            ("literal", f"{one.arithmetic}: stated {_number(one.stated)}, checked {_number(one.checked)}")
            for one in verdict.claims
        ),
        ("verdict", "proved" if verdict.passed else "not proved"),
    ]


def _target(target: dict[str, Any]) -> str:
    text, name, kind = target.get("text"), target.get("name"), target.get("kind")
    if kind in ("table", "samples"):
        return f"the {kind}{f' {name}' if name and name != kind else ''}"
    return str(text) if text is not None else f"a Python function{f' ({name})' if name else ''}"


def _number(value: float | None) -> str:
    # repr: a bound must not be rounded down in print.
    return "none" if value is None else repr(float(value))
