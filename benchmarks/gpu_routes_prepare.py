"""Layers, points and true values for a machine where nothing of the proofs can run: what benchmarks/gpu_routes.py judges there.

    python benchmarks/gpu_routes_prepare.py DIR [--layers 3] [--seed 0] [--heads "axis;sums"]

Points are those of the walk: kinks, hand-overs, ends, faces, the worst points that the routes of this machine have.  The target
is enclosed at each, by intervals of float64 and, where those are wide beside the bound, by balls.
"""

import argparse
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flint
import numpy as np

from maxaffine.attack.domain import domain_of
from maxaffine.attack.layers import chosen
from maxaffine.attack.routes import random_layers
from maxaffine.attack.search import NOISE, Effort, cells_of, drawn, narrowed, running, worst
from maxaffine.attack.starts import start_points
from maxaffine.attack.ways import ways
from maxaffine.compiled import Compiled
from maxaffine.compiler import compile
from maxaffine.core import balls
from maxaffine.core.arrays import Array
from maxaffine.core.container import container_bytes
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.progress import Progress, bar, silent
from maxaffine.core.rounding import compute_format
from maxaffine.layer.file import from_tensors
from maxaffine.proofs.routes import OPERATOR, TENSORS, narrow_tolerance
from maxaffine.runtime.gpu.choice import choose
from maxaffine.target.target import Target

POINTS, CELLS = 2000, 1200
SHARP = 1e-4  # of the bound, that an enclosure of the target may be wide
ROUTES = (*TENSORS, OPERATOR, "module", "literal module", "multihead")
CLIMBED = ("arrays", "tensors", "literal module")  # routes whose worst points here are looked at there
LOOK = Effort(starts=800, climbers=8, tries=4, rounds=12)


def prepare(
    folder: Path, heads: Sequence[str] | None = None, *, layers: int, seed: int, progress: Progress = silent
) -> dict[str, Any]:
    """Write `layers` layers per head and dtype; returns counts.  Interrupted, the folder has what was written so far."""
    names = chosen(heads)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise BadInput(f"{str(folder)!r} is not empty; name a new folder.")
    entries: list[dict[str, Any]] = []
    points = size = 0
    for place, name in enumerate(names):
        progress("preparing", place, len(names))
        for compiled, rng in random_layers(compile, name, layers, seed):
            data = _layer(compiled)
            found = _points(compiled, rng)
            if data is None or found is None:
                continue
            number = len(entries)
            held = io.BytesIO()
            np.savez_compressed(held, allow_pickle=False, **found)
            files = {f"{number:03d}.safetensors": data, f"{number:03d}.npz": held.getvalue()}
            for file, content in files.items():
                (folder / file).write_bytes(content)
                size += len(content)
            points += len(found["x"])
            entries.append(_entry(compiled, name, number, *files))
            (folder / "index.json").write_text(json.dumps({"seed": seed, "layers": entries}))
    pairs = sum(one["covered"] for entry in entries for one in entry["statements"])
    return {"layers": len(entries), "points": points, "bytes": size, "routes": pairs, "seed": seed}


def _entry(compiled: Compiled, head: str, number: int, file: str, points: str) -> dict[str, Any]:
    certificate = compiled.certificate
    kind = "entries" if certificate.scope.over == "entries" else "sup" if np.isinf(certificate.norm) else float(certificate.norm)
    own, found = compute_format(compiled.dtype).name, []
    for route in ROUTES:
        for dtype in ("float64", "float32") if route in (*TENSORS, OPERATOR) else (own,):
            found.append(compiled.statement(route, dtype, "cuda").to_json())
    return {
        "number": number, "head": head, "target": compiled.target.name or compiled.target.text or "callable",
        "dtype": compiled.dtype, "file": file, "points": points, "kind": kind, "output": list(compiled.target.output_shape),
        "reserve": compiled.reserve or 0.0, "narrow": narrow_tolerance(compiled), "statements": found,
    }  # fmt: skip


def _layer(compiled: Compiled) -> bytes | None:
    """The file; bfloat16 numbers as the float32 numbers they are, for machines whose NumPy has no bfloat16.

    None where a kernel would be another one for it.
    """
    if compiled.dtype != "bfloat16":
        return compiled.to_bytes()
    tensors, record = compiled._record()
    wide = {name: one if one.dtype == np.float64 else one.astype(np.float32) for name, one in tensors.items()}
    record = {**record, "layer": _widened(record["layer"])}
    other = from_tensors(wide, record["layer"])
    for dtype, tolerance in (("float32", narrow_tolerance(compiled)), ("float64", compiled.reserve or 0.0)):
        if _kernel(compiled.weights, dtype, tolerance) != _kernel(other, dtype, tolerance):
            return None
    return container_bytes(wide, record)


def _widened(record: Any) -> Any:
    """The record of a layer, parts of it included, with float32 for bfloat16."""
    if isinstance(record, dict):
        return {name: _widened(one) for name, one in record.items()}
    if isinstance(record, list):
        return [_widened(one) for one in record]
    return "float32" if isinstance(record, str) and record == "bfloat16" else record


def _kernel(layer: Any, dtype: str, tolerance: float) -> float | None:
    try:
        return choose(layer, dtype, tolerance)[2].bound
    except Refused:
        return None


def _points(compiled: Compiled, rng: np.random.Generator) -> dict[str, Array] | None:
    target, layer = compiled.target, compiled.weights
    volume = np.zeros(1)
    if compiled.certificate.scope.over == "entries":
        blocks = [(x, v.reshape(len(x), -1)) for x, v in target.data.blocks()]
        x, low = (np.concatenate([block[i] for block in blocks]) for i in (0, 1))
        keep = np.isfinite(low).all(axis=1)
        x, low = x[keep], low[keep]
        high = low
    elif np.isinf(compiled.certificate.norm):
        domain = domain_of(compiled.certificate.scope, target, layer)
        if domain is None:
            return None
        pool = start_points(layer, target, domain, rng, compiled.observed.at)
        found = []
        for way in ways(compiled, lambda route: route in CLIMBED):
            if way.statement.covered:
                worst_one = worst(way.build(), layer, target, domain, pool, rng, LOOK, narrow=way.narrow)
                found.append(np.array([worst_one.at]))
        some = pool[rng.choice(len(pool), min(POINTS, len(pool)), replace=False)]
        x = np.concatenate([*found, some])
        x = np.concatenate([x, narrowed(x, layer.low, layer.high)])
        x = x[[domain.surely(point) for point in x]]
        low, high = enclosed(target, x, SHARP * float(compiled.bound or 0.0))
        keep = np.isfinite(low).all(axis=1) & np.isfinite(high).all(axis=1)
        x, low, high = x[keep], low[keep], high[keep]
    else:
        cells = cells_of(running(layer), target, compiled.certificate.norm, rng, CELLS)
        x, volume = drawn(target, cells, rng, True)
        low = high = target.values(x).reshape(len(x), -1)
    if not len(x):
        return None
    narrow = (x.astype(np.float32).astype(np.float64) == x).all(axis=1)
    return {"x": x, "narrow": narrow, "low": low, "high": high, "volume": volume}


def enclosed(target: Target, x: Array, sharp: float) -> tuple[Array, Array]:
    """Bounds of f(x), (P, K) each; infinite where nothing finite encloses it."""
    if target.expression is None:
        values = target.values(x).reshape(len(x), -1)
        noise = NOISE * (1.0 + np.abs(values))
        return values - noise, values + noise
    with np.errstate(all="ignore"):
        found = target.enclose(x, x)
    low, high = (np.array(one, dtype=np.float64).reshape(len(x), -1) for one in (found.lo, found.hi))
    for i in np.flatnonzero(~(high - low <= sharp).all(axis=1)):
        for bits in (128, 512):
            with balls.precision(bits):
                for k, ball in enumerate(target.expression.enclose_ball([flint.acb(float(v)) for v in x[i]])):
                    if ball.is_finite():
                        ends = balls.bounds(ball.real)
                        low[i, k], high[i, k] = max(low[i, k], ends[0]), min(high[i, k], ends[1])
            if (high[i] - low[i] <= sharp).all():
                break
    return low, high


def main() -> None:
    """Prepare a folder and count what is in it."""
    parser = argparse.ArgumentParser(description="Write layers, points and true values into a new folder.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=3, help="per head and dtype")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--heads", help='some heads only, such as "axis;regions"')
    asked = parser.parse_args()
    if asked.layers < 1 or asked.seed < 0:
        parser.error(f"--layers (={asked.layers}) must be at least 1, --seed (={asked.seed}) not negative.")
    heads = asked.heads and [name.strip() for name in asked.heads.split(";")]
    with bar(enabled=sys.stderr.isatty()) as progress:
        found = prepare(asked.folder, heads, layers=asked.layers, seed=asked.seed, progress=progress)
    counts = f"{found['layers']} layers, {found['routes']:,} layer-route pairs, {found['points']:,} points"
    print(f"{counts}, {found['bytes'] / 2**20:.1f} MiB, seed {asked.seed}")


if __name__ == "__main__":
    main()
