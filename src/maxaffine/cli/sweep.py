"""`maxaffine sweep`: one layer at many temperatures, with the error that is proved and the one observed at each."""

from pathlib import Path
from typing import Annotated, Any

import typer

from maxaffine.cli import arguments, options, sequences
from maxaffine.cli.command import ExpressionCommand, single
from maxaffine.cli.streams import printable, progress_bar, say, say_json, table
from maxaffine.core.errors import BadInput

app = single()


@app.command("sweep", cls=ExpressionCommand)
def run(
    expression: Annotated[str, typer.Argument(metavar="EXPR|NAME|FILE", help="An expression, an entry, or a saved layer.")],
    error: Annotated[str | None, typer.Option(metavar="E", help="The error that the layer is compiled for, at r = 1.")] = None,
    box: options.BoxOption = None,
    query: options.Query = None,
    context: options.Context = None,
    sequence: options.Sequence = None,
    method: options.Method = "auto",
    norm: options.Norm = "inf",
    dtype: options.Dtype = "float64",
    lipschitz: options.Lipschitz = None,
    gap: options.Gap = None,
    lowest: Annotated[str, typer.Option("--from", metavar="R", help="The smallest r.")] = "1/64",
    highest: Annotated[str, typer.Option("--to", metavar="R", help="The largest r.")] = "64",
    count: Annotated[str, typer.Option(metavar="N", help="How many temperatures, at equal ratios.")] = "25",
    figure: options.Figure = None,
    json: options.Json = False,
) -> None:
    """Error, attention entropy and cells of one layer against its temperature: every logit times r.

    \b
      maxaffine sweep "sin(x)+cos(y)" --box x=-pi:pi,y=-pi:pi --error 0.5 --method lookup --figure sweep.png
      maxaffine sweep f.safetensors --from 0.1 --to 10 --count 9
    """
    picture = arguments.picture(figure)
    ends = [arguments.constant(text, f"`{name}`") for text, name in ((lowest, "from"), (highest, "to"))]
    number = arguments.whole(count, "`count`")
    saved = expression.endswith(".safetensors")
    if saved and (error is not None or box or query or context or sequence):
        raise BadInput("a saved layer has its own box and error; leave out --box, --query, --context and --error.")
    if not saved and error is None:
        raise BadInput("--error is missing; give the error that the layer is compiled for, such as --error 1e-2.")
    given = None if saved else sequences.where(sequence, box, query, context)
    source, where = (None, None) if saved else arguments.target(expression, box or (), given)

    from maxaffine.compiled import Compiled
    from maxaffine.compiler import compile as compile_layer
    from maxaffine.run import Run
    from maxaffine.temperatures import spread, sweep

    factors = spread(ends[0], ends[1], number)
    with progress_bar() as progress:
        asked: dict[str, Any] = {
            "error": arguments.maybe(arguments.constant, error, "`error`"), "norm": norm, "dtype": dtype, "method": method,
            "lipschitz": arguments.lipschitz(lipschitz), "gap": arguments.maybe(arguments.constant, gap, "`gap`"),
        }  # fmt: skip
        run_so = Run(progress=progress)
        layer = Compiled.load(Path(expression), check=True) if saved else compile_layer(source, where, **asked, run=run_so)
        found = sweep(layer, factors, progress=progress)
        if picture is not None:
            found.draw(picture)
    if json:
        say_json({**found.to_json(), "figure": figure})
        return
    say(f"target     {printable(found.to_json()['target'])}")
    say(f"layer      {layer.tokens:,} tokens, {layer.method}, compiled for an error of {layer.error:g}; every logit times r")
    for line in table([("r", "proved", "observed", "entropy", "e^entropy", "decided"), *(_cells(one) for one in found.rows)]):
        say(line)
    for r, why in [(one.r, one.why) for one in found.rows if one.bound is None]:
        say(printable(f"nothing is proved at r = {r:g}: {why}"))
    if picture is not None:
        say(f"figure     {picture}")


def _cells(one: Any) -> tuple[str, ...]:
    import math

    proved = "nothing" if one.bound is None else f"{one.bound:.4g}"
    if one.entropy is None:
        return (f"{one.r:g}", proved, f"{one.observed:.4g}", "", "", "")
    mean = one.entropy[0]
    return f"{one.r:g}", proved, f"{one.observed:.4g}", f"{mean:.3f}", f"{math.exp(mean):.2f}", f"{one.decided:.0%}"
