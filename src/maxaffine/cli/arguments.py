"""What users write on the command line, turned into what the library takes: boxes, numbers, sizes, paths."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from os import W_OK, access
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from maxaffine.core.errors import BadInput, MaxaffineError
from maxaffine.expression.texts import split

if TYPE_CHECKING:
    from maxaffine.target.box import Box

T = TypeVar("T")

MAX_RANGE = 10_000  # names that one x1..x20 may stand for

_RANGE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*?)(\d+)\.\.([A-Za-z_][A-Za-z0-9_]*?)(\d+)")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_SIZE = re.compile(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)")
_UNITS = {"": 1, "b": 1} | {
    letter + ending: base**power
    for power, letter in enumerate("kmgtp", start=1)
    for ending, base in (("", 1024), ("ib", 1024), ("b", 1000))
}


def constant(text: str, where: str) -> float:
    """A number written as in expressions: 1e-3, -pi, 2*pi, sqrt(2).  `where` names its place in error messages."""
    from maxaffine.expression.expression import Expression

    stripped = text.strip()
    try:
        # float() knows nan, inf and 1e400, whose rules belong to those who take the number.
        return float(stripped)
    except ValueError:
        pass
    try:
        import numpy as np

        expression = Expression.parse(stripped, ())
        if expression.count != 1:
            raise BadInput(f"it has {expression.count} values.")
        value = float(expression.evaluate(np.empty((1, 0)))[0, 0])
    except MaxaffineError:
        raise BadInput(f"{where} (={_short(stripped)!r}) is not a number; write something like 0.5, 1e-3, -pi or 2*pi.") from None
    if not math.isfinite(value):
        raise BadInput(f"{where} (={_short(stripped)!r}) is not finite.")
    return value


def maybe(parse: Callable[[str, str], T], text: str | None, where: str) -> T | None:
    """What an option says, where it is given."""
    return None if text is None else parse(text, where)


def relative(text: str | None) -> bool | str:
    """What --relative says: nothing, in units of sup |f|, or of |f(x)| at every x."""
    if text not in (None, "sup", "pointwise"):
        raise BadInput(f"`relative` (={text!r}): write --relative for units of sup |f|, or --relative pointwise for |f(x)|.")
    return text if text == "pointwise" else text == "sup"


def lipschitz(text: str | None) -> float | list[float] | None:
    """One constant, which is Euclidean, or one per variable."""
    found = maybe(numbers, text, "`lipschitz`")
    return found[0] if found is not None and len(found) == 1 else found


def numbers(text: str, where: str) -> list[float]:
    """Numbers separated by commas."""
    pieces = [piece.strip() for piece in split(text, ",")]
    if not all(pieces):
        raise BadInput(f"{where} (={_short(text)!r}) has an empty entry; separate numbers by single commas.")
    return [constant(piece, where) for piece in pieces]


def pair(query: Sequence[str] | None, context: Sequence[str] | None, boxes: Sequence[str] | None) -> "tuple[Box, Box] | None":
    """The boxes of --query and --context for a function of two inputs; None where neither is given."""
    if not query and not context:
        return None
    if not query or not context:
        given, missing = ("--query", "--context") if query else ("--context", "--query")
        raise BadInput(f"{given} is given without {missing}: a function of two inputs has both; for one input write --box.")
    if boxes:
        raise BadInput("--box is for one input, --query and --context for two; leave out one or the other.")
    return box(query, "--query"), box(context, "--context")


def box(texts: Sequence[str], option: str = "--box") -> "Box":
    """The box of --box x=-pi:pi,y=0:1 or --box x1..x20=-1:1; several --box are one box."""
    from maxaffine.target.box import Box

    edges: dict[str, tuple[float, float]] = {}
    for text in texts:
        for item in split(text, ","):
            name, equals, sides = item.strip().partition("=")
            name, pair = name.strip(), sides.split(":")
            if not item.strip():
                continue
            if not equals or len(pair) != 2 or not all(side.strip() for side in pair):
                raise BadInput(f"{option}: `{_short(item.strip())}` is not of the form NAME=LOW:HIGH, such as x=-pi:pi.")
            low, high = (constant(side, f"{option}: the edge of `{_short(name)}`") for side in pair)
            for each in _names(name, option):
                if each in edges:
                    raise BadInput(f"{option}: `{each}` is named twice; every variable has one pair of edges.")
                edges[each] = (low, high)
    if not edges:
        raise BadInput(f"{option}: the box is empty; name at least one variable, such as {option} x=-1:1.")
    lows, highs = zip(*edges.values(), strict=True)
    return Box.named(tuple(edges), lows, highs)


def _names(text: str, option: str) -> Iterator[str]:
    """x -> x; x1..x20 -> x1, ..., x20."""
    if ".." not in text:
        yield text
        return
    found = _RANGE.fullmatch(text)
    if found is None or found[1] != found[3]:
        raise BadInput(f"{option}: `{_short(text)}` is not a range of names; write it like x1..x20.")
    first, last = (int(digits) if len(digits) < 10 else 10**9 for digits in (found[2], found[4]))
    if first > last:
        raise BadInput(f"{option}: the range `{_short(text)}` runs backwards; give the smaller number first.")
    if last - first >= MAX_RANGE:
        raise BadInput(f"{option}: the range `{_short(text)}` is too long; at most {MAX_RANGE:,} names.")
    yield from (f"{found[1]}{i}" for i in range(first, last + 1))


def target(
    text: str, boxes: Sequence[str], other: "Box | tuple[Box, Box] | None" = None
) -> tuple[Any, Any]:
    """What to compile, and where: an expression with its box, or an entry of the gallery on its own box or another.

    `other`: the box of a sequence, or two boxes, in the place of --box.
    """
    where = other or (box(boxes) if boxes else None)
    names = [name for one in (where if isinstance(where, tuple) else (where,)) if one is not None for name in one.names]
    if _NAME.fullmatch(text.strip()) and text.strip() not in names:
        from maxaffine.target.gallery import gallery

        if text.strip() in gallery:
            return gallery[text.strip()], where
        if where is None:
            aside = ", and an expression needs a box, such as --box x=-1:1"
            raise not_in_gallery(text.strip(), aside)
    if where is None:
        raise BadInput(f"the expression `{_short(text)}` needs a box: the range of its variables, such as --box x=-1:1,y=0:pi.")
    return text, where


def not_in_gallery(name: str, aside: str = "") -> BadInput:
    """There is no such entry, but there may be one of nearly that name."""
    from difflib import get_close_matches

    from maxaffine.target.gallery import gallery

    near = get_close_matches(name, list(gallery), n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "`maxaffine gallery` lists the names."
    return BadInput(f"`{_short(name)}` is not in the gallery{aside}; {hint}")


def whole(text: str, where: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"{where} (={_short(text)!r}) must be a whole number, such as 0.") from None


def size_in_bytes(text: str, where: str) -> int:
    """2GiB, 500MB, 1e9 as bytes."""
    found = _SIZE.fullmatch(text.strip())
    try:
        assert found is not None
        amount = float(found[1]) * _UNITS[found[2].lower()]
        if not 1 <= amount < 2**63:
            raise ValueError
    except (AssertionError, KeyError, ValueError):
        raise BadInput(f"{where} (={_short(text)!r}) is not a size; write something like 500MB, 2GiB or 1e9.") from None
    return int(amount)


def output_path(text: str, option: str, suffixes: tuple[str, ...]) -> Path:
    """A path to write, checked before any work is done: known suffix, a folder that exists and can be written."""
    path = Path(text)
    if path.suffix.lower() not in suffixes:
        raise BadInput(f"{option} (={text!r}) must end in {' or '.join(suffixes)}, which says what kind of file it is.")
    return writable(path, option)


def picture(text: str | None) -> Path | None:
    """Where --figure wants a picture, if it wants one."""
    return None if text is None else output_path(text, "--figure", (".png", ".svg", ".pdf"))


def writable(path: Path, option: str) -> Path:
    """The path, if a file can be put there."""
    shown = f"{option} (={str(path)!r})"
    try:
        is_folder, has_folder = path.is_dir(), path.parent.is_dir()
    except (OSError, ValueError) as failure:
        raise BadInput(f"{shown} cannot be a path: {failure}.") from None
    if is_folder:
        raise BadInput(f"{shown} is a folder; name a file in it.")
    if not has_folder:
        raise BadInput(f"{shown}: the folder {str(path.parent)!r} does not exist; make it first.")
    if not access(path.parent, W_OK):
        raise BadInput(f"{shown}: the folder {str(path.parent)!r} cannot be written to; choose another one.")
    return path


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
