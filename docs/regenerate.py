"""Make the pictures, the tables and every console output of README.md and docs/ again.

A fenced `console` block is a list of commands behind `$ ` and what they printed.  The commands of one page are run in order, in
one empty folder, and their output is put in place; `make test` is left as it is.  The table between the marks `<!-- tokens -->`
and `<!-- /tokens -->` is measured, so is that of the routes; the one between `<!-- modules -->` is read from the docstrings,
that of the heads from their registry.
"""

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from math import pi
from pathlib import Path

import maxaffine as ma
from maxaffine.heads import HEADS
from maxaffine.proofs.routes import CLAMPS, RAISES, ROUTES, UNSAID

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("choosing", "functions", "paper", "stacks", "routes", "margin", "ramp", "architecture")
MADE = ("README.md", "docs/first-steps.md", *(f"docs/{name}.md" for name in NAMES))
PAGES = tuple(ROOT / name for name in MADE)
IMAGES = ROOT / "docs" / "images"
ERRORS = (1e-1, 1e-2, 1e-4, 1e-6, 1e-8, 1e-10)
SQUARE = ma.Box(x=(-pi, pi), y=(-pi, pi))
BOREHOLE = "2*pi*Tu*(Hu-Hl)/(log(r/rw)*(1+2*L*Tu/(log(r/rw)*rw**2*Kw)+Tu/Tl))"
BOREHOLE_BOX = ma.Box(
    rw=(0.05, 0.15), r=(100, 50000), Tu=(63070, 115600), Hu=(990, 1110), Tl=(63.1, 116), Hl=(700, 820), L=(1120, 1680),
    Kw=(9855, 12045),
)  # fmt: skip
HOW = {
    "arrays": "stack(x)", "tensors": "stack(tensor)", "kernel module": 'stack.to_torch(form="kernel")',
    "matrices": "stack.matrices()", "multihead": "stack.to_torch()", "onnx": "stack.to_onnx(path)",
}  # fmt: skip
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


def pictures() -> None:
    """The paper's lookup with its cells and at other temperatures, and tokens against error per method."""
    lookup = IMAGES / "lookup.png"
    ma.compile("sin(x) + cos(y)", SQUARE, error=0.5, method="lookup").draw(lookup)
    small(lookup)
    temperature = IMAGES / "temperature.png"
    ma.sweep(ma.compile("sin(x) + cos(y)", SQUARE, error=0.5, method="lookup")).draw(temperature)
    small(temperature)
    stack = IMAGES / "stack.png"
    stack_of(BOREHOLE, BOREHOLE_BOX).draw(stack)
    small(stack)
    frontier_picture = IMAGES / "frontier.png"
    command = ["maxaffine", "plan", "sin(x) + cos(y)", "--box", "x=-pi:pi,y=-pi:pi", "--figure", str(frontier_picture)]
    subprocess.run(command, check=True, env=environment(), capture_output=True)
    small(frontier_picture)


def stack_of(text: str, box: ma.Box) -> ma.Stack:
    """A formula as a stack, at a ten-thousandth of its largest value."""
    made = ma.compile(text, box, error=1e-4, relative=True, layers="auto")
    assert isinstance(made, ma.Stack)
    return made


def small(path: Path) -> None:
    """Colours in steps of eight, hardly visible, at half the size: a README should load quickly."""
    import numpy as np
    from PIL import Image

    exact = np.asarray(Image.open(path).convert("RGB")).astype(int)
    coarse = np.where(exact >= 252, 255, np.clip((exact + 4) // 8 * 8, 0, 255))
    Image.fromarray(coarse.astype(np.uint8)).save(path, optimize=True)


def tokens() -> str:
    """Tokens of the paper's lookup (built where it is affordable, else planned) and of spectral heads (built and proved)."""
    lines = ["| error | lookup, tokens | spectral head, tokens | its proved bound | observed |", "|---|---|---|---|---|"]
    command = ["maxaffine", "plan", "sin(x) + cos(y)", "--box", "x=-pi:pi,y=-pi:pi", "--json"]
    command += ["--error", ",".join(map(str, ERRORS))]
    plans = json.loads(subprocess.run(command, check=True, env=environment(), capture_output=True).stdout)["plans"]
    for error in ERRORS:
        planned = min(row["tokens"] for row in plans if row["method"] == "lookup" and row["error"] == error)
        if planned <= 1_000_000:
            built = ma.compile("sin(x) + cos(y)", SQUARE, error=error, method="lookup")
            lookup = f"{built.tokens:,} (bound {built.bound:.3g})"
        else:
            lookup = f"{planned:.3g} (planned, not built)"
        head = ma.compile("sin(x) + cos(y)", SQUARE, error=error, method="spectral")
        assert head.bound is not None and head.certificate.kind == "proved"
        lines.append(f"| {error:.0e} | {lookup} | {head.tokens} | {head.bound:.2e} | {head.observed.error:.2e} |")
    return "\n".join(lines)


def modules() -> str:
    """Every module with the first sentence of its docstring."""
    package = ROOT / "src" / "maxaffine"
    lines = ["| module | idea |", "|---|---|"]
    for path in sorted(package.rglob("*.py"), key=lambda path: (len(path.parts) > len(package.parts) + 1, str(path))):
        if path.name in ("__init__.py", "__main__.py", "_version.py"):
            continue
        idea = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")[0]
        told = " ".join(idea.split()).replace("|", r"\|").replace("](", r"]\(")  # no cells and no links
        lines.append(f"| `{path.relative_to(package)}` | {told} |")
    return "\n".join(lines)


def heads() -> str:
    """Every head with the targets it serves, from the registry."""
    lines = ["| method | serves | what it is | an example |", "|---|---|---|---|"]
    for head in HEADS.values():
        example = f"`{head.examples[0].target}`" if head.examples else ""
        lines.append(f"| `{head.name}` | {head.serves} | {head.summary} | {example} |")
    return "\n".join(lines)


def routes() -> str:
    """Every way to run a layer with what is proved of it, for a kink and for a smooth function."""
    layers = {
        "abs(sin(7x)), 26 tokens": ma.compile("abs(sin(7*x))", ma.Box(x=(-1, 1)), error=1e-6),
        "the same, `literal=True`": ma.compile("abs(sin(7*x))", ma.Box(x=(-1, 1)), error=1e-6, literal=True),
        "sin(x) + cos(y), 11 tokens": ma.compile("sin(x) + cos(y)", SQUARE, error=1e-6),
    }
    lines = [f"| route | how it is taken | outside the box | {' | '.join(layers)} |", "|---|---|---|" + "---|" * len(layers)]
    outside = {RAISES: "an error, or `outside=\"clamp\"`", CLAMPS: "clamped", UNSAID: "not covered"}
    for route in ROUTES.values():
        for device in route.devices:
            for dtype in route.dtypes:
                said = [layer.statement(route.name, None if dtype == "own" else dtype, device) for layer in layers.values()]
                if all(one.why.startswith("it cannot run") for one in said):
                    continue
                name = route.name + ("" if dtype == "own" or len(route.dtypes) == 1 else f", {dtype}")
                name += "" if device == "cpu" else f", {device}"
                cells = ["not covered" if one.bound is None else f"{one.bound:.3g}" for one in said]
                lines.append(f"| {name} | `{route.how}` | {outside[route.outside]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def stack_routes() -> str:
    """Every way to run a stack with what is proved of it: a cut of small weights, and one of large ones."""
    gravity = dict.fromkeys(("G", "m1", "m2", "x2", "y2", "z2"), (1, 2)) | dict.fromkeys(("x1", "y1", "z1"), (3, 4))
    attraction = ma.compile("G*m1*m2/((x2-x1)**2+(y2-y1)**2+(z2-z1)**2)", gravity, error=1e-4, layers="auto")
    stacks = {"gravity, error 1e-4": attraction, "borehole, error 1e-4 of its largest value": stack_of(BOREHOLE, BOREHOLE_BOX)}
    lines = [f"| route | how it is taken | {' | '.join(stacks)} |", "|---|---|" + "---|" * len(stacks)]
    for said in zip(*(stack.statements() for stack in stacks.values()), strict=True):
        name = f"{said[0].route}, {said[0].dtype}" + ("" if said[0].device == "cpu" else f", {said[0].device}")
        cells = ["not covered" if one.bound is None else f"{one.bound:.3g}" for one in said]
        lines.append(f"| {name} | `{HOW[said[0].route]}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def replaced(text: str, mark: str, make: Callable[[], str]) -> str:
    """The text with what stands between the marks made anew, where it has the marks."""
    if f"<!-- {mark} -->" not in text:
        return text
    made = f"<!-- {mark} -->\n{make()}\n<!-- /{mark} -->"
    return re.sub(rf"<!-- {mark} -->.*?<!-- /{mark} -->", lambda _: made, text, flags=re.DOTALL)


def environment() -> dict[str, str]:
    """The environment of this interpreter's commands, without colours and with a fixed width."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "COLUMNS": "120", "NO_COLOR": "1"}


def run(command: str, folder: Path) -> str:
    """What a command prints, standard error included."""
    where = ROOT if command.startswith("make ") else folder
    quiet = command.replace("make ", "make --no-print-directory ", 1) if where is ROOT else command
    done = subprocess.run(["sh", "-c", f"{quiet} 2>&1"], cwd=where, env=environment(), capture_output=True, text=True)
    code = "" if done.returncode == 0 else f"(exit code {done.returncode})\n"
    return done.stdout.rstrip("\n") + "\n" + code


def consoles(text: str) -> str:
    """The page with every console block run again."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.joinpath("points.csv").write_text("x,y\n0.5,1.5\n-1,2\n")

        def again(match: re.Match[str]) -> str:
            if "$ make test" in match[1]:
                return match[0]
            commands = [line[2:] for line in match[1].splitlines() if line.startswith("$ ")]
            return "```console\n" + "".join(f"$ {command}\n{run(command, folder)}" for command in commands) + "```"

        return BLOCK.sub(again, text)


TABLES = {"tokens": tokens, "modules": modules, "heads": heads, "routes": routes, "stack-routes": stack_routes}


def main() -> None:
    """Everything, page by page."""
    IMAGES.mkdir(exist_ok=True)
    pictures()
    for page in PAGES:
        text = consoles(page.read_text())
        for mark, make in TABLES.items():
            text = replaced(text, mark, make)
        page.write_text(text)
        print(f"wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
