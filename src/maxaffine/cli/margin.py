"""`maxaffine margin`: where gradient descent takes the query of a softmax head, with a verdict on every claim.

    maxaffine margin DATA.npz --loss log --figure run.png
"""

from typing import Annotated

import typer

from maxaffine.cli import arguments, options
from maxaffine.cli.command import Command, single
from maxaffine.cli.streams import answer, progress_bar, say, table

app = single()


@app.command("margin", cls=Command)
def margin(
    data: Annotated[str, typer.Argument(metavar="DATA", help=".npz with X, Y, v (or keys, scores), .csv, or single, multi.")],
    loss: Annotated[str, typer.Option(metavar="log|exp|linear", help="Of the margin f: log(1+e^-f), e^-f or -f.")] = "log",
    end: Annotated[float, typer.Option(metavar="T", help="Time up to which gradient flow is followed, to 1e300.")] = 1e12,
    start: Annotated[str | None, typer.Option(metavar="P1,P2,..", help="The query to begin at; 0 if not given.")] = None,
    figure: options.Figure = None, json: options.Json = False,
) -> None:  # fmt: skip
    """Find the max-margin query that training goes to, how far a run is, and judge the laws by fixed rules."""
    from maxaffine.margin.files import read
    from maxaffine.margin.report import examine

    picture = arguments.picture(figure)
    given = read(data)
    begin = given.start if start is None else given.tokens.query(arguments.numbers(start, "`start`"), "start")
    with progress_bar(quiet=json) as progress:
        found = examine(given.tokens, loss, begin, end, progress=progress)
    record = {"data": given.name, **found.to_json()}
    if picture is not None:
        from maxaffine.margin.figures.laws import run_figure

        run_figure(found, picture)
        record["figure"] = str(picture)
    if json:
        answer(json, record, ())
        return
    svm, status = found.svm, found.locality.status
    n, T, d = given.tokens.shape
    say(f"{given.name}: {n} inputs of {T} tokens in {d} dimensions, loss {loss}, T = {end:g}")
    say(f"selected    {', '.join(map(str, found.run.selected[:12]))}{', ..' if n > 12 else ''}")
    say(f"            {status.value}")
    half = svm.length**2 / 2
    say(f"|p_mm|      {svm.length:.6g}, |p_mm|^2/2 = {half:.6g}, margin {svm.margin:.6g}, {len(svm.supports)} support pairs")
    say(f"attention   on other tokens at most {found.run.leak[-1].max():.2e}, proved below {found.now.leak.max():.2e}")
    if found.locality.near:
        say(f"late        {len(found.locality.near)} pairs are nearly support pairs, least slack {svm.room:.4f}")
    if found.locality.undetermined:
        inputs = ", ".join(map(str, found.locality.undetermined[:8]))
        say(f"undecided   no support pair: the limit does not determine the token of input {inputs}")
    say("")
    for line in table([(f.outcome, f.claim, f.sentence) for f in found.findings]):
        say(line)
    if picture is not None:
        say(f"figure      {picture}")
