"""The report as markdown, for readers of the repository; figures are links into the results."""

import os
import re
from pathlib import Path
from typing import Any

from maxaffine.lab.record import FIGURE
from maxaffine.lab.report import words


def render(found: list[tuple[Path, dict[str, Any]]], home: Path) -> str:
    """The page, with links relative to the folder it will stand in."""
    parts = [words.filled("introduction.md"), _summary(found)]
    parts += [_section(folder, record, home) for folder, record in found]
    return "\n".join(parts)


def _summary(found: list[tuple[Path, dict[str, Any]]]) -> str:
    lines = ["| experiment | verdict |", "|---|---|"]
    for _, record in found:
        name = record["experiment"]
        outcome, sentence = (_cell(_prose(record["verdict"][key])) for key in ("outcome", "sentence"))
        lines.append(f"| [{name}](#{name}) | **{outcome}**. {sentence} |")
    return "\n".join(lines) + "\n"


def _section(folder: Path, record: dict[str, Any], home: Path) -> str:
    verdict, table = record["verdict"], record["table"]
    rows = [*_table(table["header"], table["rows"]), ""] if isinstance(table["rows"], list) else []
    if isinstance(verdict["numbers"], dict):
        numbers = [f"- {_prose(key)}: {_prose(words.number(value))}" for key, value in verdict["numbers"].items()]
        rows += ["Numbers of the verdict:", "", *numbers, ""]
    card = [[name, "<br>".join(_prose(line) for line in answer)] for name, answer in words.card(record)]
    text = words.filled(
        "section.md", name=record["experiment"], claim=_prose(record["claim"]), paper=_prose(record["paper"]),
        outcome=verdict["outcome"], sentence=_prose(verdict["sentence"]), alt=re.sub(r"[\[\]\n]", " ", record["figure"]["alt"]),
        figure=Path(os.path.relpath(folder / FIGURE, home)).as_posix(), rows="".join(f"{line}\n" for line in rows),
        rule=_prose(record["rule"]), protocol=_prose(record["protocol"].strip()),
        card="\n".join(_table(["variable", "answer"], card)),
    )  # fmt: skip
    return _linked(text, folder.parent.parent, home)


def _table(header: list[str], rows: list[list[Any]]) -> list[str]:
    body = ["| " + " | ".join(_cell(words.number(cell)) for cell in row) + " |" for row in rows]
    return ["| " + " | ".join(map(_cell, header)) + " |", "|" + "---|" * len(header), *body]


def _linked(text: str, root: Path, home: Path) -> str:
    """The protocol's module as a link, where the sources stand beside the results."""

    def link(found: re.Match[str]) -> str:
        if not (root / found[0]).is_file():
            return found[0]
        return f"[{found[0]}]({Path(os.path.relpath(root / found[0], home)).as_posix()})"

    return re.sub(r"(?<=the module )src/[\w/]+\.py", link, text)


def _prose(text: str) -> str:
    """Text in which no < begins a tag; code between backticks is left alone."""
    parts = text.split("`")
    return "`".join(part if place % 2 else part.replace("&", "&amp;").replace("<", "&lt;") for place, part in enumerate(parts))


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("|", "\\|"))
