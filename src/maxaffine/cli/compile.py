"""`maxaffine compile`: an expression or a table into a layer, with what is proved about it, its file and its picture."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maxaffine.cli import arguments, completion, options, sequences, tables
from maxaffine.cli.command import CompileCommand, single
from maxaffine.cli.streams import complain, progress_bar, say, say_json, stage
from maxaffine.core.errors import BadInput

if TYPE_CHECKING:
    from maxaffine.compiled import Compiled
    from maxaffine.core.progress import Progress
    from maxaffine.stack.stack import Stack

LAYERS = (".safetensors",)
NEAREST = "nearest"

app = single()


@app.command("compile", cls=CompileCommand)
def run(
    expression: Annotated[
        str | None, typer.Argument(
            metavar="EXPR|NAME", help="An expression or a gallery entry; nothing with --table.", autocompletion=completion.entries
        ),
    ] = None,
    error: Annotated[
        str | None, typer.Option(metavar="E", help="The largest error allowed, such as 1e-2; or one for every output: 1e-4,1e-6.")
    ] = None,
    table: options.TableFile = None,
    values: options.Values = None,
    axes: options.Axes = None,
    missing: options.Missing = None,
    box: options.BoxOption = None,
    query: options.Query = None,
    context: options.Context = None,
    sequence: options.Sequence = None,
    relative: options.Relative = None,
    method: options.Method = "auto",
    norm: options.Norm = "inf",
    dtype: options.Dtype = "float64",
    lipschitz: options.Lipschitz = None,
    literal: options.Literal = False,
    sharpness: options.Sharpness = None,
    layers: options.Layers = "1",
    gap: options.Gap = None,
    max_bytes: options.MaxBytes = None,
    timeout: options.Timeout = None,
    seed: Annotated[str, typer.Option(metavar="N", help="Seed of the search for the worst point.")] = "0",
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="F.safetensors", help="Save the layer here.")] = None,
    figure: options.Figure = None,
    verbose: options.Verbose = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    hard: Annotated[bool, typer.Option("--hard", hidden=True)] = False,
    attention: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Compile a function or a table into a layer with a proved error.

    \b
      maxaffine compile "sin(x)+cos(y)" --box x=-pi:pi,y=-pi:pi --error 0.1
      maxaffine compile "-x**2" --box x=-1:1 --error 1e-2 --out f.safetensors
      maxaffine compile franke --error 0.05 --figure franke.png
      maxaffine compile --table density.npz --error 0.01 --out rho.safetensors
    """
    # Everything that can be wrong with the request is found out before any work is done.
    layer_path = arguments.output_path(out, "--out", LAYERS) if out is not None else None
    figure_path = arguments.picture(figure)
    method, old = _deprecated(hard, attention, method)
    if error is None and method != NEAREST:
        raise BadInput("--error is missing; give the largest error allowed, such as --error 1e-2.")
    memory = arguments.maybe(arguments.size_in_bytes, max_bytes, "`max_bytes`")
    asked = _numbers(error, relative, lipschitz, gap)
    factor = _factor(sharpness, layers)
    limits = arguments.whole(seed, "`seed`"), arguments.maybe(arguments.constant, timeout, "`timeout`")
    of_tables = {"--values": values, "--axes": axes, "--missing": missing, "--method nearest": method == NEAREST}
    boxed = box or query or context or sequence
    of_functions = {"the expression": expression, "--box": boxed, "--lipschitz": lipschitz, "--gap": gap}
    named = tables.named(table, of_tables, of_functions, memory)
    source, where = (None, None) if named is not None else _target(expression, box, query, context, sequence)

    from maxaffine.compiler import compile as compile_layer
    from maxaffine.run import Run

    with progress_bar(quiet) as progress:
        source, contents = (source, None) if named is None else named.read(progress)
        streamed = layer_path if figure_path is None and factor is None else None
        settings = Run(memory, limits[0], progress, out=streamed, max_seconds=limits[1])
        asked |= {"norm": norm, "method": method, "dtype": dtype, "literal": literal, "run": settings, "layers": _layers(layers)}
        compiled = _tempered(compile_layer(source, where, **asked, **old), factor)
        _write(compiled, None if streamed is not None else layer_path, figure_path, progress)
    if layer_path is not None:
        compiled = dataclasses.replace(compiled, file=str(layer_path))
    read = None if named is None or contents is None else (named, contents)
    if json:
        _tell_json(compiled, figure_path, read, verbose)
    elif not quiet:
        if read is not None:
            tables.tell(*read)
        _tell(compiled, layer_path, figure_path, named, verbose)


def _numbers(error: str | None, relative: str | None, lipschitz: str | None, gap: str | None) -> dict[str, Any]:
    """What the options say that are numbers of the request."""
    return {
        "error": None if error is None else sequences.errors(error), "relative": arguments.relative(relative),
        "lipschitz": arguments.lipschitz(lipschitz), "gap": arguments.maybe(arguments.constant, gap, "`gap`"),
    }  # fmt: skip


def _tempered(compiled: "Compiled | Stack", factor: float | None) -> "Compiled | Stack":
    """The layer at the temperature that was asked for."""
    from maxaffine.compiled import Compiled

    return compiled if factor is None or not isinstance(compiled, Compiled) else compiled.with_sharpness(factor)


def _factor(sharpness: str | None, layers: str) -> float | None:
    """What --sharpness multiplies logits by."""
    if sharpness is None:
        return None
    if layers != "1":
        raise BadInput(f"--sharpness is about one layer, and --layers is {layers}; leave one of them out.")
    from maxaffine.layer.temperature import check_factor

    return check_factor(arguments.constant(sharpness, "`sharpness`"), "sharpness")


def _deprecated(hard: bool, attention: str | None, method: str) -> tuple[str, dict[str, Any]]:
    """The method and the other arguments that options of before stand for."""
    if hard:
        complain("warning: --hard is deprecated; write --method nearest instead.")
        if method not in ("auto", NEAREST):
            raise BadInput(f"--hard returns the nearest entry's value, and has no --method (={method!r}); leave one of them out.")
        method = NEAREST
    if attention is None:
        return method, {}
    complain("warning: --attention is deprecated; layer.matrices(\"cross\") gives the matrices of cross-attention.")
    return method, {"attention": attention}


def _layers(text: str) -> int | str:
    return text if text == "auto" else arguments.whole(text, "`layers`")


def _target(
    expression: str | None, box: list[str] | None, query: list[str] | None, context: list[str] | None, sequence: str | None
) -> tuple[Any, Any]:
    """What to compile, and where."""
    if expression is None:
        raise BadInput("there is nothing to compile: give EXPR, NAME or --table FILE. See maxaffine compile --help.")
    return arguments.target(expression, box or (), sequences.where(sequence, box, query, context))


def _write(compiled: "Compiled | Stack", layer: Path | None, figure: Path | None, progress: "Progress") -> None:
    """Layer and figure, both or neither: each is finished beside its place before the first is renamed into it."""
    from maxaffine.core.records import replace_atomically

    def draw(path: Path) -> None:
        from maxaffine.compiled import Compiled
        from maxaffine.report.figures import draw as draw_figure

        if isinstance(compiled, Compiled):
            draw_figure(compiled, path, progress=progress)
        else:
            compiled.draw(path)

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


def _tell_json(compiled: "Compiled | Stack", figure: Path | None, read: tuple[tables.Named, Any] | None, verbose: bool) -> None:
    extra: dict[str, Any] = {"statements": [one.to_json() for one in compiled.statements()]} if verbose else {}
    extra["figure"] = None if figure is None else str(figure)
    say_json({**compiled.to_json(), **extra, **({} if read is None else {"table": tables.to_json(*read)})})


def _tell(
    compiled: "Compiled | Stack", layer: Path | None, figure: Path | None, table: tables.Named | None, verbose: bool
) -> None:
    from maxaffine.cli.streams import printable
    from maxaffine.report.text import explain, summary
    from maxaffine.stack.stack import Stack

    if isinstance(compiled, Stack):
        say(printable(compiled.explain() if verbose else compiled.summary()))
    else:
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
