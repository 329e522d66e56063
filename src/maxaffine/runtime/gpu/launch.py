"""Launch the kernels on tensors: programs of a layer, their tables on the device, and one call per batch.

Kernels run on CUDA devices and, where TRITON_INTERPRET=1 is set before Triton is imported, on the CPU in Triton's interpreter.
Multiply-adds are fused where the kernels say so and nowhere else, so that results depend on nothing but the query.
Kernels of float32 read and write tensors of bfloat16 and float16 as well: they compute in float32 and round the answer once.
"""

import os
from contextlib import nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
import torch

from maxaffine.layer.layer import Layer
from maxaffine.runtime.gpu.choice import LookupProgram
from maxaffine.runtime.gpu.clustered import Clustered
from maxaffine.runtime.gpu.direct import DirectProgram
from maxaffine.runtime.gpu.listed import IN_CODE
from maxaffine.runtime.gpu.pieces import piece_program
from maxaffine.runtime.gpu.tables import Numbers, OnBox, Polynomials, Program, affine, program, train_table
from maxaffine.runtime.kept import once

Tensor = torch.Tensor

PRODUCTS = {"float32": (1024, 4), "float64": (512, 4)}  # queries per program and its warps
LONG, LONG_PRODUCTS = 150, (2048, 8)  # multiply-adds beyond which float32 products are not bound by memory
SLOPES = (512, 4)
TRAIN = (512, 4)
WINDOWED = (512, 4)
CLUSTERED = {"float32": (512, 2), "float64": (512, 4)}
PATCHED = (128, 4)


def runs_on(device: torch.device) -> bool:
    """Whether kernels can run on tensors of that device."""
    if find_spec("triton") is None:
        return False
    return device.type == "cuda" or (device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1")


def launch(kernel: Any, config: tuple[int, int], x: Tensor, *arguments: Any, **constants: Any) -> None:
    """A kernel over all queries x, on their device."""
    block, warps = config
    with torch.cuda.device(x.device) if x.device.type == "cuda" else nullcontext():
        kernel[(-(-len(x) // block),)](x, *arguments, **constants, BLOCK=block, num_warps=warps, enable_fp_fusion=False)


@dataclass
class CollapsedKernel:
    """The kernels of a collapsed layer, with their tables on one device."""

    found: Polynomials
    device: torch.device
    config: tuple[int, int] | None = None
    _programs: dict[bool, tuple[Program, Numbers | None, Tensor]] = field(default_factory=dict)
    _trains: list[tuple[Numbers, int, Tensor, tuple[int, int, int, int, int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dtype = getattr(torch, self.found.dtype)
        for train in self.found.trains:
            maps, place, table, sizes = train_table(train, self.found)
            self._trains.append((maps, place, self._put(table), sizes))

    def _put(self, table: Any) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(table)).to(device=self.device, dtype=self.dtype)

    def _program(self, slopes: bool) -> tuple[Program, Numbers | None, Tensor]:
        if slopes not in self._programs:
            made = program(self.found, slopes)
            numbers = written(made.table, self.found.dtype) if made.constant else None
            self._programs[slopes] = made, numbers, self._put(made.table)
        return self._programs[slopes]

    def __call__(self, x: Tensor) -> Tensor:
        """F(x) for contiguous x (B, D): (B, K) in the dtype of x."""
        from maxaffine.runtime.gpu import kernels

        count, D, K = len(x), self.found.dimension, self.found.outputs
        added = bool(self._trains) and bool(self.found.terms or len(self._trains) > 1)  # several launches: rounded after the last
        out = torch.empty((count, K), dtype=self.dtype if added else x.dtype, device=x.device)
        if count == 0:
            return out.to(x.dtype)
        if self.found.terms:
            made, numbers, table = self._program(False)
            long = made.constant and self.found.multiplications > LONG
            launch(
                kernels.products, self.config or (LONG_PRODUCTS if long else PRODUCTS[self.found.dtype]), x, out, table, count, 1,
                NUMBERS=numbers, MAPS=made.maps, FORM=made.form, TERMS=made.terms, STRIDE=made.stride, D=D, K=K,
            )  # fmt: skip
        for i, (maps, place, table, (n0, n1, n2, r0, r1)) in enumerate(self._trains):
            launch(
                kernels.train, self.config or TRAIN, x, out, table, count, MAPS=maps, PLACE=place, N0=n0, N1=n1, N2=n2, R0=r0,
                R1=r1, D=D, K=K, ADD=bool(self.found.terms) or i > 0,
            )  # fmt: skip
        return out.to(x.dtype)

    @property
    def has_slopes(self) -> bool:
        """Whether there is a kernel for the derivative with respect to x."""
        return not self.found.trains

    def slopes(self, x: Tensor, weight: Tensor) -> Tensor:
        """sum_k weight_k dF_k/dx, 0 outside the box, for contiguous x (B, D) and weight (B, K): (B, D)."""
        from maxaffine.runtime.gpu import kernels

        out = torch.empty_like(x)
        if len(x) > 0:
            made, numbers, table = self._program(True)
            launch(
                kernels.product_slopes, self.config or SLOPES, x, weight, out, table, len(x), 1, NUMBERS=numbers, MAPS=made.maps,
                FORM=made.form, TERMS=made.terms, STRIDE=made.stride, BOX=box_of(self.found), D=self.found.dimension,
                K=self.found.outputs,
            )  # fmt: skip
        return out


@dataclass
class WindowedKernel:
    """The kernel of a lookup on a uniform grid, with its values on one device."""

    found: LookupProgram
    values: Tensor
    dtype: torch.dtype
    config: tuple[int, int] | None = None

    has_slopes = True

    @classmethod
    def of(cls, layer: Layer, found: LookupProgram, device: torch.device, dtype: torch.dtype) -> Self:
        """The kernel with the layer's values in the dtype they are stored in."""
        flat = torch.from_numpy(np.array(layer.values).reshape(-1)).to(device)
        return cls(found, flat.to(dtype) if flat.element_size() > torch.empty((), dtype=dtype).element_size() else flat, dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """F(x) for contiguous x (B, D): (B, K) in the dtype of x."""
        from maxaffine.runtime.gpu import lookups

        out = torch.empty((len(x), self.found.outputs), dtype=x.dtype, device=x.device)
        if len(x) > 0:
            launch(
                lookups.windowed, self.config or WINDOWED, x, self.values, out, len(x), MAPS=self.found.maps,
                FORM=self.found.form, RHO=self.found.rho, D=self.found.dimension, K=self.found.outputs,
            )  # fmt: skip
        return out


    def slopes(self, x: Tensor, weight: Tensor) -> Tensor:
        """sum_k weight_k dF_k/dx, 0 outside the box, for contiguous x (B, D) and weight (B, K): (B, D)."""
        from maxaffine.runtime.gpu import lookups

        out = torch.empty_like(x)
        if len(x) > 0:
            found = self.found
            ends = [found.maps[5 * d + side] for d in range(found.dimension) for side in (3, 4)]
            launch(
                lookups.windowed_slopes, self.config or WINDOWED, x, weight, self.values, out, len(x), MAPS=found.maps,
                FORM=found.form, RHO=found.rho, BOX=Numbers(ends), D=found.dimension, K=found.outputs,
            )  # fmt: skip
        return out


@dataclass
class ClusteredKernel:
    """The kernel of a layer with clusters, with its tables on one device."""

    found: Clustered
    device: torch.device
    config: tuple[int, int] | None = None
    _tables: dict[str, Tensor] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    _derived: dict[str, Any] = field(default_factory=dict)

    has_slopes = True

    def __post_init__(self) -> None:
        self.dtype = getattr(torch, self.found.dtype)
        made = piece_program(self.found.products, self.found)
        self._put("table", made.table)
        numbers = written(made.table, self.found.dtype) if made.constant else None
        self.constants |= {"NUMBERS": numbers, "MAPS": made.maps, "FORM": made.form, "TERMS": made.terms, "STRIDE": made.stride}
        self.constants |= self._smooth()
        self._listed()
        self._patched()
        self.constants |= {"SHIFT": Numbers(self.found.shift), "D": self.found.dimension, "K": self.found.outputs}

    def _put(self, name: str, table: Any, dtype: torch.dtype | None = None) -> None:
        flat = np.zeros(1) if len(table) == 0 else np.ascontiguousarray(table)
        self._tables[name] = torch.from_numpy(flat).to(device=self.device, dtype=dtype or self.dtype)

    def _smooth(self, slopes: bool = False) -> dict[str, Any]:
        """What the series are compiled for, with `slopes` for their derivatives; their table is put in place."""
        beside = None if self.found.smooth is None else program(self.found.smooth, slopes)
        self._put("smooth slopes" if slopes else "smooth", np.zeros(1) if beside is None else beside.table)
        names = ("SMOOTH", "SMOOTH_MAPS", "SMOOTH_FORM", "SMOOTH_TERMS", "SMOOTH_STRIDE")
        made: tuple[Any, ...] = None, None, None, 0, 0
        if beside is not None:
            numbers = written(beside.table, self.found.dtype) if beside.constant else None
            made = numbers, beside.maps, beside.form, beside.terms, beside.stride
        return dict(zip(names, made, strict=True))

    def derivative(self) -> dict[str, Any]:
        """What the kernel of the derivative is compiled for."""
        if not self._derived:
            kept = {name: value for name, value in self.constants.items() if name != "SHIFT"}
            self._derived = {**kept, **self._smooth(slopes=True), "BOX": box_of(self.found)}
        return self._derived

    def _listed(self) -> None:
        maps: list[float] = []
        form: list[float] = []
        table: list[float] = []
        for one in self.found.listed:
            form += [len(maps), len(one.rows), len(one.values), len(table)]
            maps += maps_of(one.rows, self.found, one.centre)
            table += one.numbers.tolist()
        few = all(len(one.values) <= IN_CODE for one in self.found.listed)
        self._put("listed", np.array(table))
        numbers = written(np.array(table), self.found.dtype) if few else None
        self.constants |= {"LISTED": numbers, "LISTED_MAPS": Numbers(maps), "LISTED_FORM": Numbers(form)}
        outputs = Numbers(one.output for one in self.found.listed)
        self.constants |= {"LISTED_OUTPUTS": outputs, "LISTED_TERMS": len(outputs)}

    def _patched(self) -> None:
        maps: list[float] = []
        form: list[float] = []
        cells, numbers = [np.zeros(0, dtype=np.int32)], [np.zeros(0)]
        narrow = np.dtype(self.found.dtype).type
        for one in self.found.patched:
            own = [float(narrow(number)) if isinstance(number, float) else number for number in one.form]
            form += [len(maps), sum(map(len, cells)), sum(map(len, numbers)), *own]
            maps += maps_of(one.rows, self.found, one.centre)
            cells.append(one.cells)
            numbers.append(one.numbers)
        self._put("cells", np.concatenate(cells), torch.int32)
        self._put("patches", np.concatenate(numbers))
        outputs = Numbers(one.output for one in self.found.patched)
        self.constants |= {"PATCH_MAPS": Numbers(maps), "PATCH_FORM": Numbers(form), "PATCH_OUTPUTS": outputs}
        self.constants["PATCH_TERMS"] = len(outputs)

    def __call__(self, x: Tensor) -> Tensor:
        """F(x) for contiguous x (B, D): (B, K) in the dtype of x."""
        from maxaffine.runtime.gpu import kernels_pieces

        out = torch.empty((len(x), self.found.outputs), dtype=x.dtype, device=x.device)
        if len(x) > 0:
            tables = [self._tables[name] for name in ("table", "smooth", "listed", "cells", "patches")]
            config = self.config or (PATCHED if self.found.patched else CLUSTERED[self.found.dtype])
            launch(kernels_pieces.clustered, config, x, out, *tables, len(x), 1, **self.constants)
        return out

    def slopes(self, x: Tensor, weight: Tensor) -> Tensor:
        """sum_k weight_k dF_k/dx, 0 outside the box, for contiguous x (B, D) and weight (B, K): (B, D)."""
        from maxaffine.runtime.gpu import kernels_slopes

        out = torch.empty_like(x)
        if len(x) > 0:
            constants = self.derivative()
            tables = [self._tables[name] for name in ("table", "smooth slopes", "listed", "cells", "patches")]
            config = self.config or (PATCHED if self.found.patched else SLOPES)
            launch(kernels_slopes.clustered_slopes, config, x, weight, out, *tables, len(x), 1, **constants)
        return out


@dataclass
class DirectKernel:
    """The kernel of a target's own formula on one device."""

    found: DirectProgram
    device: torch.device
    config: tuple[int, int] | None = None

    has_slopes = False

    def __post_init__(self) -> None:
        self.dtype = getattr(torch, self.found.dtype)
        self.constants = self.found.constants()

    def __call__(self, x: Tensor) -> Tensor:
        """f(x) for contiguous x (B, D): (B, K) in the dtype of x."""
        from maxaffine.runtime.gpu import kernels_direct

        K = len(self.found.outputs)
        out = torch.empty((len(x), K), dtype=x.dtype, device=x.device)
        if len(x) > 0:
            config = self.config or PRODUCTS[self.found.dtype]
            launch(kernels_direct.direct, config, x, out, len(x), **self.constants, D=self.found.dimension, K=K)
        return out


direct_kernel = once(DirectKernel)  # kept as long as its program lives


def box_of(found: OnBox) -> Numbers:
    """The ends of the box, variable by variable, in numbers of the dtype."""
    ends = np.stack([found.low, found.high], axis=1).ravel()
    return written(ends, found.dtype)


def maps_of(rows: Any, found: OnBox, centre: Any = None) -> list[float]:
    """The maps of all directions of a group, about a centre of its own where it has one."""
    return [number for row in rows for number in affine(row, found, centre)]


def written(table: Any, dtype: str) -> Numbers:
    """A table that is written into the code, in numbers of the dtype."""
    return Numbers(table.astype(dtype).astype(np.float64).tolist())


Kernel = CollapsedKernel | WindowedKernel | ClusteredKernel


def kernel_of(layer: Any, found: Any, device: torch.device, dtype: torch.dtype) -> Kernel:
    """The kernel of a program that was chosen for a layer."""
    if isinstance(found, LookupProgram):
        return WindowedKernel.of(layer, found, device, dtype)
    return ClusteredKernel(found, device) if isinstance(found, Clustered) else CollapsedKernel(found, device)
