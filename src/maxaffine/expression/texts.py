"""The texts of several outputs: columns end at semicolons, rows inside a column at commas, both outside of parentheses."""

import re
from collections.abc import Iterator


def pieces(text: str) -> list[list[str]]:
    """The outputs of an expression column by column."""
    return [[piece.strip() for piece in split(column, ",")] for column in split(text, ";")]


def with_commas(text: str) -> str:
    """The same text with commas in the places of semicolons: as many characters."""
    return ",".join(split(text, ";"))


def split(text: str, separator: str) -> Iterator[str]:
    """Split at separators outside of parentheses."""
    depth, begun = 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == separator and depth == 0:
            yield text[begun:place]
            begun = place + 1
    yield text[begun:]


def standing_alone(text: str, within: str) -> str:
    """Some outputs of the text `within`, names of other outputs, (t := value), given where they are met first."""
    known, given = _definitions(within), set[str]()

    def walk(part: str) -> str:
        found, at = [], 0
        while match := _PIECE.search(part, at):
            found.append(part[at : match.start()])
            name, word = match["defined"], match["word"]
            at = match.end() if name is None else _closing(part, match.start()) + 1
            if name is not None and name not in given:
                found.append(define(name, part[match.end() : at - 1]))
            else:
                found.append(define(word, known[word]) if word in known and word not in given else name or word)
        return "".join([*found, part[at:]])

    def define(name: str, value: str) -> str:
        inner = walk(value)
        given.add(name)
        return f"({name} := {inner.strip()})"

    return walk(text) if known else text


_PIECE = re.compile(r"\(\s*(?P<defined>[A-Za-z_][A-Za-z0-9_]*)\s*:=|(?P<word>[A-Za-z_][A-Za-z0-9_]*)")


def _definitions(text: str) -> dict[str, str]:
    """The texts that names stand for."""
    found = (match for match in _PIECE.finditer(text) if match["defined"] is not None)
    return {match["defined"]: text[match.end() : _closing(text, match.start())] for match in found}


def _closing(text: str, start: int) -> int:
    """Where the parenthesis at `start` closes; the end of the text where it does not."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0:
            return at
    return len(text)
