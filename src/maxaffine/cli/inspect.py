"""`maxaffine inspect`: the heads of a trained transformer as max-affine partitions of their queries."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maxaffine.cli import arguments, options
from maxaffine.cli.command import single
from maxaffine.cli.streams import printable, progress_bar, say, say_json, table
from maxaffine.core.errors import BadInput

if TYPE_CHECKING:
    from maxaffine.inspection.model import ModelInspection

TEXT_LIMIT = 1 << 20
HEADINGS = (
    "layer", "head", "inverse temperature", "margin", "leading weight", "entropy", "effective keys", "dead keys",
    "argmax error", "",
)  # fmt: skip

app = single()


@app.command("inspect")
def run(
    model: Annotated[str, typer.Argument(metavar="MODEL.safetensors|FOLDER", help="A BERT- or GPT-style checkpoint.")],
    layer: Annotated[str | None, typer.Option(metavar="N", help="Only this layer, counted from 0.")] = None,
    head: Annotated[str | None, typer.Option(metavar="N", help="Only this head, counted from 0.")] = None,
    tokens: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT|FILE|IDS", help="A sentence, a file of sentences (one a line), or token ids 101,2023,.."),
    ] = None,
    heads: Annotated[str | None, typer.Option(metavar="N", help="Heads per layer, where there is no config.json.")] = None,
    max_bytes: Annotated[str, typer.Option(metavar="4GiB", help="Largest model to read.")] = "4GiB",
    figure: Annotated[str | None, typer.Option(metavar="F.png", help="Draw one head, or all heads.")] = None,
    json: options.Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Temperatures, margins, entropies, dead keys and hardness of the heads of a trained transformer.

    \b
      maxaffine inspect model-folder
      maxaffine inspect model-folder --layer 2 --head 5 --tokens "The cat sat on the mat." --figure head.png
    """
    figure_path = arguments.picture(figure)
    given = {"layer": layer, "head": head, "heads": heads}
    which_layer, which_head, count = (arguments.maybe(arguments.whole, text, f"`{name}`") for name, text in given.items())
    limit = arguments.size_in_bytes(max_bytes, "`max_bytes`")
    sentences, ids = _sequences(tokens or [])

    from maxaffine.inspection.model import inspect_model

    with progress_bar(quiet) as progress:
        found = inspect_model(model, sentences, ids, which_layer, which_head, count, limit, progress)
    if figure_path is not None:
        _draw(found, figure_path)
    if json:
        say_json({**found.to_json(), "figure": None if figure_path is None else str(figure_path)})
        return
    if len(found.heads) == 1:
        say(printable(found.heads[0].explain()))
    else:
        rows: list[tuple[str, ...]] = [HEADINGS]
        rows += [
            (
                *one.name.replace("layer ", "").split(" head "), f"{one.inverse_temperature:.3g}", f"{one.margins[1]:.3g}",
                f"{one.top_weights[1]:.2f}", f"{one.entropy:.2f}", f"{one.effective_keys:.1f}", f"{100 * one.dead_keys:.0f}%",
                f"{100 * one.hard_error:.0f}%", "near-hard" if one.near_hard else "",
            )
            for one in found.heads
        ]  # fmt: skip
        for line in table(rows):
            say(line)
        say(f"{found.near_hard} of {len(found.heads)} heads are near-hard lookups on {sum(len(t) for t in found.tokens)} tokens")
    if figure_path is not None:
        say(f"figure     {figure_path}")


def _draw(found: "ModelInspection", path: Path) -> None:
    from maxaffine.core.records import replace_atomically
    from maxaffine.inspection.figures import draw_model

    if len(found.heads) == 1:
        replace_atomically(path, lambda place: found.heads[0].draw(place, list(found.tokens[0])))
    else:
        replace_atomically(path, lambda place: draw_model(found, place))


def _sequences(given: list[str]) -> tuple[list[str] | None, list[list[int]] | None]:
    """Sentences, or token ids; a name of a file stands for its lines."""
    sentences: list[str] = []
    ids: list[list[int]] = []
    for text in given:
        if all(part.strip().isdigit() and len(part.strip()) < 10 for part in text.split(",")) and "," in text:
            ids.append([int(part) for part in text.split(",")])
        elif len(text) < 4096 and "\n" not in text and Path(text).is_file():
            if Path(text).stat().st_size > TEXT_LIMIT:
                raise BadInput(f"`tokens` file {text!r} is above {TEXT_LIMIT >> 20} MiB; give fewer sentences.")
            try:
                sentences += [line.strip() for line in Path(text).read_text(encoding="utf-8").splitlines() if line.strip()]
            except (OSError, UnicodeDecodeError) as failure:
                raise BadInput(f"`tokens` file {text!r} cannot be read as UTF-8 text: {failure}.") from None
        elif text.strip():
            sentences.append(text)
        else:
            raise BadInput("`tokens` is empty; give a sentence, a file of sentences, or ids such as 101,2023,102.")
    if sentences and ids:
        raise BadInput("`tokens` mixes sentences and ids; give one kind.")
    return sentences or None, ids or None
