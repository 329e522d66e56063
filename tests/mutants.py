"""Mutants of the proofs: one small change of meaning each, and whether a test notices.

    python tests/mutants.py                        a sample over proofs/ and checker/, beside the budget of tests/mutants.json
    python tests/mutants.py --write                the same, and record it
    python tests/mutants.py --only soft_gap        mutants of the modules whose path contains this text
    python tests/mutants.py --list                 how many there are, module by module

A mutant halves a constant, turns a comparison, a sign or a min into a max, drops a term of a sum, or leaves out a statement that
refuses.  It is written from the syntax tree, so no test depends on how the source is formatted.  Each runs in a copy of src
against the tests that import its module, then the extremal layers of tests/contract and the gate; the test that fails must pass
without the mutant.  What survives is equivalent, or a claim that nobody tests: the record names it, and the share is bounded.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("proofs", "checker")
RECORD = Path(__file__).with_suffix(".json")
ALWAYS = ("tests/contract/test_terms.py", "tests/gate")
MOST = 5  # test files of modules that import a module which no test imports
LIMIT = 400.0  # seconds of the processor for a mutant; one that takes longer is noticed
TINY = 1e-5  # constants below it are safety margins: their halves are safe as well
EXTREMA = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}
TURNED = {ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}


@dataclass(frozen=True)
class Mutant:
    """One change: the module, the line, the number of the change there, and what it does."""

    path: str
    line: int
    number: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


# ---------------------------------------------------------------------- changes of a syntax tree


def changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str, ast.AST]]:
    """Node, what is done, and the node that takes its place."""
    for node in _code(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and not _margin(node):
            other = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            yield node, f"sign of `{_short(node.right)}`", ast.BinOp(node.left, other, node.right)
            yield node, f"drops `{_short(node.right)}`", node.left
            if isinstance(node.op, ast.Add):
                yield node, f"drops `{_short(node.left)}`", node.right
        elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in TURNED:
            yield node, f"turns `{_short(node)}`", ast.Compare(node.left, [TURNED[type(node.ops[0])]()], node.comparators)
        elif isinstance(node, ast.Call) and (name := _name(node.func)) in EXTREMA and len(node.args) > 1:
            func = copy.deepcopy(node.func)
            if isinstance(func, ast.Attribute):
                func.attr = EXTREMA[name]
            else:
                func.id = EXTREMA[name]  # type: ignore[attr-defined]
            yield node, f"{EXTREMA[name]} for {name} in `{_short(node)}`", ast.Call(func, node.args, node.keywords)
        elif isinstance(node, ast.Constant) and isinstance(node.value, float) and abs(node.value) > TINY:
            yield node, f"halves {node.value}", ast.Constant(node.value / 2.0)
        elif isinstance(node, ast.If) and not node.orelse and all(isinstance(one, ast.Raise) for one in node.body):
            yield node, f"does not refuse if `{_short(node.test)}`", ast.Pass()


def _code(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes inside functions and module constants; no annotations, no words of refusals."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import):
            continue
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "slice"):
                continue
            waiting += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST)]


def _margin(node: ast.BinOp) -> bool:
    """1 + 1e-12, x + 1e-12 * y and their like."""
    parts = [node.left, node.right]
    products = [one for one in parts if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mult)]
    parts += [side for one in products for side in (one.left, one.right)]
    return any(isinstance(one, ast.Constant) and isinstance(one.value, float) and abs(one.value) <= TINY for one in parts)


def _name(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def _short(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else text[:57] + "..."


def mutants(path: Path) -> list[Mutant]:
    """All mutants of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = str(path.relative_to(ROOT))
    return [Mutant(name, getattr(node, "lineno", 0), i, what) for i, (node, what, _) in enumerate(changes(tree))]


def mutated(mutant: Mutant) -> str:
    """The source of its module with the change."""
    tree = ast.parse((ROOT / mutant.path).read_text(encoding="utf-8"))
    node, _, other = next(one for i, one in enumerate(changes(tree)) if i == mutant.number)

    class Swap(ast.NodeTransformer):
        def visit(self, here: ast.AST) -> ast.AST:
            return ast.copy_location(other, here) if here is node else self.generic_visit(here)

    return ast.unparse(ast.fix_missing_locations(Swap().visit(tree)))


# ---------------------------------------------------------------------- tests


def _pattern(path: str) -> re.Pattern[str]:
    """What imports of a module look like."""
    dotted = path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    package, _, module = dotted.rpartition(".")
    return re.compile(rf"{re.escape(dotted)} import|from {re.escape(package)} import .*\b{module}\b")


def covering(path: str) -> list[str]:
    """Test files that import the module, or else one that imports it; then those that always run."""
    tests = [one for one in sorted((ROOT / "tests").rglob("test_*.py")) if not {"lab", "meanfield"} & set(one.parts)]
    named = [(str(one.relative_to(ROOT)), one.read_text(encoding="utf-8")) for one in tests]
    source = [(str(one.relative_to(ROOT)), one.read_text(encoding="utf-8")) for one in (ROOT / "src").rglob("*.py")]
    asked = [_pattern(path)]
    found = [name for name, text in named if asked[0].search(text)]
    if not found:
        asked = [_pattern(name) for name, text in sorted(source) if asked[0].search(text)]
        found = [name for name, text in named if any(one.search(text) for one in asked)][:MOST]
    return [one for one in found if not one.startswith(ALWAYS)] + list(ALWAYS)


class Bench:
    """A copy of src in which one module at a time is a mutant."""

    def __init__(self, folder: Path) -> None:
        self.src = folder / "src"
        shutil.copytree(ROOT / "src", self.src)
        self.sound: dict[str, bool] = {}  # tests that pass without a mutant

    def run(self, tests: list[str], seconds: float) -> tuple[int, str]:
        """Exit code and output of pytest up to its first failure; -1 when time is over."""
        environment = os.environ | {"PYTHONPATH": str(self.src), "OMP_NUM_THREADS": "1", "CI": "1"}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
        limit = partial(resource.setrlimit, resource.RLIMIT_CPU, (int(seconds), int(seconds)))
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, preexec_fn=limit)
        return max(done.returncode, -1), done.stdout

    def judge(self, mutant: Mutant) -> str:
        """The test that notices it, "time" where it does not end, or "" where it survives."""
        goal = self.src / Path(mutant.path).relative_to("src")
        before = goal.read_bytes(), goal.stat()
        goal.write_text(mutated(mutant), encoding="utf-8")
        try:
            code, output = self.run(covering(mutant.path), LIMIT)
        finally:
            goal.write_bytes(before[0])
            os.utime(goal, ns=(before[1].st_atime_ns, before[1].st_mtime_ns))
        if code in (0, -1):
            return "time" if code else ""
        failed = re.search(r"^(?:FAILED|ERROR) (\S+?\.py(?:::.*?)?)(?: - .*)?$", output, re.MULTILINE)
        name = failed[1] if failed else "?"
        if name not in self.sound:
            self.sound[name] = failed is not None and self.run([name], LIMIT)[0] == 0
        return name if self.sound[name] else f"not judged: {name} fails without it"


def sample(only: str, count: int, seed: int) -> list[Mutant]:
    """So many mutants, every module with the same chance per change."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / "src" / "maxaffine" / folder).rglob("*.py"))]
    found = [one for path in paths if only in str(path) for one in mutants(path)]
    return random.Random(seed).sample(found, min(count, len(found)))


def main() -> int:
    """Run a sample; 1 where a larger share survives than the budget allows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--minutes", type=float, default=60.0, help="no new mutant after so long")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if given.list:
        counts = Counter(one.path for one in sample(given.only, 10**9, 0))
        print("\n".join(f"{n:6}  {path}" for path, n in sorted(counts.items())), f"\n{sum(counts.values()):6}  in all")
        return 0
    begun, rows = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        for mutant in sample(given.only, given.count, given.seed):
            if time.monotonic() - begun > 60.0 * given.minutes:
                break
            noticed = bench.judge(mutant)
            rows.append((mutant, noticed))
            print(f"{'survives' if not noticed else 'noticed ':8}  {mutant}  {noticed}", flush=True)
    judged = [row for row in rows if not row[1].startswith("not judged")]
    survivors = [str(mutant) for mutant, noticed in judged if not noticed]
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"budget": 0.3}
    share = len(survivors) / max(len(judged), 1)
    print(f"{len(survivors)} of {len(judged)} mutants survive ({share:.0%}, budget {record['budget']:.0%})")
    if given.write:
        record |= {"seed": given.seed, "judged": len(judged), "survivors": survivors, "seconds": round(time.monotonic() - begun)}
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if share > record["budget"] else 0


if __name__ == "__main__":
    sys.exit(main())
