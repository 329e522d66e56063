"""The pages that are made from the program and its records: commands, refusals, the file format, the gallery in pictures."""

from __future__ import annotations

import ast
import html
import io
import json
import os
import re
from contextlib import redirect_stdout
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "maxaffine"
CARDS = ROOT / "benchmarks" / "results" / "cards.json"  # made by benchmarks/cards.py


def write(folder: Path) -> None:
    """All of them."""
    (folder / "commands.md").write_text(commands())
    (folder / "refusals.md").write_text(refusals())
    (folder / "file-format.md").write_text(file_format())
    if CARDS.exists():
        (folder / "pictures.md").write_text(pictures())


def commands() -> str:
    """The help of every command."""
    from maxaffine.cli.registry import COMMANDS, GROUPS

    pages = ["# Commands", "", "What `maxaffine COMMAND --help` prints.", "", "## maxaffine", "", _help()]
    for name in COMMANDS:
        told = _help(name)
        pages += ["", f"## maxaffine {name}", "", told]
        for one in _listed(told) if name in GROUPS else ():
            pages += ["", f"### maxaffine {name} {one}", "", _help(name, one)]
    return "\n".join(pages) + "\n"


def _help(*words: str) -> str:
    from maxaffine.cli.app import main

    os.environ["COLUMNS"] = "110"
    out = io.StringIO()
    with redirect_stdout(out):
        main([*words, "--help"])
    return f"```text\n{out.getvalue().rstrip()}\n```"


def _listed(told: str) -> list[str]:
    """The commands that a help lists."""
    _, _, after = told.partition("\nCommands:\n")
    return re.findall(r"^  ([a-z][a-z-]*)(?:  |$)", after, re.MULTILINE)


def refusals() -> str:
    """Every sentence that ends a request, by the folder that says it."""
    found: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        folder = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        found.setdefault(folder, []).extend(_sentences(ast.parse(path.read_text())))
    lines = [
        "# Refusals", "",
        "Every sentence with which maxaffine turns a request down, with the way out in it. Braces stand for what is filled in. "
        "`BadInput` is for what is malformed, `Refused` for what is well-formed and cannot be met; both are "
        "`maxaffine.MaxaffineError` and exit code 2 on the command line. A refusal from `compile` may add the nearest error "
        "within reach and a command to try; `--verbose` lists what was tried.",
    ]  # fmt: skip
    for folder, sentences in sorted(found.items()):
        if sentences:
            lines += ["", f"## {folder}", "", *(f"- {one}" for one in sorted(set(sentences)))]
    return "\n".join(lines) + "\n"


def _sentences(tree: ast.AST) -> list[str]:
    """The texts that are raised as BadInput or Refused."""
    kinds = ("BadInput", "Refused")
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args]
    told = ((call.func.id, _text(call.args[0])) for call in calls if isinstance(call.func, ast.Name))
    return [f"**{kind}** {_literal(text)}" for kind, text in told if kind in kinds and len(text.split()) > 3]


def _text(node: ast.expr) -> str:
    """A string or formatted string as it reads, with braces about what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(value) for value in node.values)
    if isinstance(node, ast.FormattedValue):
        name = ast.unparse(node.value)
        return "{" + (name if re.fullmatch(r"[\w.]+", name) else "..") + "}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return ""


def _literal(text: str) -> str:
    """Text that Markdown leaves as it is."""
    return re.sub(r"([*_<>\[\]|#])", r"\\\1", " ".join(text.split()).replace("`", "'"))


def file_format() -> str:
    """The docstrings of the modules that write and read files."""
    pages = [
        "# File format", "",
        "One file holds one layer: a safetensors file, whose metadata carries one JSON record and its SHA-256. Nothing in a file "
        "is executed, and every field is checked before use. Made from the docstrings of the modules that write and read files.",
    ]  # fmt: skip
    for name in ("core/container.py", "core/records.py", "layer/file.py", "saved.py"):
        told = ast.get_docstring(ast.parse((SOURCE / name).read_text())) or ""
        head, _, rest = told.partition("\n\n")
        pages += ["", f"## {name}", "", _literal(head), *(["", f"```text\n{rest}\n```"] if rest else [])]
    return "\n".join(pages) + "\n"


def pictures() -> str:
    """A card per target: its picture, its tokens at three errors, the command that compiles it."""
    lines = [
        "# The gallery in pictures", "",
        "Layer and error of every named target at the first error that was met, relative to its largest value; tokens by error. "
        "Targets that jump are measured in L_1.", "", '<div class="cards">',
    ]  # fmt: skip
    for name, card in json.loads(CARDS.read_text()).items():
        source = f"images/cards/{card['picture']}"
        shown = f'<img src="{source}" alt="{name}: layer and error" loading="lazy">' if card["picture"] else ""
        rows = "".join(
            f"<tr><td>{row['error']:g}</td><td>{row['method'] or 'refused'}</td><td>{_count(row['tokens'])}</td></tr>"
            for row in card["rows"]
        )
        lines += [
            f'<div class="card" id="{name}"><h3>{name}</h3>{shown}<p><code>{html.escape(_short(card["text"]))}</code></p>'
            f"<table><tr><th>error</th><th>method</th><th>tokens</th></tr>{rows}</table>"
            f'<p><code>{html.escape(card["command"])}</code></p><p>{html.escape(card["source"])}</p></div>'
        ]
    return "\n".join([*lines, "</div>"]) + "\n"


def _count(tokens: int | None) -> str:
    return "" if tokens is None else f"{tokens:,}" if tokens < 10**9 else f"{tokens:.1e}"


def _short(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."
