"""`maxaffine export`: a saved layer as PyTorch, MultiheadAttention, ONNX or safetensors, compared with the layer."""

from typing import Annotated, Any

import typer

from maxaffine.cli import arguments, options
from maxaffine.cli.command import single
from maxaffine.cli.streams import answer, say
from maxaffine.core.errors import BadInput

app = single()


@app.command("export")
def run(
    file: options.LayerFile,
    to: Annotated[str, typer.Option(metavar="torch|mha|onnx|safetensors", help="The format.")],
    out: Annotated[str, typer.Option("--out", "-o", metavar="PATH", help="The file: .onnx for onnx, else .safetensors.")],
    opset: Annotated[str, typer.Option(metavar="N", help="ONNX opset; Attention is an operator from 23 on.")] = "23",
    form: Annotated[
        str | None, typer.Option(metavar="fast|literal", help="torch, onnx: follow the structure, or attend to all tokens.")
    ] = None,
    kind: Annotated[str, typer.Option(metavar="self|cross", help="torch, literal: the kind of attention.")] = "self",
    json: options.Json = False,
) -> None:
    """Export a layer to PyTorch, ONNX or safetensors, compare it with the layer, and say what is proved of it.

    \b
      maxaffine export f.safetensors --to onnx --out f.onnx
      maxaffine export f.safetensors --to mha --out f-mha.safetensors
    """
    from maxaffine.compiler import load
    from maxaffine.export.judge import table
    from maxaffine.export.write import FORMATS
    from maxaffine.stack.stack import Stack

    if to not in FORMATS:
        raise BadInput(f"`to` (={to!r}) is not known; choose one of {', '.join(FORMATS)}.")
    path = arguments.output_path(out, "--out", (FORMATS[to],))
    version = arguments.whole(opset, "`opset`")
    layer = load(file)
    if isinstance(layer, Stack) and (form is not None or kind != "self"):
        raise BadInput("--form and --kind are about one layer; a stack is exported as its literal blocks. Leave them out.")
    asked: dict[str, Any] = {} if isinstance(layer, Stack) else {"form": form, "kind": kind}
    rows = layer.export(to, path, opset=version, **asked)
    size = path.stat().st_size
    answer(json, {"to": to, "file": str(path), "bytes": size, "judged": [row.to_json() for row in rows]}, table(rows))
    if json:
        return
    own = next(row for row in rows if row.dtype == ("float64" if to == "safetensors" or layer.dtype == "float64" else "float32"))
    say(f"statement  {own.statement}")
    say(f"saved      {path} ({size:,} bytes)")
