"""`maxaffine export`: a saved layer as PyTorch, MultiheadAttention, ONNX or safetensors, compared with the layer."""

from typing import Annotated

import typer

from maxaffine.cli import arguments, options
from maxaffine.cli.command import single
from maxaffine.cli.streams import say, say_json, table
from maxaffine.core.errors import BadInput

app = single()


@app.command("export")
def run(
    file: options.LayerFile,
    to: Annotated[str, typer.Option(metavar="torch|mha|onnx|safetensors", help="The format.")],
    out: Annotated[str, typer.Option(metavar="PATH", help="The file to write: .onnx for onnx, else .safetensors.")],
    opset: Annotated[str, typer.Option(metavar="N", help="ONNX opset; Attention is an operator from 23 on.")] = "23",
    form: Annotated[
        str | None, typer.Option(metavar="fast|literal", help="torch, onnx: follow the structure, or attend to all tokens.")
    ] = None,
    kind: Annotated[str, typer.Option(metavar="self|cross", help="torch, literal: the kind of attention.")] = "self",
    json: options.Json = False,
) -> int:
    """Export a layer to PyTorch, ONNX or safetensors, compare it with the layer, and say what is proved of it.

    \b
      maxaffine export f.safetensors --to onnx --out f.onnx
      maxaffine export f.safetensors --to mha --out f-mha.safetensors
    """
    from maxaffine.compiled import load
    from maxaffine.export.judge import table as judged
    from maxaffine.export.write import FORMATS

    if to not in FORMATS:
        raise BadInput(f"`to` (={to!r}) is not known; choose one of {', '.join(FORMATS)}.")
    if form not in (None, "fast", "literal"):
        raise BadInput(f'`form` (={form!r}) must be "fast" or "literal".')
    path = arguments.output_path(out, "--out", (FORMATS[to],))
    version = arguments.whole(opset, "`opset`")
    layer = load(file)
    rows = layer.export(to, path, opset=version, form=form, kind=kind)
    if json:
        say_json({"to": to, "file": str(path), "bytes": path.stat().st_size, "judged": [row.to_json() for row in rows]})
        return 0
    for line in table(judged(rows)):
        say(line)
    own = next(row for row in rows if row.dtype == ("float64" if to == "safetensors" or layer.dtype == "float64" else "float32"))
    say(f"statement  {own.statement}")
    say(f"saved      {path} ({path.stat().st_size:,} bytes)")
    return 0
