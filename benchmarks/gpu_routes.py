"""Routes on a device, judged against what `benchmarks/gpu_routes_prepare.py DIR` wrote; needs NumPy, safetensors and torch.

    PYTHONPATH=src python benchmarks/gpu_routes.py DIR [--device cuda] [--only HEAD]

DIR has index.json and for every layer its file and points: x (P, D), whether float32 holds x, and the target between low and high
(P, K), which that script proved with balls.  Per layer and route one line of JSON, at the end a line with the counts.  Exit
code 1 where a point lies above a statement.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from maxaffine.core.arrays import Array
from maxaffine.core.container import read_container
from maxaffine.core.errors import MaxaffineError
from maxaffine.export.torch_module import to_multihead_attention, to_torch
from maxaffine.layer.file import from_tensors
from maxaffine.layer.layer import shaped
from maxaffine.layer.matrices import matrices
from maxaffine.runtime.torch_operator import operator
from maxaffine.runtime.torch_runtime import TorchLayer, tolerance

Run = Callable[[Array], Any]
Build = Callable[[], tuple[Run, str]]

WIDTHS = {"float64": torch.float64, "float32": torch.float32}
NUMBERS = 1 << 23  # that a literal module may hold at once: points times tokens times rows
SURE = 5.0  # standard errors taken off an estimate


class Points:
    """What is known of a target at points; `kind` is "sup", "entries", or p of L_p, whose points are drawn in cells."""

    def __init__(self, place: Path, kind: Any) -> None:
        with np.load(place) as held:
            self.x, self.narrow, self.low, self.high = (held[name] for name in ("x", "narrow", "low", "high"))
            self.volume = held["volume"]
        self.kind = kind

    def judge(self, run: Run, narrow: bool) -> tuple[float, list[float], int]:
        """The largest sure error of what runs, where, and over how many points."""
        chosen = slice(None) if not narrow or not isinstance(self.kind, str) else self.narrow
        x, low, high = self.x[chosen], self.low[chosen], self.high[chosen]
        if not len(x):
            return 0.0, [], 0
        out = np.asarray(run(x), dtype=np.float64).reshape(len(x), -1)
        with np.errstate(invalid="ignore"):
            apart = np.maximum(np.maximum(low - out, out - high), 0.0)
        away = np.where(np.isfinite(out), apart, np.inf).max(axis=1)
        if isinstance(self.kind, str):
            away = np.nextafter(away, 0.0)
            top = int(away.argmax())
            return float(away[top]), [float(v) for v in x[top]], len(x)
        draws = 2 if self.volume.ndim == 0 else len(x) // len(self.volume)
        powers = (away**self.kind).reshape(draws, -1)
        doubt = math.sqrt(float((self.volume**2 * powers.var(axis=0, ddof=1) / draws).sum()))
        least = max(0.0, float((self.volume * powers.mean(axis=0)).sum()) - SURE * doubt)
        return least ** (1.0 / self.kind), [], len(x)


def runs(entry: dict[str, Any], layer: Any, device: torch.device) -> Iterator[tuple[str, str, str, Build]]:
    """Route, variant, dtype of x, and how to build what runs (with a word on what it is), for every route of the device."""

    def tensors(dtype: str, gradient: bool, runtime: str | None) -> tuple[Run, str]:
        allowed = tolerance(layer, device, WIDTHS[dtype], entry["narrow"], entry["reserve"])
        made = TorchLayer(layer, device, WIDTHS[dtype], runtime, allowed)

        def run(x: Array) -> Any:
            given = torch.tensor(x, dtype=WIDTHS[dtype], device=device, requires_grad=gradient)
            return made(given).detach().double().cpu().numpy()

        return run, made.runtime

    def operators(dtype: str) -> tuple[Run, str]:
        made = operator(layer, entry["narrow"], entry["reserve"])

        def run(x: Array) -> Any:
            given = torch.tensor(x, dtype=WIDTHS[dtype], device=device)
            return torch.ops.maxaffine.layer(given, made.key, made.outputs).double().cpu().numpy()

        return run, made.on(torch.zeros(1, dtype=WIDTHS[dtype], device=device)).runtime

    def module(make: Callable[[], Any], dtype: str, gradient: bool = False, rows: int = 1) -> tuple[Run, str]:
        made = make().to(device)
        step = max(1, NUMBERS // (layer.tokens * rows)) if rows > 1 else 1 << 20

        def run(x: Array) -> Any:
            found = []
            for start in range(0, len(x), step):
                part = shaped(x[start : start + step], layer.inputs)
                given = [torch.tensor(one, dtype=WIDTHS[dtype], device=device, requires_grad=gradient) for one in part]
                with torch.set_grad_enabled(gradient):
                    found.append(made(*given).detach().double().cpu().numpy().reshape(len(given[0]), -1))
            return np.concatenate(found)

        return run, str(made.dtype).removeprefix("torch.")

    output = tuple(entry["output"])
    for dtype in ("float64", "float32"):
        yield "tensors", "", dtype, lambda d=dtype: tensors(d, False, None)  # type: ignore[misc]
        yield "tensors with gradients", "", dtype, lambda d=dtype: tensors(d, True, None)  # type: ignore[misc]
        yield "factorised tensors", "", dtype, lambda d=dtype: tensors(d, False, "factorised")  # type: ignore[misc]
        yield "kernel module", "", dtype, lambda d=dtype: operators(d)  # type: ignore[misc]

    def fast() -> Any:
        return to_torch(layer, output, None, False)

    def literal(kind: str) -> Any:
        return to_torch(layer, output, matrices(layer, kind), False)

    yield "module", "", "float64", lambda: module(fast, "float64")
    yield "module", "with gradients", "float64", lambda: module(fast, "float64", True)
    yield "module", "float32 x", "float32", lambda: module(fast, "float32")
    rows = layer.dimension + layer.d_out + 16
    for kind in ("self", "cross"):
        if len(layer.inputs) == 1 or kind == "cross":
            yield "literal module", kind, "float64", lambda k=kind: module(lambda: literal(k), "float64", rows=rows)  # type: ignore[misc]
    yield "multihead", "", "float64", lambda: module(lambda: to_multihead_attention(layer, output), "float64", rows=rows)


def said_of(entry: dict[str, Any], route: str, dtype: str) -> tuple[float | None, str, str]:
    """The bound of a route in the index, why it is or is not there, and its arithmetic."""
    by_dtype = route.endswith(("tensors", "with gradients", "kernel module"))
    for one in entry["statements"]:
        if one["route"] == route and (not by_dtype or one["dtype"] == dtype):
            return one["bound"], one["why"], one["dtype"]
    raise KeyError(route)


def judged(folder: Path, entry: dict[str, Any], device: torch.device) -> Iterator[dict[str, Any]]:
    """A record per way to run one layer."""
    tensors, record = read_container(folder / entry["file"])
    layer = from_tensors(tensors, record["layer"])
    points = Points(folder / entry["points"], entry["kind"])
    for route, variant, dtype, build in runs(entry, layer, device):
        bound, why, arithmetic = said_of(entry, route, dtype)
        found = {
            "layer": entry["number"], "head": entry["head"], "target": entry["target"], "dtype": entry["dtype"],
            "route": route, "variant": variant, "x": dtype, "arithmetic": arithmetic, "bound": bound, "why": why,
            "worst": 0.0, "ratio": 0.0, "at": [], "points": 0, "by": "", "violated": False,
        }  # fmt: skip
        if bound is not None:
            try:
                run, found["by"] = build()
                found["worst"], found["at"], found["points"] = points.judge(run, dtype == "float32")
            except MaxaffineError as refusal:
                found |= {"bound": None, "why": f"refused: {refusal}"}
            else:
                worst = found["worst"]
                found["ratio"] = 0.0 if worst == 0.0 else worst / bound if bound > 0.0 else None
                found["violated"] = not worst <= bound
        yield found


def main(arguments: list[str] | None = None) -> int:
    """Judge a folder."""
    parser = argparse.ArgumentParser(description="Judge prepared routes on a device.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", default="", help="heads whose name begins so")
    parser.add_argument("--quiet", action="store_true", help="violations and the last line alone")
    asked = parser.parse_args(arguments)
    index = json.loads((asked.folder / "index.json").read_text())
    device, begun = torch.device(asked.device), time.perf_counter()
    pairs: set[tuple[int, str, str]] = set()
    kernels: set[tuple[int, str]] = set()
    refused = points = variants = violations = layers = 0
    top, where = 0.0, ""
    for entry in index["layers"]:
        if not entry["head"].startswith(asked.only):
            continue
        layers += 1
        for one in judged(asked.folder, entry, device):
            if not asked.quiet or one["violated"]:
                print(json.dumps(one), flush=True)
            if one["bound"] is None or not one["points"]:
                refused += 1
                continue
            variants, points = variants + 1, points + one["points"]
            pairs.add((one["layer"], one["route"], one["arithmetic"]))
            if one["by"] in ("collapsed", "windowed"):
                kernels.add((one["layer"], one["x"]))
            violations += one["violated"]
            ratio = math.inf if one["ratio"] is None else one["ratio"]
            if ratio > top:
                top, where = ratio, f"{one['head']}, {one['dtype']}, {one['route']}, {one['target']}"
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(
        f"{len(pairs)} pairs, {points} points, worst ratio {top:.7f} ({where}), violations {violations}; {layers} layers, "
        f"{variants} variants, {len(kernels)} by kernels, {refused} not covered or refused; {name}, torch {torch.__version__}, "
        f"{time.perf_counter() - begun:.0f} s"
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
