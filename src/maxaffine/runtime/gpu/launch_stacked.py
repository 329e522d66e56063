"""Launch the kernel of a stack on tensors: its tables on one device, the numbers it is compiled for, and one call per batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from maxaffine.runtime.gpu.clustered import Clustered
from maxaffine.runtime.gpu.launch import launch, maps_of, written
from maxaffine.runtime.gpu.listed import IN_CODE
from maxaffine.runtime.gpu.pieces import piece_program
from maxaffine.runtime.gpu.stack_program import Form, Row, StackProgram
from maxaffine.runtime.gpu.tables import MOST_CODE, Numbers, Polynomials, program
from maxaffine.runtime.kept import once

Tensor = torch.Tensor

CONFIGS = {"float32": ((24, (512, 4)), (64, (256, 4)), (1000, (128, 4))), "float64": ((24, (256, 4)), (1000, (128, 4)))}
"""Values that are needed at once, up to which so many queries and warps are a program."""


@dataclass
class _Tables:
    """What heads read, all of them in one: maps, and per kind of form its entries and numbers."""

    maps: list[float] = field(default_factory=list)
    forms: dict[str, list[list[float]]] = field(default_factory=lambda: {"pieces": [], "series": [], "scores": []})
    numbers: dict[str, list[float]] = field(default_factory=lambda: {"pieces": [], "series": [], "scores": []})
    heads: list[float] = field(default_factory=list)

    def add(self, made: Form) -> None:
        """One head."""
        clusters = isinstance(made, Clustered)
        smooth = made.smooth if isinstance(made, Clustered) else made
        entry: list[float] = [made.shift[0] if isinstance(made, Clustered) else 0.0]
        here = [self._pieces(made) if isinstance(made, Clustered) else (0, 0, 1)]
        here += [self._series(smooth) if smooth is not None else (0, 0, 1), self._scores(made) if clusters else (0, 0, 1)]
        for first, count, _ in here:
            entry += [first, count]
        self.heads += [*entry, made.dimension, *(code for _, _, code in here)]

    def _pieces(self, made: Clustered) -> tuple[int, int, int]:
        found, first = piece_program(made.products, made), len(self.forms["pieces"])
        for g in range(found.terms):
            own = list(found.form.numbers[g * found.stride : (g + 1) * found.stride])
            for f in range(int(own[0])):
                own[2 + 5 * f] += len(self.maps)
                own[6 + 5 * f] += len(self.numbers["pieces"])
            self.forms["pieces"].append(own)
        self.maps += found.maps.numbers
        self.numbers["pieces"] += found.table.tolist()
        return first, found.terms, int(found.constant)

    def _series(self, made: Polynomials) -> tuple[int, int, int]:
        found, first = program(made), len(self.forms["series"])
        for g in range(found.terms):
            own = list(found.form.numbers[g * found.stride : (g + 1) * found.stride])
            for e in range(int(own[0])):
                own[4 + 6 * e] += len(self.maps)
                own[6 + 6 * e] += len(self.numbers["series"])
                own[9 + 6 * e] += len(self.numbers["series"])
            self.forms["series"].append(own)
        self.maps += found.maps.numbers
        self.numbers["series"] += found.table.tolist()
        return first, found.terms, int(len(found.table) <= MOST_CODE)

    def _scores(self, made: Any) -> tuple[int, int, int]:
        first = len(self.forms["scores"])
        for one in made.listed:
            self.forms["scores"].append([len(self.maps), len(one.rows), len(one.values), len(self.numbers["scores"])])
            self.maps += maps_of(one.rows, made)
            self.numbers["scores"] += one.numbers.tolist()
        return first, len(made.listed), int(all(len(one.values) <= IN_CODE for one in made.listed))


def constants_of(found: StackProgram) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """What the kernel is compiled for, and the numbers that heads may read from memory."""
    tables, places = _Tables(), dict[int, int]()
    for number, made in found.forms.items():
        places[number] = len(places)
        tables.add(made)
    rows: list[float] = []

    def put(row: Row) -> int:
        rows.extend([len(row.indices), row.constant])
        rows.extend(number for pair in zip(row.indices, row.weights, strict=True) for number in pair)
        return len(rows) - 2 - 2 * len(row.indices)

    nodes: list[float] = []
    for step in found.steps:
        at = [put(row) for row in step.rows]
        scales = [math.ldexp(1.0, -s) for s in step.scales]
        sides = [side for pair in zip(step.low, step.high, strict=True) for side in pair]
        nodes += [step.kind, at[0], at[-1], places.get(step.head, 0)]
        nodes += [*scales, *[1.0] * (2 - len(scales)), math.ldexp(1.0, step.lift), *sides, *[0.0] * (4 - len(sides))]
    result, constants = put(found.result), dict[str, Any]()
    for name, code in (("pieces", "PIECE"), ("series", "SERIES"), ("scores", "SCORE")):
        stride = max((len(own) for own in tables.forms[name]), default=1)
        flat = [number for own in tables.forms[name] for number in own + [0] * (stride - len(own))]
        constants[f"{code}_FORM"] = Numbers(flat)
        if name != "scores":
            constants[f"{code}_STRIDE"] = stride
        constants[name.upper()] = written(np.array(tables.numbers[name]), found.dtype)
    sides = [side for pair in zip(found.low, found.high, strict=True) for side in pair]
    constants |= {
        "MAPS": Numbers(tables.maps), "HEADS": Numbers(tables.heads), "ROWS": Numbers(rows), "NODES": Numbers(nodes),
        "COUNT": len(found.steps), "RESULT": result, "BOX": Numbers(sides), "D": found.dimension,
        "WIDE": found.dtype == "float64",
    }  # fmt: skip
    return constants, tables.numbers


@dataclass
class StackKernel:
    """The kernel of a stack on one device."""

    found: StackProgram
    device: torch.device
    config: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self.dtype = getattr(torch, self.found.dtype)
        self.constants, numbers = constants_of(self.found)
        self.tables = [torch.tensor(numbers[name] or [0.0], dtype=self.dtype, device=self.device) for name in numbers]
        self.usual = next(config for most, config in CONFIGS[self.found.dtype] if self.found.live <= most)

    def __call__(self, x: Tensor) -> Tensor:
        """The stack at contiguous x (B, D), in the dtype of x: (B,)."""
        from maxaffine.runtime.gpu import kernels_stacked

        out = torch.empty(len(x), dtype=x.dtype, device=x.device)
        if len(x) > 0:
            launch(kernels_stacked.stacked, self.config or self.usual, x, out, *self.tables, len(x), 1, **self.constants)
        return out


stack_kernel = once(StackKernel)  # kept as long as its program lives
