"""What the README and docs/ say is run: Python blocks, commands, links, names."""

import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from math import pi
from pathlib import Path

import numpy as np
import pytest

import maxaffine as ma

_spec = importlib.util.spec_from_file_location("maxaffine_pages", Path(__file__).with_name("pages.py"))
assert _spec is not None and _spec.loader is not None
pages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(pages)

ROOT, PAGES = pages.ROOT, pages.PAGES
WITH_PYTHON = [page for page in PAGES if pages.blocks(page, "python")]
WITH_CONSOLE = [page for page in PAGES if pages.blocks(page, "console")]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=pages.name_of)
def test_the_python_blocks_of_a_page_run_in_order_and_give_the_numbers_in_their_comments(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if any("import jax" in block for block in pages.blocks(page, "python")):  # JAX starts threads, and other tests fork
        code = f"import pages; pages.run_python(pages.Path({str(page)!r}))"
        here = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        done = subprocess.run([sys.executable, "-W", "error", "-c", code], env=here, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return
    with redirect_stdout(io.StringIO()):
        pages.run_python(page)


def test_the_readme_has_a_python_example_of_about_ten_lines() -> None:
    lines = [line for line in pages.blocks(ROOT / "README.md", "python")[0].splitlines() if line.strip()]
    assert 8 <= len(lines) <= 12


def run(line: str) -> tuple[int, str]:
    """Exit code and output of a command line of this package, in this process."""
    from maxaffine.cli.app import main

    words = shlex.split(line)
    assert words[0] == "maxaffine", line
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(words[1:])
    return code, out.getvalue() + err.getvalue()


def made_by(target: str) -> str:
    """The command line of this package behind a target of the Makefile, with its folder made."""
    recipe = (ROOT / "Makefile").read_text().partition(f"\n{target}:")[2].partition("\n\n")[0].replace("\\\n", " ")
    for folder in re.findall(r"mkdir -p (\S+)", recipe):
        Path(folder).mkdir()
    found = re.search(r"\$\(BIN\)/(maxaffine .*)", recipe)
    assert found, target
    return found[1]


@pytest.mark.parametrize("page", WITH_CONSOLE, ids=pages.name_of)
def test_the_commands_of_a_page_run_and_say_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Line by line; numbers may improve, words may not change behind the page's back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    tmp_path.joinpath("points.csv").write_text("x,y\n0.5,1.5\n-1,2\n")
    x, y = np.linspace(-3, 3, 61), np.linspace(-2, 4, 49)
    hill = 80 * np.exp(-(x[:, None] ** 2) - (y - 1) ** 2) + 5 * np.sin(x[:, None] + y)
    np.savez(tmp_path / "heights.npz", x=x, y=y, z=hill)
    for block in pages.blocks(page, "console"):
        for line, shown in pages.commands(block):
            if line.startswith("make ") and not shown.strip():
                assert re.search(rf"^{line.split()[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
                continue
            code, output = run(made_by(line.split()[1]) if line.startswith("make ") else line)
            stated = re.search(r"^\(exit code (\d+)\)$", shown, re.MULTILINE)
            assert code == (int(stated[1]) if stated else 0), (line, output)
            expected = [pages.pattern(one) for one in shown.splitlines() if one.strip() and not (stated and one == stated[0])]
            assert [pages.pattern(one) for one in output.splitlines() if one.strip()] == expected, f"{line}: run `make docs`"


SLOW = ("compare", "claims", "figures")  # run by `make docs-check`, and in small by tests/unit/meanfield/test_command.py


@pytest.mark.parametrize("line", [line for block in pages.blocks(ROOT / "docs/meanfield.md", "") for line in block.splitlines()])
def test_the_commands_of_the_mean_field_page_run(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = re.split(r"\s{2,}", line)[0]
    if command.split()[2] in SLOW and not os.environ.get("MAXAFFINE_DOCS"):
        pytest.skip("some minutes: `make docs-check` runs it")
    assert run(command)[0] == 0


def test_every_fenced_block_is_of_a_kind_that_is_run() -> None:
    kinds = {(pages.name_of(page), kind) for page in PAGES for kind, _ in pages.FENCE.findall(page.read_text())}
    assert {(name, kind) for name, kind in kinds if kind not in ("python", "console")} <= {
        ("README.md", "text"), ("docs/meanfield.md", ""),
    }  # fmt: skip


def test_the_end_of_make_test_is_told_as_it_is() -> None:
    (text,) = pages.blocks(ROOT / "README.md", "text")
    contracts = (ROOT / "pyproject.toml").read_text().count("[[tool.importlinter.contracts]]")
    assert f"Contracts: {contracts} kept, 0 broken." in text
    assert "All checks passed!" in text and "Success: no issues found in" in text


def test_every_command_named_in_the_pages_exists() -> None:
    from maxaffine.cli.registry import COMMANDS

    for page in PAGES:
        text = page.read_text()
        for command in re.findall(r"(?:`|\$ )(?:\.venv/bin/)?maxaffine ([a-z]+)\b", text, re.MULTILINE):
            assert command in COMMANDS, (pages.name_of(page), command)
        for target in re.findall(r"`make ([a-z]+)`", text):
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), (pages.name_of(page), target)


@pytest.mark.parametrize("page", PAGES, ids=pages.name_of)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for goal in re.findall(r"\]\(([^)\s]+)\)", pages.without_blocks(page)):
        if goal.startswith(("http://", "https://")):
            continue
        path, _, anchor = goal.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), goal
        if anchor and there.suffix == ".md":
            heads = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
            assert anchor in slugs, goal


def test_every_picture_is_small() -> None:
    pictures = sorted((ROOT / "docs" / "images").glob("*.png"))
    assert pictures
    for picture in pictures:
        assert picture.stat().st_size < 300_000, picture.name


def test_every_module_and_test_that_the_theory_names_exists() -> None:
    text = (ROOT / "docs" / "theory.md").read_text()
    named = set(re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py)`", text))
    named |= {f"src/maxaffine/{path}" for path in re.findall(r"`((?!tests/|benchmarks/)[\w/]+\.py)`", text)}
    assert len(named) > 20
    assert [path for path in sorted(named) if not (ROOT / path).is_file()] == []
    for file, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
        assert f"def {test}(" in (ROOT / file).read_text(), (file, test)


def test_the_architecture_page_names_every_module_and_no_other() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    listed = set(re.findall(r"^\| `([\w/]+\.py)` \|", text, re.MULTILINE))
    package = ROOT / "src" / "maxaffine"
    there = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py", "_version.py")
    }
    assert there - listed == set(), "modules that docs/architecture.md does not name: run `make docs`"
    assert {path for path in listed if not (package / path).is_file()} == set(), "modules that do not exist: run `make docs`"


def test_the_token_table_of_the_readme_is_no_better_than_what_compile_takes() -> None:
    table = (ROOT / "README.md").read_text().partition("<!-- tokens -->")[2].partition("<!-- /tokens -->")[0]
    rows = re.findall(r"^\| (1e-\d+) \| ([\d,.e+]+) .*?\| (\d+) \|", table, re.MULTILINE)
    assert [error for error, _, _ in rows] == ["1e-01", "1e-02", "1e-04", "1e-06", "1e-08", "1e-10"]
    box = ma.Box(x=(-pi, pi), y=(-pi, pi))
    for error, _, tokens in rows:
        layer = ma.compile("sin(x) + cos(y)", box, error=float(error))
        assert layer.certificate.kind == "proved" and layer.bound is not None and layer.bound <= float(error)
        assert layer.tokens <= int(tokens), error


def test_version_licence_and_authors_agree() -> None:
    citation, changes = (ROOT / "CITATION.cff").read_text(), (ROOT / "CHANGELOG.md").read_text()
    assert f'version: "{ma.__version__}"' in citation and f"## [{ma.__version__}]" in changes
    assert "license: Apache-2.0" in citation and "Apache License" in (ROOT / "LICENSE").read_text()
    assert "The maxaffine developers" in citation
    for line in citation.splitlines():  # YAML that needs no parser: indented by twos, no tabs, keys or list items only
        assert "\t" not in line and (len(line) - len(line.lstrip())) % 2 == 0
        assert re.fullmatch(r' *(- )?([a-z-]+:( .+)?|".*"|[a-z ]+)', line) or not line.strip(), line


def test_pages_speak_of_the_project_alone() -> None:
    for page in PAGES:
        for word in ("/work/", "/tmp/", "/home/", "prototype", "session"):
            assert word not in page.read_text(), (pages.name_of(page), word)


