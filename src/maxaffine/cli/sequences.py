"""What users write about sequences and several outputs: --sequence d=1,n=3,x=-1:1, and --error for one output each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from maxaffine.cli import arguments
from maxaffine.core.errors import BadInput
from maxaffine.expression.texts import pieces, split

if TYPE_CHECKING:
    from maxaffine.target.box import Box

FORM = "--sequence: write d=ROWS,n=TOKENS, and x=LOW:HIGH for a range other than -1 to 1, such as d=1,n=3,x=0:1"


def where(
    sequence: str | None, boxes: Sequence[str] | None, query: Sequence[str] | None, context: Sequence[str] | None
) -> "Box | tuple[Box, Box] | None":
    """The box of --sequence, or the two of --query and --context; None where there is --box alone, or nothing."""
    if sequence is None:
        return arguments.pair(query, context, boxes)
    if boxes or query or context:
        raise BadInput("--sequence is a box by itself: leave out --box, --query and --context.")
    return _box(sequence)


def _box(text: str) -> "Box":
    from maxaffine.target.box import Box

    counts, edges, prefix = dict[str, int](), (-1.0, 1.0), "x"
    for item in split(text, ","):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not value or name in counts:
            raise BadInput(f"{FORM}; `{item.strip():.40}` is not of that form.")
        if name in ("d", "n"):
            counts[name] = arguments.whole(value, f"--sequence: `{name}`")
            continue
        sides = value.split(":")
        if len(sides) != 2:
            raise BadInput(f"{FORM}; `{item.strip():.40}` is not of that form.")
        low, high = (arguments.constant(side, f"--sequence: the edge of `{name:.40}`") for side in sides)
        prefix, edges = name, (low, high)
    if set(counts) != {"d", "n"}:
        raise BadInput(f"{FORM}; {' and '.join(f'`{name}`' for name in ('d', 'n') if name not in counts)} is missing.")
    return Box.sequence(counts["d"], counts["n"], *edges, prefix=prefix)


def errors(text: str) -> Any:
    """One error, or one for every output, arranged as the outputs are: commas inside an output token, semicolons between."""
    columns = [[arguments.constant(one, "`error`") for one in column] for column in pieces(text)]
    if len(columns) == 1:
        return columns[0][0] if len(columns[0]) == 1 else columns[0]
    if len({len(column) for column in columns}) != 1:
        raise BadInput(f"`error` (={text[:60]!r}) has columns of different lengths; give every output token as many errors.")
    return [list(row) for row in zip(*columns, strict=True)]
