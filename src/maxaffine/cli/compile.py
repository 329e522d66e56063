"""`maxaffine compile`: an expression or a table into a layer, with what is proved about it, its file and its picture."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maxaffine.cli import arguments, options, tables
from maxaffine.cli.command import ExpressionCommand, single
from maxaffine.cli.streams import complain, progress_bar, say, say_json, stage
from maxaffine.core.errors import BadInput

if TYPE_CHECKING:
    from maxaffine.compiled import Compiled
    from maxaffine.core.progress import Progress

LAYERS = (".safetensors",)
PICTURES = (".png", ".svg", ".pdf")
NEAREST = "nearest"

app = single()


@app.command("compile", cls=ExpressionCommand)
def run(
    expression: Annotated[
        str | None, typer.Argument(metavar="EXPR|NAME", help="An expression or a gallery entry; nothing with --table.")
    ] = None,
    error: Annotated[
        str | None, typer.Option(metavar="E", help="The largest error allowed, such as 1e-2; not needed with --method nearest.")
    ] = None,
    table: options.TableFile = None,
    values: options.Values = None,
    axes: options.Axes = None,
    missing: Annotated[
        str | None, typer.Option(metavar="refuse|ignore", help="--table: refuse missing values, or leave them out of the proof.")
    ] = None,
    box: options.BoxOption = None,
    relative: Annotated[bool, typer.Option("--relative", help="Measure the error in units of sup |f|.")] = False,
    method: Annotated[
        str, typer.Option(metavar="NAME", help="auto, or a head by name (another name lists them); nearest with --table.")
    ] = "auto",
    norm: options.Norm = "inf",
    dtype: options.Dtype = "float64",
    lipschitz: options.Lipschitz = None,
    literal: Annotated[
        bool, typer.Option("--literal", help="The softmax over all tokens (matrices, MultiheadAttention) must meet it too.")
    ] = False,
    gap: options.Gap = None,
    max_bytes: Annotated[
        str | None, typer.Option(metavar="2GiB", help="Memory the compile may take; by default half of what is free.")
    ] = None,
    seed: Annotated[str, typer.Option(metavar="N", help="Seed of the search for the worst point.")] = "0",
    out: Annotated[str | None, typer.Option(metavar="F.safetensors", help="Save the layer here.")] = None,
    figure: options.Figure = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also print the parts of the bound, every way to run the layer, what was tried.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    hard: Annotated[bool, typer.Option("--hard", hidden=True)] = False,
    attention: Annotated[str | None, typer.Option(hidden=True)] = None,
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
    old: dict[str, Any] = {}
    if hard:
        complain("warning: --hard is deprecated; write --method nearest instead.")
        if method not in ("auto", NEAREST):
            raise BadInput(f"--hard returns the nearest entry's value, and has no --method (={method!r}); leave one of them out.")
        method = NEAREST
    if attention is not None:
        complain("warning: --attention is deprecated; layer.matrices(\"cross\") gives the matrices of cross-attention.")
        old["attention"] = attention
    if error is None and method != NEAREST:
        raise BadInput("--error is missing; give the largest error allowed, such as --error 1e-2.")
    asked = arguments.maybe(arguments.constant, error, "`error`")
    constants = arguments.lipschitz(lipschitz)
    distance = arguments.maybe(arguments.constant, gap, "`gap`")
    memory = arguments.maybe(arguments.size_in_bytes, max_bytes, "`max_bytes`")
    chosen_seed = arguments.whole(seed, "`seed`")
    named = tables.named(
        table,
        {"--values": values, "--axes": axes, "--missing": missing, "--method nearest": method == NEAREST},
        {"the expression": expression, "--box": box, "--lipschitz": lipschitz, "--gap": gap},
        memory,
    )
    source, where = (None, None) if named is not None else arguments.target(_given(expression), box or ())

    from maxaffine.compiler import compile as compile_layer
    from maxaffine.request import Run

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
            dtype=dtype,
            lipschitz=constants,
            literal=literal,
            gap=distance,
            run=Run(memory, chosen_seed, progress, out=layer_path if figure_path is None else None),
            **old,
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
