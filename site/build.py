"""The site: README, docs/ and examples as they are, with generated pages of reference, built strictly by MkDocs.

    python site/build.py [--out FOLDER]

Nothing on a page comes from another host: fonts, scripts and the search index are files of the site.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import generated

import maxaffine

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "site"
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")
PUBLIC = re.compile(r"^::: maxaffine\.(\w+)$", re.MULTILINE)  # a public name, wherever it lives
FENCES = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)

# Where a file of the repository stands in the site; everything else that a page links to is copied into files/.
PLACES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}

NAV: list[tuple[str, list[str]]] = [
    ("Start", ["index.md", "first-steps.md", "studio.md", "choosing.md", "paths/paper.md", "paths/function.md",
               "paths/variables.md", "paths/models.md", "paths/training.md", "paths/break.md"]),
    ("Functions", ["functions.md", "targets.md", "expressions.md", "formulas.md", "tables-and-data.md", "stacks.md", "gallery.md",
                   "hard-targets.md", "pictures.md"]),
    ("Proofs", ["proofs.md", "paper.md", "theory.md", "routes.md", "attack.md", "tables.md", "architecture.md"]),
    ("Models", ["exports.md", "inspect.md", "regression.md", "examples/README.md", "benchmarks.md"]),
    ("Training", ["meanfield.md", "margin.md", "ramp.md", "experiments.md"]),
    ("Reference", ["api/compile.md", "api/targets.md", "api/data.md", "api/layers.md", "api/models.md", "commands.md",
                   "refusals.md", "file-format.md", "changelog.md", "contributing.md"]),
]  # fmt: skip


def place_of(path: str) -> str:
    """Where a file of the repository stands in the site."""
    if path in PLACES:
        return PLACES[path]
    for folder in ("docs/", "site/pages/"):
        if path.startswith(folder):
            return path.removeprefix(folder)
    return path if path.startswith("examples/") and path.endswith((".md", ".png", ".svg")) else f"files/{path}"


def rewritten(text: str, page: str, wanted: set[str]) -> str:
    """A page with its links led to where things stand in the site; code blocks are left alone."""
    here, homes = Path(place_of(page)).parent, maxaffine._HOMES

    def led(found: re.Match[str]) -> str:
        goal, _, anchor = found[2].partition("#")
        if not goal or "://" in goal or goal.startswith("mailto:"):
            return found[0]
        there = ((ROOT / page).parent / goal).resolve()
        if there.is_dir():
            there = there / "README.md" if (there / "README.md").exists() else there
        name = there.relative_to(ROOT).as_posix()
        if there.is_dir() or not there.exists():
            return found[2] if there.exists() else found[0]
        wanted.add(name)
        back = "/".join([".."] * len(here.parts)) or "."
        return f"{found[1]}{back}/{place_of(name)}{'#' + anchor if anchor else ''}{found[3]}"

    text = PUBLIC.sub(lambda found: f"::: {homes[found[1]]}.{found[1]}" if found[1] in homes else found[0], text)
    parts = FENCES.split(text)
    return "".join(part if k % 2 else LINK.sub(led, part) for k, part in enumerate(parts))


def fill(source: Path) -> None:
    """Every page and what pages link to."""
    done: set[str] = set()
    wanted = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "examples/README.md"}
    wanted |= {path.relative_to(ROOT).as_posix() for folder in ("docs", "site/pages") for path in (ROOT / folder).rglob("*.md")}
    while wanted - done:
        for name in sorted(wanted - done):
            done.add(name)
            goal = source / place_of(name)
            goal.parent.mkdir(parents=True, exist_ok=True)
            if name.endswith(".md") and not place_of(name).startswith("files/"):
                goal.write_text(rewritten((ROOT / name).read_text(), name, wanted))
            else:
                shutil.copyfile(ROOT / name, goal)
    shutil.copyfile(HERE / "site.css", source / "site.css")
    cards = ROOT / "docs" / "images" / "cards"
    if cards.exists():
        shutil.copytree(cards, source / "images" / "cards")


def nav(source: Path) -> list[object]:
    """The table of contents: the pages named above that exist, then decisions and whatever else there is."""
    named = [(title, [page for page in pages if (source / page).exists()]) for title, pages in NAV]
    listed = {page for _, pages in named for page in pages}
    others = sorted(path.relative_to(source).as_posix() for path in source.rglob("*.md"))
    others = [page for page in others if page not in listed and not page.startswith("files/")]
    decisions = [page for page in others if page.startswith("decisions/")]
    rest = [page for page in others if page not in decisions]
    decisions.sort(key=lambda page: (not page.endswith("README.md"), page))
    found: list[object] = [{title: pages} for title, pages in named]
    if rest:
        found.append({"More": rest})
    return [*found, {"Decisions": decisions}]


def build(out: Path) -> int:
    """Fill a folder and let MkDocs make the site of it."""
    source = out / "source"
    shutil.rmtree(out, ignore_errors=True)
    source.mkdir(parents=True)
    fill(source)
    generated.write(source)
    config = (HERE / "mkdocs.yml").read_text().replace("nav: NAV", f"nav: {json.dumps(nav(source))}")
    config += f"docs_dir: {source}\nsite_dir: {out / 'html'}\n"
    (out / "mkdocs.yml").write_text(config)
    command = [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--strict", "-f", str(out / "mkdocs.yml")]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    said = [line for line in done.stderr.splitlines() if line.startswith(("WARNING", "ERROR")) or "Error" in line]
    if done.returncode:
        print("\n".join(said or [done.stderr]), file=sys.stderr)
    return done.returncode


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "site")
    out = parser.parse_args().out.resolve()
    code = build(out)
    if code == 0:
        print(f"the site is in {out / 'html'}; with its search: python -m http.server -b 127.0.0.1 -d {out / 'html'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
