"""One work unit, executed wherever an executor puts it: in this process, in another, on another machine."""

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.errors import BadInput
from maxaffine.core.records import plain
from maxaffine.lab import machine
from maxaffine.lab.data import DataSource
from maxaffine.lab.experiment import Context
from maxaffine.lab.registry import find, home_of

Listener = Callable[[str, str, float], None]  # unit, metric, value


@dataclass(frozen=True)
class Task:
    """What a worker needs to know; everything in it can be pickled."""

    experiment: str
    unit: dict[str, Any]
    parameters: dict[str, Any]
    device: str
    data: DataSource | None
    folder: str


@dataclass(frozen=True)
class Outcome:
    """What comes back."""

    values: dict[str, Any]
    tensors: dict[str, NDArray[np.generic]]
    seconds: float
    hardware: dict[str, Any]
    software: dict[str, str]
    source: dict[str, Any]
    metric: dict[str, float] = field(default_factory=dict)  # the last one reported


def execute(task: Task, listener: Listener | None = None) -> Outcome:
    """Run the unit in a scratch folder of its own."""
    experiment = find(task.experiment)
    check_device(task.device)
    folder = Path(task.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a worker on another machine, which does not have the run's folder
        folder = Path(tempfile.mkdtemp(prefix="maxaffine-"))
    last: dict[str, float] = {}

    def report(name: str, value: float) -> None:
        last.clear()
        last[name] = float(value)
        if listener is not None:
            listener(task.unit["id"], name, float(value))

    begun = time.perf_counter()
    result = experiment.run(task.unit, task.parameters, Context(task.device, task.data, folder, report))
    seconds = time.perf_counter() - begun
    shutil.rmtree(folder, ignore_errors=True)
    try:
        values = json.loads(json.dumps(plain(dict(result.values)), allow_nan=False))
    except (TypeError, ValueError) as failure:
        raise BadInput(f"the values of unit {task.unit['id']!r} do not fit into JSON: {failure}.") from None
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in result.tensors.items()}
    module = home_of(task.experiment).partition(":")[0]
    return Outcome(
        values, tensors, seconds, machine.hardware(task.device), machine.software(), machine.source(module), dict(last)
    )


def check_device(device: str) -> None:
    """Refuse a device that is not there."""
    if device not in ("cpu", "cuda"):
        raise BadInput(f"`--device` (={device!r}) must be cpu or cuda.")
    if device == "cuda":
        try:
            import torch
        except ModuleNotFoundError:
            raise BadInput("`--device cuda` needs PyTorch; install maxaffine[lab], or use --device cpu.") from None
        if not torch.cuda.is_available():
            raise BadInput("`--device cuda`: PyTorch sees no CUDA device here; use --device cpu.")
