"""`maxaffine plan`: what a layer would cost, for every method and error, before it is compiled."""

from typing import Annotated, Any

import typer

from maxaffine.cli import arguments, options, sequences
from maxaffine.cli.command import ExpressionCommand, single
from maxaffine.cli.streams import printable, progress_bar, say, say_json, table

app = single()


@app.command("plan", cls=ExpressionCommand)
def run(
    expression: options.Expression,
    error: Annotated[
        str, typer.Option(metavar="E1,E2,..", help="One or several errors, such as 0.1,0.01; by default ten decades.")
    ] = "1e-1,1e-2,1e-3,1e-4,1e-5,1e-6,1e-7,1e-8,1e-9,1e-10",
    box: options.BoxOption = None,
    query: options.Query = None,
    context: options.Context = None,
    sequence: options.Sequence = None,
    norm: options.Norm = "inf",
    dtype: options.Dtype = "float64",
    lipschitz: options.Lipschitz = None,
    gap: options.Gap = None,
    figure: options.Figure = None,
    json: options.Json = False,
) -> None:
    """Tokens, bytes and flops of a layer by every method, without keeping one.

    Lookups are sized by their theorems and smooth heads fitted; the other heads are built and proved, so their tokens are final.

    \b
      maxaffine plan "sin(x)+cos(y)" --box x=-pi:pi,y=-pi:pi --error 0.1,0.01,1e-3
    """
    errors = arguments.numbers(error, "`error`")
    source, where = arguments.target(expression, box or (), sequences.where(sequence, box, query, context))

    from maxaffine.frontier import plan
    from maxaffine.run import Run

    if figure is not None:
        from maxaffine.report.style import suffix_of

        suffix_of(figure)
    refused: list[dict[str, Any]] = []
    with progress_bar() as progress:
        rows = plan(
            source, where, errors=errors, norm=norm, dtype=dtype, lipschitz=arguments.lipschitz(lipschitz),
            gap=arguments.maybe(arguments.constant, gap, "`gap`"), run=Run(progress=progress), refused=refused,
        )  # fmt: skip
    if figure is not None:
        from maxaffine.report.figures import draw_frontier

        draw_frontier(rows, expression, figure)
    if json:
        found = {"plans": rows, "refused": refused, "figure": figure}
        say_json({"target": expression, "norm": norm, "dtype": dtype, "errors": errors, **found})
        return
    say(f"target     {printable(expression)}")
    head = ("error", "method", "argument", "tokens", "bytes", "while made", "flops per query", "about seconds", "affordable here")
    for line in table([head, *(_cells(row) for row in rows)]):
        say(line)
    for line in _refusals(refused):
        say(printable(line))
    if figure is not None:
        say(f"drawn      {printable(figure)}")


def _refusals(refused: list[dict[str, Any]]) -> list[str]:
    """Why a method is missing, once per method where the reason stays the same."""
    found: dict[tuple[str, str], list[float]] = {}
    for one in refused:
        found.setdefault((one["method"], one["why_not"]), []).append(one["error"])
    return [f"no {method} head at {', '.join(f'{e:g}' for e in errors)}: {why}" for (method, why), errors in found.items()]


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    from maxaffine.core.budget import size

    return (
        f"{row['error']:g}", str(row["method"]), str(row["argument"]), _count(row["tokens"]), size(row["bytes"]),
        size(row["peak_bytes"]), _count(row["flops_per_query"]), f"{row['seconds']:.1g}", "yes" if row["affordable"] else "no",
    )  # fmt: skip


def _count(number: int) -> str:
    from maxaffine.core.budget import count_text

    return f"{number:,}" if number < 10**12 else f"{float(number):.3g}" if number < 10**300 else count_text(number)
