"""The report as one HTML page that needs nothing else: styles inline, figures as data, no scripts, no outside hosts."""

import base64
import html
import re
from pathlib import Path
from typing import Any

from maxaffine.lab.record import FIGURE
from maxaffine.lab.report import words


def render(found: list[tuple[Path, dict[str, Any]]]) -> str:
    """The whole page."""
    sections = "\n".join(_section(folder, record) for folder, record in found)
    style = words.filled("page.css")
    return words.filled("page.html", style=style, summary=_summary(found), sections=sections, count=str(len(found)))


def _summary(found: list[tuple[Path, dict[str, Any]]]) -> str:
    rows = "\n".join(
        f'<li><a href="#{_text(record["experiment"])}">{_text(record["experiment"])}</a>{_badge(record)}'
        f"<span>{_text(record['verdict']['sentence'])}</span></li>"
        for _, record in found
    )
    return f'<nav aria-label="Verdicts"><ol class="verdicts">\n{rows}\n</ol></nav>'


def _badge(record: dict[str, Any]) -> str:
    outcome = record["verdict"]["outcome"]
    return f'<strong class="badge {words.kind(outcome)}">{_text(outcome)}</strong>'


def _section(folder: Path, record: dict[str, Any]) -> str:
    verdict = record["verdict"]
    quick = '<p class="warning">A quick run: the same code on less. Not a result.</p>' if record["quick"] else ""
    synthetic = '<p class="warning">SYNTHETIC data: made-up images, not the published sets.</p>' if record["synthetic"] else ""
    return words.filled(
        "section.html", name=_text(record["experiment"]), claim=_text(record["claim"]), paper=_text(record["paper"]),
        warnings=quick + synthetic, kind=words.kind(verdict["outcome"]), badge=_badge(record),
        sentence=_text(verdict["sentence"]), alt=_text(record["figure"]["alt"]),
        picture=base64.b64encode((folder / FIGURE).read_bytes()).decode(),
        table=_table(record["table"]), numbers=_numbers(verdict["numbers"]), rule=prose(record["rule"]),
        protocol=prose(record["protocol"]), card=_card(record),
    )  # fmt: skip


def _table(table: dict[str, Any]) -> str:
    if not isinstance(table["rows"], list):
        return ""
    marks = [_mark(column) for column in zip(*table["rows"], strict=True)]
    head = "".join(f'<th scope="col"{mark}>{_text(cell)}</th>' for cell, mark in zip(table["header"], marks, strict=True))
    body = "\n".join(
        "<tr>" + "".join(f"<td{mark}>{_text(words.number(cell))}</td>" for cell, mark in zip(row, marks, strict=True)) + "</tr>"
        for row in table["rows"]
    )
    table_text = f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
    return f'<div class="wide" tabindex="0" role="region" aria-label="Table">{table_text}</div>'


def _mark(column: tuple[Any, ...]) -> str:
    """The class of a column: numbers to the right, short words unbroken, sentences with room."""
    if any(isinstance(cell, (int, float)) and not isinstance(cell, bool) for cell in column):
        return ' class="n"'
    longest = max(len(str(cell)) for cell in column)
    return ' class="s"' if longest <= 28 else ' class="l"'


def _numbers(numbers: Any) -> str:
    if not isinstance(numbers, dict):
        return ""
    pairs = "".join(f"<div><dt>{_text(key)}</dt><dd>{_text(words.number(value))}</dd></div>" for key, value in numbers.items())
    return f'<dl class="numbers" aria-label="Numbers of the verdict">{pairs}</dl>'


def _card(record: dict[str, Any]) -> str:
    rows = []
    for variable, lines in words.card(record):
        answer = "".join(f"<p>{_text(line)}</p>" for line in lines)
        rows.append(f"<div><dt>{variable}</dt><dd>{answer}</dd></div>")
    return f'<dl class="card">{"".join(rows)}</dl>'


def _text(text: Any) -> str:
    return html.escape(str(text), quote=True)


def prose(text: str) -> str:
    """The little markdown that protocols use: paragraphs, lists, **bold**, `code`; everything else is text."""
    blocks = []
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = block.splitlines()
        if all(re.match(r"\s*([-*]|\d+\.)\s|  ", line) for line in lines):
            items = [re.sub(r"^\s*([-*]|\d+\.)\s+", "", item) for item in re.split(r"\n(?=\s*(?:[-*]|\d+\.)\s)", block)]
            blocks.append("<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in items) + "</ul>")
        elif re.match(r"#+\s", block):
            blocks.append(f"<h4>{_inline(block.lstrip('#').strip())}</h4>")
        else:
            blocks.append(f"<p>{_inline(block)}</p>")
    return "\n".join(blocks)


def _inline(text: str) -> str:
    safe = html.escape(text, quote=True)
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", safe)
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", safe)
