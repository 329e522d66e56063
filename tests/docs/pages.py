"""The pages of the documentation and their fenced blocks."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md")) + sorted((ROOT / "site" / "pages").rglob("*.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(page.read_text()) if kind == language]


def without_blocks(page: Path) -> str:
    return FENCE.sub("", page.read_text())


NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?(?![\w.]*\w)"  # 12, 3,456.7, 1e-6
    r"|\b[0-9a-f]{16}\b"  # the beginning of a hash
    r"|(?<=[=:^_*/(])\d+(?:\.\d+)?(?:e-?\d+)?"  # (=1e-17)
)
UNIT = re.compile(r"# (?:B|KiB|MiB|GiB|bytes|ms|s)\b")


def pattern(line: str) -> str:
    """A line of output with its numbers, units of size and time and the widths of its columns masked: those may change."""
    return re.sub(r"[ \t]+", " ", UNIT.sub("# units", NUMBER.sub("#", line))).strip()


def commands(block: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with what the page shows of its output."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(line, shown) for line, _, shown in (part.partition("\n") for part in parts)]


def run_python(page: Path) -> None:
    """Runs the Python blocks of a page in order; an expression with a number in a comment behind it has that number."""
    space: dict[str, object] = {"__name__": "page"}
    for number, block in enumerate(blocks(page, "python")):
        name, lines = f"{name_of(page)}, block {number + 1}", block.splitlines()
        for statement in ast.parse(block).body:
            stated = re.search(r"#\s*([-+]?\d[\d.e+-]*)$", lines[(statement.end_lineno or 1) - 1])
            if isinstance(statement, ast.Expr) and stated:
                value = eval(compile(ast.Expression(statement.value), name, "eval"), space)  # noqa: S307
                digits = len(stated[1].partition("e")[0].partition(".")[2])
                assert float(value) == pytest.approx(float(stated[1]), abs=0.6 * 10.0**-digits), lines[statement.lineno - 1]
            else:
                exec(compile(ast.Module([statement], []), name, "exec"), space)  # noqa: S102
