"""`maxaffine compile`: an expression or a table into a layer, with what is proved about it, its file and its picture."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maxaffine.cli import arguments, tables
from maxaffine.cli.command import ExpressionCommand, single
from maxaffine.cli.streams import progress_bar, say, say_json, stage
from maxaffine.core.errors import BadInput

if TYPE_CHECKING:
    from maxaffine.compiled import Compiled
    from maxaffine.core.progress import Progress

LAYERS = (".safetensors",)
PICTURES = (".png", ".svg", ".pdf")

app = single()


@app.command("compile", cls=ExpressionCommand)
def run(
    expression: Annotated[
        str | None, typer.Argument(metavar="EXPR|NAME", help="An expression, or a name of the gallery; nothing with --table.")
    ] = None,
    error: Annotated[
        str | None, typer.Option(metavar="E", help="The error that must not be exceeded, such as 1e-2; not needed with --hard.")
    ] = None,
    table: Annotated[
        str | None, typer.Option(metavar="F.npz|.csv|.nc", help="Compile a table or samples instead: .npz, .npy, .csv, NetCDF.")
    ] = None,
    values: Annotated[
        str | None, typer.Option(metavar="NAME", help="--table: which array, column or variable holds the values.")
    ] = None,
    axes: Annotated[str | None, typer.Option(metavar="x,y,..", help="--table: which arrays or columns are the axes.")] = None,
    missing: Annotated[
        str | None, typer.Option(metavar="refuse|ignore", help="--table: refuse missing values, or say nothing about them.")
    ] = None,
    hard: Annotated[bool, typer.Option("--hard", help="--table: answer with the nearest entry, without a blend.")] = False,
    box: Annotated[
        list[str] | None,
        typer.Option(metavar="x=LOW:HIGH,..", help="Where the variables live; x1..x20=-1:1 names a range."),
    ] = None,
    relative: Annotated[bool, typer.Option("--relative", help="Measure the error in units of sup |f|.")] = False,
    method: Annotated[str, typer.Option(metavar="auto|spectral|..|lookup", help="How the layer is planned.")] = "auto",
    norm: Annotated[str, typer.Option(metavar="inf|1|2|P", help="The norm of the error: sup norm, or L_p.")] = "inf",
    attention: Annotated[str, typer.Option(metavar="self|cross", help="The kind of attention.")] = "self",
    dtype: Annotated[
        str, typer.Option(metavar="float64|float32|bfloat16", help="What the layer is stored and run in.")
    ] = "float64",
    lipschitz: Annotated[
        str | None,
        typer.Option(metavar="L1,L2,..", help="Declare Lipschitz constants, one per variable; one alone is Euclidean."),
    ] = None,
    literal: Annotated[
        bool, typer.Option("--literal", help="The softmax over all tokens (matrices, MultiheadAttention) is to meet the error.")
    ] = False,
    gap: Annotated[
        str | None, typer.Option(metavar="G", help="Sup norm of a target that jumps: speak of the x farther than G from a jump.")
    ] = None,
    max_bytes: Annotated[
        str | None, typer.Option(metavar="2GiB", help="Memory the compile may take; half of what is free if not given.")
    ] = None,
    seed: Annotated[str, typer.Option(metavar="N", help="Seed of the search for the worst point.")] = "0",
    out: Annotated[str | None, typer.Option(metavar="F.safetensors", help="Save the layer here.")] = None,
    figure: Annotated[str | None, typer.Option(metavar="F.png", help="Draw it: .png, .svg or .pdf.")] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also print the parts of the bound, and what is proved of every way to run it.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing and show no progress; errors excepted.")] = False,
) -> int:
    """Compile a function or a table into a layer with a proved error.

    \b
      maxaffine compile "sin(x)+cos(y)" --box x=-pi:pi,y=-pi:pi --error 0.1
      maxaffine compile "-x**2" --box x=-1:1 --error 1e-2 --out f.safetensors
      maxaffine compile franke --error 0.05 --figure franke.png
      maxaffine compile --table density.npz --error 0.01 --out rho.safetensors
    """
    # Everything that can be wrong with the request is found out before any work is done.
    layer_path = arguments.output_path(out, "--out", LAYERS) if out is not None else None
    figure_path = arguments.output_path(figure, "--figure", PICTURES) if figure is not None else None
    if error is None and not hard:
        raise BadInput("--error is missing; say which error must not be exceeded, such as --error 1e-2.")
    asked = arguments.constant(error, "`error`") if error is not None else None
    constants = arguments.numbers(lipschitz, "`lipschitz`") if lipschitz is not None else None
    distance = arguments.constant(gap, "`gap`") if gap is not None else None
    memory = arguments.size_in_bytes(max_bytes, "`max_bytes`") if max_bytes is not None else None
    chosen_seed = arguments.whole(seed, "`seed`")
    named = tables.named(
        table,
        {"--values": values, "--axes": axes, "--missing": missing, "--hard": hard},
        {"the expression": expression, "--box": box, "--lipschitz": lipschitz, "--gap": gap},
        memory,
    )
    source, where = (None, None) if named is not None else arguments.target(_given(expression), box or ())

    from maxaffine.compiler import compile as compile_layer

    with progress_bar(quiet) as progress:
        contents = None
        if named is not None:
            source, contents = named.read(progress)
        compiled = compile_layer(
            source,
            where,
            error=asked,
            relative=relative,
            norm=norm,
            method=method,
            attention=attention,
            dtype=dtype,
            lipschitz=constants[0] if constants is not None and len(constants) == 1 else constants,
            literal=literal,
            gap=distance,
            max_bytes=memory,
            seed=chosen_seed,
            progress=progress,
            out=layer_path if figure_path is None else None,
            hard=hard,
        )
        _write(compiled, None if figure_path is None else layer_path, figure_path, progress)
    if layer_path is not None:
        compiled = dataclasses.replace(compiled, file=str(layer_path))
    if json:
        read: dict[str, Any] = {} if named is None or contents is None else {"table": tables.to_json(named, contents)}
        said = {"statements": [one.to_json() for one in compiled.statements()]} if verbose else {}
        say_json({**compiled.to_json(), **said, "figure": None if figure_path is None else str(figure_path), **read})
    elif not quiet:
        if named is not None and contents is not None:
            tables.tell(named, contents)
        _tell(compiled, layer_path, figure_path, named, verbose)
    return 0


def _given(expression: str | None) -> str:
    if expression is None:
        raise BadInput("there is nothing to compile: give EXPR, NAME or --table FILE. See maxaffine compile --help.")
    return expression


def _write(compiled: "Compiled", layer: Path | None, figure: Path | None, progress: "Progress") -> None:
    """Layer and figure, both or neither: each is finished beside its place before the first is renamed into it."""
    from maxaffine.core.records import replace_atomically

    def draw(path: Path) -> None:
        from maxaffine.report.figures import draw as draw_figure

        draw_figure(compiled, path, progress=progress)

    def save(path: Path) -> None:
        with stage(progress, "prove again and save"):
            compiled.save(path)
        progress("prove again and save", 1, 1)
        if figure is not None:
            replace_atomically(figure, draw)

    if layer is not None:
        replace_atomically(layer, save)
    elif figure is not None:
        replace_atomically(figure, draw)


def _tell(compiled: "Compiled", layer: Path | None, figure: Path | None, table: tables.Named | None, verbose: bool) -> None:
    from maxaffine.cli.streams import printable
    from maxaffine.report.text import explain, summary

    say(printable(explain(compiled) if verbose else summary(compiled)))
    if figure is not None:
        say(f"figure     {figure}")
    if layer is None:
        say("saved      nothing; add --out f.safetensors to keep the layer")
        return
    say(f"saved      {layer} ({layer.stat().st_size:,} bytes)")
    if compiled.certificate.kind == "proved" and table is not None:
        say(f"next       maxaffine check {layer} {table.options}    proves it again")
    elif compiled.certificate.kind == "proved" and compiled.target.is_expression:
        say(f"next       maxaffine check {layer}    proves it again from the file alone")
