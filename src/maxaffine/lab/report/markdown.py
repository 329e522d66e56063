"""The report as markdown, for readers of the repository; figures are links into the results."""

import os
import re
from pathlib import Path
from typing import Any

from maxaffine.lab.record import FIGURE
from maxaffine.lab.report import words

INTRODUCTION = Path(__file__).with_name("introduction.md").read_text(encoding="utf-8")


def render(found: list[tuple[Path, dict[str, Any]]], home: Path) -> str:
    """The page, with links relative to the folder it will stand in."""
    parts = [INTRODUCTION, _summary(found)]
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
    figure = Path(os.path.relpath(folder / FIGURE, home)).as_posix()
    lines = [f"## {record['experiment']}", "", f"> {_prose(record['claim'])}", ">", f"> {_prose(record['paper'])}", ""]
    lines += [f"**Verdict: {verdict['outcome']}.** {_prose(verdict['sentence'])}", ""]
    lines += [f"![{_alt(record['figure']['alt'])}]({figure})", ""]
    if isinstance(table["rows"], list):
        lines += [*_table(table["header"], table["rows"]), ""]
    if isinstance(verdict["numbers"], dict):
        lines += ["Numbers of the verdict:", "", *_list(verdict["numbers"]), ""]
    lines += [f"**Rule, fixed before the run.** {_prose(record['rule'])}", "", "<details><summary>Protocol</summary>", ""]
    lines += [_prose(record["protocol"].strip()), "", "</details>", "", "<details><summary>Card</summary>", ""]
    card = [[name, "<br>".join(_prose(line) for line in answer)] for name, answer in words.card(record)]
    lines += _table(["variable", "answer"], card)
    lines += ["", "</details>", ""]
    return _linked("\n".join(lines), folder.parent.parent, home)


def _table(header: list[str], rows: list[list[Any]]) -> list[str]:
    body = ["| " + " | ".join(_cell(words.number(cell)) for cell in row) + " |" for row in rows]
    return ["| " + " | ".join(map(_cell, header)) + " |", "|" + "---|" * len(header), *body]


def _list(numbers: dict[str, Any]) -> list[str]:
    return [f"- {_prose(key)}: {_prose(words.number(value))}" for key, value in numbers.items()]


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


def _alt(text: str) -> str:
    return re.sub(r"[\[\]\n]", " ", text)
