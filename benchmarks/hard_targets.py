"""Hard targets through `auto`: kinks, jumps, singular edges, oblique and local features, at relative errors 1e-2, 1e-4, 1e-6.

    python benchmarks/hard_targets.py [--only TEXT ...] [--errors 1e-2,1e-4] [--limit SECONDS] [--workers N] [--page-only]

Expressions go through the command line, `maxaffine compile EXPR --relative --json`, one process per cell; callables through
Python in a process of their own.  Results are kept in benchmarks/results/hard_targets.json as they arrive, so a second run does
only what is missing; docs/hard-targets.md and docs/images/hard-targets.png are made from that file.  All targets live on
[-1, 1]^D; jumps are asked for outside a gap of 1e-6.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "hard_targets.json"
ERRORS = (1e-2, 1e-4, 1e-6)
NAMES = ("x", "y", "z")
GAP = 1e-6


@dataclass(frozen=True)
class Row:
    """A target: its name, its dimension, its expression (None for a callable), and a yardstick of tokens per error."""

    name: str
    dimension: int
    expression: str | None
    yardstick: tuple[int | None, int | None, int | None]
    gap: bool = False
    fresh: bool = False


PEAKS = (
    "3*(1-3*x)**2*exp(-(3*x)**2-(3*y+1)**2) - 10*(3*x/5-(3*x)**3-(3*y)**5)*exp(-(3*x)**2-(3*y)**2)"
    " - exp(-(3*x+1)**2-(3*y)**2)/3"
)
FRANKE = (
    "0.75*exp(-((9*(x+1)/2-2)**2+(9*(y+1)/2-2)**2)/4) + 0.75*exp(-(9*(x+1)/2+1)**2/49-(9*(y+1)/2+1)/10)"
    " + 0.5*exp(-((9*(x+1)/2-7)**2+(9*(y+1)/2-3)**2)/4) - 0.2*exp(-(9*(x+1)/2-4)**2-(9*(y+1)/2-7)**2)"
)
RELU_NET = (
    "0.8*max(0,0.9*x-0.7*y+0.2) - 0.6*max(0,-0.5*x+1.1*y-0.3) + 0.7*max(0,1.2*x+0.4*y-0.1)"
    " - 0.9*max(0,-0.8*x-0.6*y+0.4) + 0.5*max(0,0.3*x+0.9*y+0.5)"
)

ROWS = (
    Row("log(x+1.001)", 1, "log(x+1.001)", (26, 38, 57)),
    Row("exp(5x)", 1, "exp(5*x)", (8, 14, 21)),
    Row("abs(sin 7x)", 1, "abs(sin(7*x))", (16, 22, 28)),
    Row("1/(1.02-x)", 1, "1/(1.02-x)", (16, 31, 42)),
    Row("airy(-8(x+1)) callable", 1, None, (33, 62, 82)),
    Row("cbrt(x-.2)", 1, "cbrt(x-.2)", (52, 153, None)),
    Row("atan(50x)", 1, "atan(50*x)", (38, 52, 66)),
    Row("x^2 sin(1/(x+1.05))", 1, "x**2*sin(1/(x+1.05))", (36, 76, 101)),
    Row("j0(20x) callable", 1, None, (32, 46, 68)),
    Row("relu(x+.37)^2", 1, "max(0,x+.37)**2", (3, 5, 6)),
    Row("bump of width .01", 1, "exp(-((x-.3)/.01)**2)", (18, 34, 54)),
    Row("a constant", 1, "0.7+0*x", (2, 2, 2)),
    Row("Runge", 1, "1/(1+25*x**2)", (7, 16, 22)),
    Row("abs(x-.1) callable", 1, None, (2, 2, 2)),
    Row("sign(x-.1)exp(x)+abs(x+.5)", 1, "sign(x-.1)*exp(x)+abs(x+.5)", (6, 9, 13), gap=True),
    Row("max(sin 3x, cos 5x)", 1, "max(sin(3*x),cos(5*x))", (10, 17, 24)),
    Row("floor(2.9x) callable", 1, None, (6, 6, 6)),
    Row("sqrt(x+1)", 1, "sqrt(x+1)", (21, 58, 111)),
    Row("peaks", 2, PEAKS, (144, 396, 520)),
    Row("exp(xy)cos 3x", 2, "exp(x*y)*cos(3*x)", (25, 49, 121)),
    Row("1/(2.2-x-y)", 2, "1/(2.2-x-y)", (12, 23, 30)),
    Row("tanh(5(x+y))", 2, "tanh(5*(x+y))", (12, 24, 36)),
    Row("sin 10x cos 5y", 2, "sin(10*x)*cos(5*y)", (242, 576, 648)),
    Row("sqrt(.01+r^2)", 2, "sqrt(.01+x**2+y**2)", (81, 500, 1584)),
    Row("max(x,y)", 2, "max(x,y)", (2, 2, 2)),
    Row("Himmelblau", 2, "((5*x)**2+5*y-11)**2+(5*x+(5*y)**2-7)**2", (16, 49, 144)),
    Row("Franke", 2, FRANKE, (81, 432, 884)),
    Row("bump of width .02", 2, "exp(-((x-.3)**2+(y+.2)**2)/.0004)", (325, 980, 2235)),
    Row("atan(30(r^2-.5))", 2, "atan(30*(x**2+y**2-.5))", (4664, None, None)),
    Row("abs(x+2y-.3)cos x", 2, "abs(x+2*y-.3)*cos(x)", (48, 128, 220)),
    Row("abs(x+2y-.3)cos x callable", 2, None, (72, 200, 288)),
    Row("ReLU net, 5 units", 2, RELU_NET, (14, 14, 14)),
    Row("sqrt(.01+(x+2y)^2)", 2, "sqrt(.01+(x+2*y)**2)", (12, 28, 50)),
    Row("tanh(3(x+y))+sin(2(x-y))", 2, "tanh(3*(x+y))+sin(2*(x-y))", (100, 168, 324)),
    Row("max(sin 3x, y)", 2, "max(sin(3*x),y)", (1412, None, None)),
    Row("(abs x+abs y)exp(xy)", 2, "(abs(x)+abs(y))*exp(x*y)", (168, 352, 768)),
    Row("r (cone)", 2, "sqrt(x**2+y**2)", (288, 1316, None)),
    Row("exp(-40r^2)", 3, "exp(-40*(x**2+y**2+z**2))", (729, 4913, None)),
    Row("max(x,y,z)", 3, "max(x,y,z)", (6, 6, 6)),
    Row("tanh(4(x+y-z))", 3, "tanh(4*(x+y-z))", (16, 26, 50)),
    Row("sin(x+2y)cos z", 3, "sin(x+2*y)*cos(z)", (64, 125, 1080)),
    Row("abs(x+y+z-.2)exp(-x^2)", 3, "abs(x+y+z-.2)*exp(-x**2)", (192, 1152, 2200)),
    Row("1/(1+r^2+xyz)", 3, "1/(1+x**2+y**2+z**2+x*y*z)", (64, 729, 3375)),
    Row("abs(x^2-.3)", 1, "abs(x**2-.3)", (6, 9, 13), fresh=True),
    Row("exp(-abs(5x-1))", 1, "exp(-abs(5*x-1))", (10, 22, 28), fresh=True),
    Row("max(0,sin 9x)^2", 1, "max(0,sin(9*x))**2", (18, 21, 33), fresh=True),
    Row("tan(1.4x)", 1, "sin(1.4*x)/cos(1.4*x)", (16, 32, 46), fresh=True),
    Row("sign(sin 6x)", 1, "sign(sin(6*x))", (4, 4, 4), gap=True, fresh=True),
    Row("cbrt(x+1)", 1, "cbrt(x+1)", (32, 76, None), fresh=True),
    Row("abs(tanh 8(x-.3)) callable", 1, None, (11, 30, 39), fresh=True),
    Row("min(x^2,.3) callable", 1, None, (4, 5, 7), fresh=True),
    Row("where(x<.25,sin 5x,cos 2x) callable", 1, None, (7, 11, 16), fresh=True),
    Row("cos(40x^2)", 1, "cos(40*x**2)", (104, 162, 226), fresh=True),
    Row("max(abs x,abs y,abs z)", 3, "max(abs(x),abs(y),abs(z))", (48, 48, 48), fresh=True),
    Row("exp(xyz)", 3, "exp(x*y*z)", (216, 1331, None), fresh=True),
    Row("tanh(3x)sin(2y)z", 3, "tanh(3*x)*sin(2*y)*z", (64, 192, 480), fresh=True),
    Row("sin(8xy)", 2, "sin(8*x*y)", (256, 576, 2304), fresh=True),
    Row("exp(-abs(x-y))", 2, "exp(-abs(x-y))", (4, 8, 12), fresh=True),
    Row("abs(xy)", 2, "abs(x*y)", (288, 100, 144), fresh=True),
    Row("1/(1+20(x-.5y)^2)", 2, "1/(1+20*(x-.5*y)**2)", (11, 26, 38), fresh=True),
    Row("max(r^2,.5)", 2, "max(x**2+y**2,.5)", (912, None, None), fresh=True),
    Row("relu(x+y-.3)sin 3y callable", 2, None, (200, 512, 800), fresh=True),
    Row("tanh(20(x-.2))y", 2, "tanh(20*(x-.2))*y", (96, 312, 688), fresh=True),
    Row("Rosenbrock", 2, "((1-2*x)**2+100*(2*y-4*x**2)**2)/3609", (28, 36, 64), fresh=True),
    Row("exp(-50r^2)+x/2", 2, "exp(-50*(x**2+y**2))+.5*x", (227, 881, 2066), fresh=True),
    Row("sqrt(1.05-x)cos y", 2, "sqrt(1.05-x)*cos(y)", (25, 254, 480), fresh=True),
    Row("sign(x-.3y)(1+y^2)", 2, "sign(x-.3*y)*(1+y**2)", (20, 36, 44), gap=True, fresh=True),
)  # fmt: skip

BEYOND = tuple(
    Row(name, dimension, expression, (None, None, None))
    for name, dimension, expression in (
        ("abs(sin 7x) exp y", 2, "abs(sin(7*x))*exp(y)"),
        ("abs(sin 7x) abs(cos 5y)", 2, "abs(sin(7*x))*abs(cos(5*y))"),
        ("exp(-abs x-abs y)", 2, "exp(-abs(x)-abs(y))"),
        ("sqrt(x+1) sqrt(y+1)", 2, "sqrt((x+1)*(y+1))"),
        ("(x+1)^.3 (y+1)^.7", 2, "(x+1)**.3*(y+1)**.7"),
        ("(x+y) abs(x-y)", 2, "(x+y)*abs(x-y)"),
        ("abs(sin 7x) exp y+cos x", 2, "abs(sin(7*x))*exp(y)+cos(x)"),
        ("sqrt(x+1) sin y+xy+x^2", 2, "sqrt(x+1)*sin(y)+x*y+x**2"),
        ("abs x y+x abs y", 2, "abs(x)*y+x*abs(y)"),
        ("abs x abs(sin 3y) exp z", 3, "abs(x)*abs(sin(3*y))*exp(z)"),
        ("sqrt(1-x^2)", 1, "sqrt(1-x**2)"),
        ("acos x", 1, "acos(x)"),
    )
)  # products with kinks and singular ends, and sums of them; roots whose argument is no straight line


def callables() -> dict[str, Any]:
    """The targets that are Python functions (B, D) -> (B,)."""
    from scipy import special

    return {
        "airy(-8(x+1)) callable": lambda x: special.airy(-8 * (x[:, 0] + 1))[0],
        "j0(20x) callable": lambda x: special.j0(20 * x[:, 0]),
        "abs(x-.1) callable": lambda x: np.abs(x[:, 0] - 0.1),
        "floor(2.9x) callable": lambda x: np.floor(2.9 * x[:, 0]),
        "abs(x+2y-.3)cos x callable": lambda x: np.abs(x[:, 0] + 2 * x[:, 1] - 0.3) * np.cos(x[:, 0]),
        "abs(tanh 8(x-.3)) callable": lambda x: np.abs(np.tanh(8 * (x[:, 0] - 0.3))),
        "min(x^2,.3) callable": lambda x: np.minimum(x[:, 0] ** 2, 0.3),
        "where(x<.25,sin 5x,cos 2x) callable": lambda x: np.where(x[:, 0] < 0.25, np.sin(5 * x[:, 0]), np.cos(2 * x[:, 0])),
        "relu(x+y-.3)sin 3y callable": lambda x: np.maximum(x[:, 0] + x[:, 1] - 0.3, 0) * np.sin(3 * x[:, 1]),
    }


def compile_callable(name: str, error: float) -> dict[str, Any]:
    """One callable in this process: the object that `--json` prints."""
    import maxaffine as ma

    D = next(row.dimension for row in ROWS if row.name == name)
    gap = GAP if name.startswith(("floor", "where")) else None
    made = ma.compile(callables()[name], ma.Box([-1.0] * D, [1.0] * D), error=error, relative=True, gap=gap)
    return made.to_json()


def cell(row: Row, error: float, limit: float) -> dict[str, Any]:
    """One target at one error in a process of its own."""
    if row.expression is None:
        command = [sys.executable, __file__, "--callable", row.name, "--errors", repr(error)]
    else:
        box = ",".join(f"{name}=-1:1" for name in NAMES[: row.dimension])
        command = [sys.executable, "-m", "maxaffine", "compile", row.expression, "--box", box, "--error", repr(error)]
        command += ["--relative", "--json", *(["--gap", repr(GAP)] if row.gap else [])]
    begun = time.perf_counter()
    base: dict[str, Any] = {"name": row.name, "error": error}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return {**base, "kind": "refused", "reason": f"stopped after {limit:g} s", "seconds": limit}
    base["seconds"] = time.perf_counter() - begun
    if done.returncode != 0:
        return {**base, "kind": "refused", "reason": _said(done.stderr)}
    made = json.loads(done.stdout)
    keep = ("method", "argument", "layout", "tokens", "bound", "kind", "observed", "scope")
    return {**base, **{key: made.get(key) for key in keep}, "asked": made["error"]}


def _said(stderr: str) -> str:
    """The sentence of a refusal; what was tried follows it, a line each, and progress may stand before it."""
    lines = stderr.strip().splitlines()
    return next((line for line in lines if line.startswith("maxaffine:")), lines[-1] if lines else "?")


def load() -> dict[str, dict[str, Any]]:
    """The cells that are known."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def main() -> None:
    """Do what is missing, then write the page and the figure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--errors", default=",".join(f"{e:g}" for e in ERRORS))
    parser.add_argument("--limit", type=float, default=180.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="measure cells that are known already")
    parser.add_argument("--page-only", action="store_true")
    parser.add_argument("--callable", default=None, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    errors = [float(text) for text in asked.errors.split(",")]
    if asked.callable is not None:
        try:
            print(json.dumps(compile_callable(asked.callable, errors[0])))
        except ValueError as refusal:
            print(refusal, file=sys.stderr)
            raise SystemExit(2) from None
        return
    known = load()
    wanted = [row for row in (*ROWS, *BEYOND) if not asked.only or any(text in row.name for text in asked.only)]
    todo = [(row, e) for row in wanted for e in errors if asked.again or f"{row.name} @ {e:g}" not in known]
    if not asked.page_only:
        with ThreadPoolExecutor(asked.workers) as pool:
            for made in pool.map(lambda job: cell(*job, asked.limit), todo):
                known[f"{made['name']} @ {made['error']:g}"] = made
                RESULTS.parent.mkdir(exist_ok=True)
                RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
                what = made.get("reason") or f"{made['method']} {made['tokens']} tokens, bound {made['bound']}, {made['kind']}"
                print(f"{made['name']} @ {made['error']:g}: {what[:200]} ({made['seconds']:.1f} s)", flush=True)
    from hard_targets_page import draw, page

    (ROOT / "docs" / "hard-targets.md").write_text(page(ROWS, BEYOND, ERRORS, known))
    draw(ROWS, ERRORS, known, ROOT / "docs" / "images" / "hard-targets.png")


if __name__ == "__main__":
    main()
