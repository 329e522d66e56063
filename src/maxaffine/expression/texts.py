"""The texts of several outputs: columns end at semicolons, rows inside a column at commas, both outside of parentheses."""

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
