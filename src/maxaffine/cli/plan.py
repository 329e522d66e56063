"""`maxaffine plan`: what a layer would cost, for every method and error, before it is compiled."""

import sys
from typing import Annotated, Any

import typer

from maxaffine.cli import arguments
from maxaffine.cli.command import ExpressionCommand, single
from maxaffine.cli.streams import printable, say, say_json, table

app = single()


@app.command("plan", cls=ExpressionCommand)
def run(
    expression: Annotated[str, typer.Argument(metavar="EXPR|NAME", help="An expression, or a name of the gallery.")],
    error: Annotated[
        str, typer.Option(metavar="E1,E2,..", help="One or several errors, such as 0.1,0.01; by default ten decades.")
    ] = "1e-1,1e-2,1e-3,1e-4,1e-5,1e-6,1e-7,1e-8,1e-9,1e-10",
    box: Annotated[
        list[str] | None,
        typer.Option(metavar="x=LOW:HIGH,..", help="Where the variables live; x1..x20=-1:1 names a range."),
    ] = None,
    norm: Annotated[str, typer.Option(metavar="inf|1|2|P", help="The norm of the error: sup norm, or L_p.")] = "inf",
    dtype: Annotated[str, typer.Option(metavar="float64|float32|bfloat16", help="What the layer is stored in.")] = "float64",
    lipschitz: Annotated[
        str | None,
        typer.Option(metavar="L1,L2,..", help="Declare Lipschitz constants, one per variable; one alone is Euclidean."),
    ] = None,
    gap: Annotated[
        str | None, typer.Option(metavar="G", help="Sup norm of a target that jumps: speak of the x farther than G from a jump.")
    ] = None,
    figure: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw tokens against error as .png, .svg or .pdf.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> int:
    """Tokens, bytes and flops of a layer, before it is built.

    \b
      maxaffine plan "sin(x)+cos(y)" --box x=-pi:pi,y=-pi:pi --error 0.1,0.01,1e-3
    """
    errors = arguments.numbers(error, "`error`")
    constants = arguments.numbers(lipschitz, "`lipschitz`") if lipschitz is not None else None
    source, where = arguments.target(expression, box or ())

    from maxaffine.core.progress import bar
    from maxaffine.frontier import plan
    from maxaffine.request import Run

    if figure is not None:
        from maxaffine.report.style import suffix_of

        suffix_of(figure)
    refused: list[dict[str, Any]] = []
    with bar(sys.stderr.isatty()) as progress:
        rows = plan(
            source,
            where,
            errors=errors,
            norm=norm,
            dtype=dtype,
            lipschitz=constants[0] if constants is not None and len(constants) == 1 else constants,
            gap=arguments.constant(gap, "`gap`") if gap is not None else None,
            run=Run(progress=progress),
            refused=refused,
        )
    if figure is not None:
        from maxaffine.report.frontier import draw_frontier

        draw_frontier(rows, expression, figure)
    if json:
        found = {"plans": rows, "refused": refused, "figure": figure}
        say_json({"target": expression, "norm": norm, "dtype": dtype, "errors": errors, **found})
        return 0
    say(f"target     {printable(expression)}")
    head = ("error", "method", "argument", "tokens", "bytes", "while made", "flops per query", "affordable here")
    for line in table([head, *(_cells(row) for row in rows)]):
        say(line)
    for line in _refusals(refused):
        say(printable(line))
    if figure is not None:
        say(f"drawn      {printable(figure)}")
    return 0


def _refusals(refused: list[dict[str, Any]]) -> list[str]:
    """Why a method is missing, once per method where the reason stays the same."""
    found: dict[tuple[str, str], list[float]] = {}
    for one in refused:
        found.setdefault((one["method"], one["why_not"]), []).append(one["error"])
    return [f"no {method} head at {', '.join(f'{e:g}' for e in errors)}: {why}" for (method, why), errors in found.items()]


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    from maxaffine.core.budget import size

    return (
        f"{row['error']:g}",
        str(row["method"]),
        str(row["argument"]),
        _count(row["tokens"]),
        size(row["bytes"]),
        size(row["peak_bytes"]),
        _count(row["flops_per_query"]),
        "yes" if row["affordable"] else "no",
    )


def _count(number: int) -> str:
    return f"{number:,}" if number < 10**12 else f"{float(number):.3g}"
