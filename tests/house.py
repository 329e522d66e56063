"""The rules of the house, measured: `make house` prints them and fails where one is broken.

No module over 400 lines, no function over 80 (compiled kernels excepted), half of the modules under 140; no underscore name taken
from another module; every head in one folder of heads/; and what proofs rest on once per side: the Lambert lemma, Ehlich and
Zeller's theorem, the leak between groups, the engine that refines boxes, the reader of records.  The prover's side is proofs/ and
the modules of heads/ that prove (none that plans, fits, builds or searches).  What stands in core/ serves both sides, and then
neither may write it again.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

SRC = Path(__file__).resolve().parents[1] / "src"
PACKAGE = SRC / "maxaffine"
MODULE, FUNCTION, MEDIAN = 400, 80, 140  # lines
KERNELS = ("njit", "jit", "vectorize", "guvectorize", "stencil", "cuda", "kernel")
SIDES = {"prover": ("proofs", "heads"), "checker": ("checker",), "core": ("core",)}
PLANS = ("plan", "fit", "build", "search", "directions")  # words in the names of modules that prove nothing
BOXES = {"stack", "queue", "low", "lows", "boxes", "cells", "left", "open_boxes"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A file of the package."""

    path: Path
    lines: int
    tree: ast.Module

    @property
    def name(self) -> str:
        return str(self.path.relative_to(PACKAGE))

    @property
    def folder(self) -> str:
        return self.name.split("/")[0]

    def functions(self) -> Iterator[tuple[str, Function]]:
        """Every function with its qualified name."""
        yield from _functions(self.tree, "")


def _functions(node: ast.AST, inside: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield f"{inside}{child.name}", child
        name = f"{inside}{child.name}." if isinstance(child, Function | ast.ClassDef) else inside
        yield from _functions(child, name)


def modules() -> list[Module]:
    """The modules of the package."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Module(path, len(text.splitlines()), ast.parse(text)))
    return found


# ---------------------------------------------------------------------- sizes and names


def long_modules(house: list[Module]) -> list[str]:
    """Modules over 400 lines."""
    return [f"{m.name}: {m.lines}" for m in house if m.lines > MODULE]


def long_functions(house: list[Module]) -> list[str]:
    """Functions over 80 lines that no decorator makes a kernel."""
    found = []
    for m in house:
        for name, function in m.functions():
            length = (function.end_lineno or function.lineno) - function.lineno + 1
            if length > FUNCTION and not any(_is_kernel(one) for one in function.decorator_list):
                found.append(f"{m.name}, {name}: {length}")
    return found


def _is_kernel(decorator: ast.expr) -> bool:
    names = {part.id for part in ast.walk(decorator) if isinstance(part, ast.Name)}
    names |= {part.attr for part in ast.walk(decorator) if isinstance(part, ast.Attribute)}
    return any(word in name for name in names for word in KERNELS)


def private_imports(house: list[Module]) -> list[str]:
    """Underscore names of one module that another one takes, by import or as an attribute of an imported module."""
    known = {".".join(m.path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__") for m in house}
    found = []
    for m in house:
        aliases = set()
        for node in ast.walk(m.tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "maxaffine":
                found += [f"{m.name}: {node.module}.{one.name}" for one in node.names if _private(one.name)]
                aliases |= {one.asname or one.name for one in node.names if f"{node.module}.{one.name}" in known}
        for node in ast.walk(m.tree):
            if isinstance(node, ast.Attribute) and _private(node.attr) and isinstance(node.value, ast.Name):
                found += [f"{m.name}: {node.value.id}.{node.attr}"] if node.value.id in aliases else []
    return found


def _private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def scattered_heads() -> list[str]:
    """Heads whose class, or whose plans' and proofs' modules, lie in more than one folder of heads/, or in none."""
    from maxaffine.heads import HEADS

    found = []
    for name, head in HEADS.items():
        home = type(head).__module__.split(".")
        folder = home[2] if home[:2] == ["maxaffine", "heads"] and len(home) > 2 else ""
        if not (PACKAGE / "heads" / folder / "__init__.py").is_file() or not folder:
            found.append(f"{name}: {'.'.join(home)}")
    allowed = {"heads", "checker", "structure"}
    elsewhere = [path for path in PACKAGE.glob("*/*.py") if path.stem in HEADS and path.parent.name not in allowed]
    return found + [f"a module of a head's name: {path.relative_to(PACKAGE)}" for path in elsewhere]


# ---------------------------------------------------------------------- what is written once


def _names(node: ast.AST) -> set[str]:
    found = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return found | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def _calls(node: ast.AST, name: str) -> Iterator[ast.Call]:
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and name in (getattr(part.func, "id", ""), getattr(part.func, "attr", "")):
            yield part


def is_lambert(function: Function) -> bool:
    """A function that computes W0: named or described so, or calling a library for it."""
    summary = (ast.get_docstring(function) or "").partition("\n")[0]
    named = any(word in function.name.lower() for word in ("lambert", "w0", "largest_blend", "soft_gap"))
    said = re.match(r"W0\(|(.* )?(bound of|at least|at most) W0\(", summary, re.IGNORECASE) is not None
    return named or said or bool(_names(function) & {"lambertw", "wrightomega"})


def is_ehlich_zeller(function: Function) -> bool:
    """A function that divides by cos(pi m / 2n)."""
    for part in ast.walk(function):
        if isinstance(part, ast.BinOp | ast.AugAssign) and isinstance(part.op, ast.Div):
            for call in _calls(part.right if isinstance(part, ast.BinOp) else part.value, "cos"):
                quotient = any(isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div) for one in ast.walk(call))
                if quotient and "pi" in _names(call):
                    return True
    return False


def is_leak(function: Function) -> bool:
    """A function that takes the bias of groups off a ratio of normalisers and exp of that."""
    taken = [part.right for part in ast.walk(function) if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub)]
    biased = any(_names(part) & {"bonus", "bias", "group_bias"} for part in taken)
    return biased and any(True for _ in _calls(function, "exp"))


def is_box_engine(function: Function) -> bool:
    """A function with a loop that goes on while boxes, told by their ends, are left; or one that is called after its supremum."""
    arguments = {argument.arg for argument in function.args.args}
    if function.name == "supremum" and {"measure", "low", "high"} <= arguments:
        return True
    for part in ast.walk(function):
        if isinstance(part, ast.While) and _names(part.test) & BOXES:
            inside = set().union(*(_names(one) for one in part.body))
            if any(ends <= inside for ends in ({"low", "high"}, {"lo", "hi"}, {"left", "right"})):
                return True
    return False


def is_reader(function: Function) -> bool:
    """A function that takes stored tensors by their names."""
    for part in ast.walk(function):
        named = isinstance(part, ast.Subscript) and isinstance(part.slice, ast.JoinedStr | ast.Constant)
        if named and getattr(part.value, "id", "") == "tensors":
            return True
    return False


ONCE: dict[str, Callable[[Function], bool]] = {
    "the Lambert lemma": is_lambert,
    "Ehlich and Zeller's theorem": is_ehlich_zeller,
    "the leak between groups": is_leak,
    "the engine that refines boxes": is_box_engine,
    "the reader of records": is_reader,
}


def places(house: list[Module], what: Callable[[Function], bool], side: str) -> dict[str, list[str]]:
    """Module -> functions of a side that do it; the innermost function counts."""
    found: dict[str, list[str]] = {}
    for m in house:
        if m.folder in SIDES[side] and not any(word in m.path.stem for word in PLANS):
            for name, function in m.functions():
                inner = any(what(one) for _, one in _functions(function, ""))
                if what(function) and not inner:
                    found.setdefault(m.name, []).append(name)
    return found


def rules(house: list[Module]) -> dict[str, list[str]]:
    """Every rule with what breaks it."""
    middle = median(m.lines for m in house)
    found = {
        f"modules over {MODULE} lines": long_modules(house),
        f"functions over {FUNCTION} lines, kernels excepted": long_functions(house),
        f"half of the modules under {MEDIAN} lines": [] if middle < MEDIAN else [f"the median is {middle:g}"],
        "underscore names taken from another module": private_imports(house),
        "heads outside one folder of heads/": scattered_heads(),
    }
    for name, what in ONCE.items():
        shared = places(house, what, "core")
        for side in ("prover", "checker"):
            there = places(house, what, side) | (shared if side == "prover" else {})
            lines = [f"{module}: {', '.join(functions)}" for module, functions in there.items()]
            read = (name, side) == ("the reader of records", "prover")  # layer/file.py reads for the prover
            found[f"{name}, once in the {side}"] = lines if len(lines) > 1 else [] if lines or read else ["nowhere"]
    return found


def main() -> int:
    """Print what is measured; 1 where a rule is broken."""
    house = modules()
    made = rules(house)
    for name, what in ONCE.items():
        where = [module for side in SIDES for module in places(house, what, side)]
        print(f"     {name}: {', '.join(where) or 'nowhere'}")
    for rule, broken in made.items():
        print(f"{'ok ' if not broken else f'{len(broken):3}'}  {rule}")
        for one in broken:
            print(f"       {one}")
    lines = [m.lines for m in house]
    print(f"     {len(lines)} modules, median {median(lines):g} lines, {sum(lines):,} lines of src in all")
    return 1 if any(made.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
