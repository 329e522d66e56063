"""The gate: about sixty targets over all heads, dtypes and norms, with what compiling them gave when it was recorded.

    python benchmarks/gate.py            compare with benchmarks/results/gate.json; exit code 1 where something moved
    python benchmarks/gate.py --write    record anew; with --only those targets, the others stay as they are

A change that only moves code keeps every SHA-256.  A change of an argument keeps verdicts and tokens, and bounds within 1.001.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import maxaffine as ma

RECORD = Path(__file__).parent / "results" / "gate.json"
SLACK = 1.001  # by which a bound may grow


@dataclass(frozen=True)
class Ask:
    """A target with its box and the other arguments of `compile`."""

    target: Any
    box: Any = None
    error: float | None = 1e-3
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The request in words: the key of the record."""
        what = self.target if isinstance(self.target, str) else getattr(self.target, "__name__", type(self.target).__name__)
        said = [str(what), *(f"{key}={value}" for key, value in sorted(self.options.items()) if np.isscalar(value))]
        return ", ".join([*said, "" if self.error is None else f"{self.error:g}"]).rstrip(", ")


X = {"x": (-1, 1)}
XY = {"x": (-1, 1), "y": (-1, 1)}
XYZ = {"x": (-1, 1), "y": (-1, 1), "z": (-1, 1)}


def wave(x: Any) -> Any:
    """A smooth callable of one variable."""
    return np.sin(3.0 * x[:, 0])


def folded(x: Any) -> Any:
    """A callable of two variables with a kink along a line."""
    return np.abs(x[:, 0] + 2.0 * x[:, 1] - 0.3) * np.cos(x[:, 0])


def summary(x: Any) -> Any:
    """The largest and the mean entry of a sequence, as (B, 1, 2)."""
    return np.stack([x.max(axis=(1, 2)), x.mean(axis=(1, 2))], axis=1)[:, None, :]


def _table(rows: int = 12, columns: int = 9) -> ma.Table:
    a, b = np.linspace(0, 1, rows), np.linspace(-1, 1, columns)
    return ma.Table([a, b], np.sin(2.0 * a)[:, None] * np.cos(1.5 * b))


def _samples() -> ma.Samples:
    points = np.random.default_rng(3).uniform(-1, 1, (60, 2))
    return ma.Samples(points, np.sin(points[:, 0]) + points[:, 1])


def _ring() -> Any:
    t = np.linspace(0.0, 2.0 * np.pi, 40)
    return np.c_[np.cos(t), np.sin(t)]


def _cells() -> ma.MaxAffine:
    return ma.MaxAffine.from_power_diagram(np.random.default_rng(5).uniform(-1, 1, (16, 2)))


def asks() -> list[Ask]:
    """The targets of the gate."""
    pi = float(np.pi)
    return [
        # smooth: spectral heads
        Ask("sin(x) + cos(y)", {"x": (-pi, pi), "y": (-pi, pi)}, 1e-6),
        Ask("sin(x) + cos(y)", {"x": (-pi, pi), "y": (-pi, pi)}, 1e-10),
        Ask("sin(x) + cos(y)", {"x": (-pi, pi), "y": (-pi, pi)}, 1e-3, {"dtype": "float32"}),
        Ask("sin(x) + cos(y)", {"x": (-pi, pi), "y": (-pi, pi)}, 0.2, {"dtype": "bfloat16"}),
        Ask("exp(x*y)", XY, 1e-4),
        Ask("1/(1.5+x)", X, 1e-6),
        Ask("exp(-x**2)*cos(y)*(1+z/3)", XYZ, 1e-4),
        Ask("tanh(x+y)+sin(x-y)", XY, 1e-4),
        Ask("sin(3*x), cos(2*x)", X, 1e-4),
        Ask("exp(x)", X, 1e-3, {"literal": True}),
        Ask(wave, X, 1e-4, {"derivatives": ma.Derivatives(9, 3.0**9)}),
        # one direction: kinks, jumps, singular ends
        Ask("abs(sin(7*x))", X, 1e-4),
        Ask("abs(sin(7*x))", X, 1e-9),
        Ask("abs(sin(7*x))", X, 1e-3, {"dtype": "float32"}),
        Ask("sqrt(x+1)", X, 1e-2),
        Ask("cbrt(x-.2)", X, 1e-1),
        Ask("exp(-abs(3*(x+y)))+y", XY, 1e-3),
        Ask("sign(x-.3)*exp(x)", X, 1e-3, {"gap": 1e-3}),
        Ask("sign(x-.3)*exp(x)", X, 1e-2, {"norm": 1.0}),
        Ask("floor(2.5*x)", X, 1e-2, {"norm": 2.0}),
        Ask("abs(x-.3)", X, 1e-3, {"literal": True}),
        # piecewise affine
        Ask("abs(x) + max(x, y, .5)", XY, 1e-6),
        Ask("relu(x-.2) - 2*relu(y+x)", XY, 1e-3, {"dtype": "float32"}),
        Ask("max(x, y) + min(x-y, z)", XYZ, 1e-3),
        Ask("abs(x-.25)", X, 0.1, {"dtype": "bfloat16"}),
        # sums
        Ask("abs(sin(5*x)) + cos(y)**2", XY, 1e-3),
        Ask("abs(x-.2) + exp(y) + x*y", XY, 1e-4),
        Ask("abs(sin(3*x)) + abs(cos(2*y))", XY, 1e-3, {"dtype": "float32"}),
        # planes
        Ask("abs(x+2*y-.3)*cos(x)", XY, 1e-3),
        Ask("relu(x+y-.3)*sin(3*y)", XY, 1e-2, {"dtype": "float32"}),
        Ask("sign(x+y-.1)*cos(x)", XY, 1e-3, {"gap": 1e-2, "method": "regions"}),
        Ask("sign(x+y-.1)*cos(x)", XY, 3e-2, {"norm": 1.0, "method": "regions"}),
        Ask(folded, XY, 1e-2),
        # curves
        Ask("max(x**2+y**2, .5)", XY, 3e-2, {"method": "curved"}),
        Ask("abs(x**2+y**2-.5)", XY, 5e-2, {"method": "curved", "dtype": "float32"}),
        Ask("max(sin(3*x), y)", XY, 1e-2, {"method": "curved"}),
        Ask("abs(y-cos(2*x))", XY, 1e-3, {"method": "curved"}),
        # level sets
        Ask("where(x**2+y**2<.5, 1, 0)", XY, 0.2, {"norm": 1.0, "method": "level"}),
        Ask("sign(.4-x**2-y**2)", XY, 0.5, {"norm": 2.0, "method": "level"}),
        # several outputs
        Ask("abs(x), sin(y)", XY, 1e-4),
        Ask("sin(x) + cos(y), sin(x) - cos(y)", XY, 1e-6),
        Ask("abs(x) + cos(y), abs(x) - cos(y)", XY, 1e-3, {"dtype": "float32"}),
        Ask("max(x1, x2) + cos(x1); cos(x1) - max(x1, x2)", ma.Box.sequence(d=1, n=2), 1e-6),
        # trees
        Ask("sqrt(.1+x**2+y**2)", XY, 3e-2, {"method": "tree"}),
        Ask("exp(-20*((x-.3)**2+(y+.2)**2))", XY, 5e-2, {"method": "tree"}),
        Ask("tanh(4*(x-y**2))", XY, 1e-1, {"method": "tree", "dtype": "float32"}),
        # products
        Ask("abs(sin(7*x))*exp(y)", XY, 1e-3),
        Ask("sqrt(x+1)*sqrt(y+1)", XY, 1e-1),
        Ask("abs(x-.3)*cos(y)*exp(z/3)", XYZ, 1e-2),
        Ask("abs(x-.2)*cos(y) + x", XY, 1e-2, {"dtype": "float32"}),
        # lookups
        Ask("sin(x) + cos(y)", {"x": (-1, 1), "y": (-1, 1)}, 0.3, {"method": "lookup"}),
        Ask("sin(3*x)", X, 0.05, {"method": "lookup", "dtype": "float32"}),
        Ask("sqrt(x)", {"x": (0, 1)}, 0.1, {"method": "lookup"}),
        Ask("sign(x-.3)+x", X, 0.3, {"method": "lookup", "norm": 1.0}),
        Ask("x + .5*y", XY, 2.0, {"method": "lookup", "keys": _cells()}),
        Ask("sin(x) + y/2", {"x": (-2, 2), "y": (-2, 2)}, 0.5, {"method": "lookup", "keys": _ring()}),
        Ask("x + 5", X, 2.0),
        Ask(summary, ma.Box.sequence(d=2, n=2, low=-1.0, high=1.0), 0.9, {"method": "lookup", "lipschitz": (1, 1, 1, 1)}),
        Ask(wave, X, 1e-2),
        # entries
        Ask(_table(), None, 1e-3),
        Ask(_table(), None, 1e-2, {"dtype": "float32"}),
        Ask(_table(5, 4), None, None, {"method": "nearest"}),
        Ask(_samples(), None, 1e-2),
        Ask(_samples(), None, None, {"method": "nearest"}),
    ]


def measure(ask: Ask) -> dict[str, Any]:
    """What compiling gives: tokens, both bounds, the SHA-256 of weights and of the file, seconds; or the kind of refusal."""
    begun = time.perf_counter()
    try:
        # callables stay black boxes
        options = {"trace": False} | ask.options | ({} if ask.error is None else {"error": ask.error})
        made = ma.compile(ask.target, ask.box, **options)
    except ma.Refused as refusal:
        return {"verdict": "refused", "why": str(refusal)[:200], "seconds": round(time.perf_counter() - begun, 3)}
    seconds = time.perf_counter() - begun
    tensors, _ = made._record()
    weights = hashlib.sha256()
    for key in sorted(tensors):
        weights.update(key.encode() + np.ascontiguousarray(tensors[key]).tobytes())
    known = made.target.expression is not None or made.target.entries is not None
    verdict = made.check() if known and made.certificate.kind == "proved" else None
    return {
        "verdict": made.certificate.kind,
        "method": made.method,
        "tokens": made.tokens,
        "bound": None if made.bound is None else float(made.bound),
        "checked": None if verdict is None else verdict.bound,
        "passed": None if verdict is None else verdict.passed,
        "observed": made.observed.error,
        "weights": weights.hexdigest(),
        "file": hashlib.sha256(made.to_bytes()).hexdigest(),
        "seconds": round(seconds, 3),
    }


def moved(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What is worse now than it was: another verdict or method, more tokens, a bound larger by more than a thousandth."""
    found = [key for key in ("verdict", "method", "passed") if before.get(key) != now.get(key)]
    if (now.get("tokens") or 0) > (before.get("tokens") or 0):
        found.append("tokens")
    for key in ("bound", "checked"):
        old, new = before.get(key), now.get(key)
        if (old is None) != (new is None) or (old is not None and new > old * SLACK):
            found.append(key)
    return [f"{key}: {before.get(key)} -> {now.get(key)}" for key in found]


def compare(chosen: Iterable[Ask], recorded: dict[str, Any]) -> tuple[int, int, list[str]]:
    """Equal files, equal weights, and complaints."""
    files = weights = 0
    complaints = []
    for ask in chosen:
        now, before = measure(ask), recorded.get(ask.name)
        if before is None:
            complaints.append(f"{ask.name}: not recorded")
            continue
        files += now.get("file") == before.get("file")
        weights += now.get("weights") == before.get("weights")
        complaints += [f"{ask.name}: {one}" for one in moved(before, now)]
        print(f"{now['seconds']:7.2f} s  {'=' if now.get('file') == before.get('file') else '~'}  {ask.name}", flush=True)
    return files, weights, complaints


def main() -> int:
    """Compare with the record, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default="", help="names that contain this text")
    given = parser.parse_args()
    chosen = [ask for ask in asks() if given.only in ask.name]
    if given.write:
        made = json.loads(RECORD.read_text()) if given.only and RECORD.exists() else {}
        for ask in chosen:
            made[ask.name] = measure(ask)
            shown = ("verdict", "method", "tokens", "bound", "seconds")
            print(ask.name, {key: made[ask.name].get(key) for key in shown}, flush=True)
        RECORD.write_text(json.dumps(made, indent=1) + "\n")
        return 0
    files, weights, complaints = compare(chosen, json.loads(RECORD.read_text()))
    print(f"{len(chosen)} targets: {files} files and {weights} sets of weights equal to the bit, {len(complaints)} complaints")
    print("\n".join(complaints))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
