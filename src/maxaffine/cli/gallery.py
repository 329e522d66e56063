"""`maxaffine gallery`: the named targets, all of them or one in full."""

from typing import Annotated, Any

import typer

from maxaffine.cli import arguments, options
from maxaffine.cli.command import Command, single
from maxaffine.cli.streams import answer, tell

app = single()


@app.command("gallery", cls=Command)
def run(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One entry, in full.")] = None,
    json: options.Json = False,
) -> None:
    """List the named targets, or show one.

    \b
      maxaffine gallery
      maxaffine gallery franke
      maxaffine compile franke --error 0.05
    """
    from maxaffine.target.gallery import gallery

    if name is None:
        entries = [gallery[each] for each in gallery]
        head = ("name", "variables", "tags", "box")
        rows = [(e.name, str(e.dimension), ", ".join(e.tags), _box(e.box, 2)) for e in entries]
        answer(json, {"gallery": [_record(entry) for entry in entries]}, [head, *rows])
        return
    if name not in gallery:
        raise arguments.not_in_gallery(name)
    entry = gallery[name]
    told = [
        ("name", entry.name),
        ("text", entry.text if entry.text is not None else "a Python function"),
        ("variables", str(entry.dimension)),
        ("box", _box(entry.box, 64)),
        ("tags", ", ".join(entry.tags)),
        ("source", entry.source),
        *(("fact", f"{fact}: {value}") for fact, value in dict(entry.facts).items()),
    ]
    tell(json, _record(entry), told)


def _boxes(box: Any) -> tuple[Any, ...]:
    return tuple(box) if isinstance(box, (tuple, list)) else (box,)


def _box(box: Any, limit: int) -> str:
    """x in [0, 1], y in [0, 1]; a sequence box by its shape; two inputs one after the other."""
    return "; ".join(_one_box(each, limit) for each in _boxes(box))


def _one_box(box: Any, limit: int) -> str:
    edges = list(box)
    same = len({(low, high) for _, low, high in edges}) == 1
    if box.is_sequence and same:
        return f"{box.n} tokens of {box.d} number{'s' if box.d > 1 else ''} in [{edges[0][1]:.6g}, {edges[0][2]:.6g}]"
    if same and len(edges) > 2:
        return f"{edges[0][0]}..{edges[-1][0]} in [{edges[0][1]:.6g}, {edges[0][2]:.6g}]"
    shown = [f"{name} in [{low:.6g}, {high:.6g}]" for name, low, high in edges[:limit]]
    return ", ".join(shown) + (", .." if len(edges) > limit else "")


def _record(entry: Any) -> dict[str, Any]:
    boxes = [each.to_json() for each in _boxes(entry.box)]
    return {
        "name": entry.name,
        "dimension": entry.dimension,
        "text": entry.text,
        "box": boxes[0] if len(boxes) == 1 else boxes,
        "tags": list(entry.tags),
        "source": entry.source,
        "facts": {str(fact): _plain(value) for fact, value in dict(entry.facts).items()},
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, list, tuple, dict, bool, type(None))) else str(value)
