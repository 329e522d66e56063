"""Compiled: what `ma.compile` and `ma.load` return.  Its methods only delegate."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxaffine._version import __version__
from maxaffine.certify.certificate import Certificate
from maxaffine.certify.observe import Observed
from maxaffine.core.container import container_bytes, read_container, write_container
from maxaffine.core.errors import BadInput, Refused
from maxaffine.layer import file as layer_file
from maxaffine.layer.build import input_shapes
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.grouped_matrices import grouped_matrices
from maxaffine.layer.layer import Layer
from maxaffine.layer.matrices import CrossMatrices, SelfMatrices, matrices, matrices_bytes
from maxaffine.plan.budget import Cost, free_memory, size
from maxaffine.plan.evidence import Evidence
from maxaffine.plan.maxaffine import MaxAffine
from maxaffine.plan.spectral import SpectralPlan
from maxaffine.runtime import chooser
from maxaffine.runtime.collapse import SHARE
from maxaffine.runtime.queries import as_points
from maxaffine.target.box import Box
from maxaffine.target.entries import Entries
from maxaffine.target.target import Target

if TYPE_CHECKING:
    from maxaffine.export.judge import Introduced
    from maxaffine.export.torch_module import AttentionBlock, Exported

Array = NDArray[Any]


@dataclass(frozen=True)
class Compiled:
    """A function inside one softmax attention layer, with what is proved and what was observed about its error."""

    target: Target
    layer: Layer | GroupedLayer
    certificate: Certificate
    observed: Observed
    error: float  # asked for, absolute
    method: str
    attention_kind: str  # "self" | "cross"
    plan: Mapping[str, Any]  # route, counts, what was tried
    cost: Cost
    seconds: float = 0.0
    evidence: Evidence | None = None  # what the certificate was proved from; a loaded layer has none
    spectral: SpectralPlan | None = None  # the plan of a spectral layer; a loaded layer has none
    prove: Callable[[str], Certificate] | None = field(default=None, compare=False, repr=False)  # not when loaded
    declared: Mapping[str, Any] = field(default_factory=dict)  # constants that the user declared
    file: str | None = field(default=None, compare=False)

    # -- evaluate

    def __call__(
        self, *x: ArrayLike, runtime: str | None = None, outside: str = "error", threads: int | None = None
    ) -> Array:
        """Values in the target's shape: (B, D) -> (B,) or (B, K), one point -> a scalar or (K,).

        Tensors of PyTorch give tensors on the same device and in the same dtype, differentiable in x (runtime/torch_runtime.py).
        `threads` of large batches: by default OMP_NUM_THREADS, else all processors; the values do not depend on it.
        """
        if any(_is_tensor(one) for one in x):
            from maxaffine.runtime import torch_queries

            given: Any = x
            found = torch_queries.evaluate(
                self.target, self.layer, *given, runtime=runtime, outside=outside, error=self.error, reserve=self.reserve or 0.0
            )
            return found  # type: ignore[return-value]
        if runtime == "collapsed" and self.reserve is None:
            raise BadInput("`runtime` (='collapsed') cannot run this layer: its certificate holds nothing in reserve for it.")
        points, single = as_points(self.target, *x, outside=outside)
        out = self.target.present(chooser.evaluate(self.layer, points, runtime, self.reserve, threads))
        return out[0] if single else out

    @property
    def reserve(self) -> float | None:
        """What a collapse into polynomials may differ by: what the certificate holds in reserve for it (None: nothing)."""
        if self.certificate.kind != "proved":
            return SHARE * self.error
        found = self.certificate.details.get("collapse")
        return float(found) if isinstance(found, (int, float)) and 0.0 < found < math.inf else None

    def runtimes(self) -> tuple[str, ...]:
        """The runtimes that can run this layer."""
        names = chooser.available(self.layer, self.reserve or 0.0)
        return tuple(name for name in names if name != "collapsed" or self.reserve is not None)

    def runtime(self, batch: int | None = None, threads: int | None = None) -> tuple[str, str]:
        """The runtime that runs this layer, and why; for a batch of so many queries also how (bits do not depend on that)."""
        name, reason = chooser.choose(self.layer, self.reserve)
        if batch is None:
            return name, reason
        return name, f"{reason}; {chooser.how_it_runs(self.layer, self.reserve, batch, threads, name)}"

    def attention(self, *x: ArrayLike, outside: str = "error") -> Array:
        """The attention weights (B, N), or (N,) for one point, keys in row-major order."""
        points, single = as_points(self.target, *x, outside=outside)
        needed = len(points) * self.layer.keys.count * 16
        what = f"attention weights of {len(points)} points over {self.layer.keys.count:,} keys"
        _afford(needed, what, "ask for fewer points")
        weights = chooser.attention(self.layer, points)
        return weights[0] if single else weights

    # -- what it is

    @property
    def tokens(self) -> int:
        """Key tokens of the literal layer, stored or implied."""
        return self.layer.tokens

    @property
    def bound(self) -> float | None:
        """The certificate's bound."""
        return self.certificate.bound

    @property
    def sharpness(self) -> float | None:
        """rho = R h^2 on a grid, the multiplier of the scores on other partitions; None for spectral heads and hard layers."""
        return None if isinstance(self.layer, GroupedLayer) or self.layer.hard else self.layer.sharpness

    @property
    def dtype(self) -> str:
        """The dtype that keys and values are stored and run in."""
        return self.layer.dtype

    @property
    def norm(self) -> float:
        """inf, or p of L_p."""
        return self.certificate.norm

    @property
    def box(self) -> Box:
        """The box the layer speaks about."""
        return self.target.box

    def partition(self) -> MaxAffine:
        """The max-affine partition of the keys, in x."""
        if isinstance(self.layer, GroupedLayer):
            pieces = self.layer.site_pieces()
            if pieces is not None:
                return MaxAffine(*pieces)
            raise Refused("a spectral layer blends all keys of a group everywhere; it has no partition worth drawing.")
        return MaxAffine(*self.layer.affine_pieces())

    def matrices(
        self, kind: str | None = None, layout: str | None = None, correction: str = "output", bonus: float | None = None
    ) -> SelfMatrices | CrossMatrices:
        """The literal weights: "self" in layout Q, K or I, or "cross"."""
        kind = self.attention_kind if kind is None else kind
        if isinstance(self.layer, GroupedLayer):
            needed = 8 * self.tokens * (self.layer.dimension + 64)
            _afford(needed, f"the literal matrices of {self.tokens:,} tokens", "ask for a larger error")
            return grouped_matrices(self.layer, kind, layout)
        if kind in ("self", "cross"):
            bytes_needed = matrices_bytes(self.layer, kind, layout or "Q")
            what = f"the literal matrices of {self.tokens:,} tokens"
            _afford(bytes_needed, what, 'use layout "K", "cross", or a larger `error`')
        return matrices(self.layer, kind, layout, correction, bonus)

    def certificate_for(self, runtime: str = "any", dtype: str | None = None) -> Certificate:
        """The certificate for one runtime alone (and this layer's dtype)."""
        if dtype not in (None, self.dtype):
            raise BadInput(f"`dtype` (={dtype!r}) is not this layer's ({self.dtype}); compile it in that dtype.")
        if runtime not in ("any", *self.runtimes()):
            names = ", ".join(self.runtimes())
            raise BadInput(f"`runtime` (={runtime!r}) cannot run this layer; choose any of {names}.")
        if self.prove is None or self.certificate.kind != "proved":
            raise Refused("this layer carries no evidence to prove from; compile it again.")
        return self.prove(runtime)

    # -- tell

    def explain(self, batch: int | None = None, device: str = "cpu") -> str:
        """Which part of the bound dominates, what to change, which runtime runs the layer, and what the batch decides.

        `batch`: a number of queries to speak about; `device` "cuda": also which kernels run tensors there.
        """
        from maxaffine.report.text import explain

        return explain(self, batch, device)

    def cite(self) -> str:
        """The theorems and papers behind this layer."""
        from maxaffine.report.text import cite

        return cite(self)

    def draw(self, path: str | Path) -> None:
        """Draw target, layer, error, cells and attention entropy."""
        from maxaffine.report.figures import draw

        draw(self, path)

    def __repr__(self) -> str:
        bound = "no bound" if self.bound is None else f"bound {self.bound:.4g}"
        what = self.target.name or self.target.text or "callable"
        where = " at the entries" if self.certificate.over == "entries" else ""
        return (
            f"<maxaffine.Compiled {what[:40]!r}: {self.method}, {self.tokens:,} tokens, {bound}, "
            f"{self.certificate.kind}{where}, observed {self.observed.error:.3g}, {self.dtype}>"
        )

    def _repr_html_(self) -> str:
        from maxaffine.report.text import as_html

        return as_html(self)

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        parts = {name: self.certificate.parts.get(name) for name in ("approximation", "leakage", "rounding", "target_rounding")}
        return {
            "target": self.target.name or self.target.text or "callable",
            "method": self.method,
            "route": self.certificate.route,
            "attention": self.attention_kind,
            "tokens": self.tokens,
            "counts": list(self.layer.keys.shape),
            "layout": self.layer.layout(),
            "error": self.error,
            "norm": self.certificate.norm_label,
            "bound": self.bound,
            "kind": self.certificate.kind,
            "observed": self.observed.error,
            "observed_at": list(self.observed.at),
            "observed_standard_error": self.observed.standard_error,
            "sharpness": self.sharpness,
            "dtype": self.dtype,
            "parts": parts if self.bound is not None else None,
            "assumptions": list(self.certificate.assumptions),
            "domain": self.certificate.domain,
            "bytes": self.layer.nbytes,
            "seconds": self.seconds,
            "file": self.file,
        }

    # -- leave

    def to_torch(self, kind: str = "self", form: str = "fast", trainable: bool = False) -> Exported:
        """A torch.nn.Module: "fast" through the structure, or the "literal" self- or cross-attention."""
        from maxaffine.export import torch_module

        if kind not in ("self", "cross") or form not in ("fast", "literal"):
            raise BadInput(f'`kind` (={kind!r}) must be "self" or "cross", and `form` (={form!r}) "fast" or "literal".')
        if self.target.inputs == "pair":
            kind = "cross"
        made = self.matrices(kind) if form == "literal" else None
        module = torch_module.to_torch(self.layer, self.target.output_shape, made, trainable)
        module.semantics = self.semantics()
        return module

    def to_multihead_attention(self) -> AttentionBlock:
        """A module around a stock torch.nn.MultiheadAttention (`.attention`) that holds this layer."""
        from maxaffine.export import torch_module

        module = torch_module.to_multihead_attention(self.layer, self.target.output_shape)
        module.semantics = self.semantics()
        return module

    def to_onnx(self, path: str | Path, opset: int = 23) -> tuple[Introduced, ...]:
        """An ONNX model, run in ONNX Runtime before it is kept; returns what it adds to the error, per dtype."""
        return self.export("onnx", path, opset=opset)

    def to_safetensors(self, path: str | Path) -> tuple[Introduced, ...]:
        """Weights for other tools under the names of export/safetensors_file.py."""
        return self.export("safetensors", path)

    def export(
        self, to: str, path: str | Path, *, opset: int = 23, form: str = "fast", kind: str = "self"
    ) -> tuple[Introduced, ...]:
        """Write "torch", "mha", "onnx" or "safetensors"; checked by reading it back, and nothing is left of a failed one."""
        from maxaffine.export import write

        if to == "onnx":
            return write.write_onnx(self, path, opset)
        if to == "safetensors":
            return write.write_safetensors(self, path)
        if to in ("torch", "mha"):
            return write.write_torch(self, path, "mha" if to == "mha" else form, kind)
        raise BadInput(f"`to` (={to!r}) is not known; choose one of {', '.join(write.FORMATS)}.")

    def semantics(self) -> dict[str, Any]:
        """What an export says about itself: inputs, outputs, domain, certificate."""
        from maxaffine.export.semantics import semantics

        return semantics(self.target, self.certificate, self.observed, self.error, self.method, self.dtype)

    # -- keep

    def _record(self) -> tuple[dict[str, Array], dict[str, Any]]:
        tensors, description = layer_file.to_tensors(self.layer)
        record = {
            "layer": description,
            "target": self.target.to_json(),
            "method": self.method,
            "attention": self.attention_kind,
            "error": self.error,
            "norm": self.certificate.norm_label,
            "certificate": self.certificate.to_json(),
            "observed": self.observed.to_json(),
            "plan": dict(self.plan),
            "cost": self.cost.to_json(),
            "declared": dict(self.declared),
            "provenance": {"maxaffine": __version__},
        }
        return tensors, record

    def to_bytes(self) -> bytes:
        """The bytes that `save` writes."""
        return container_bytes(*self._record())

    def save(self, path: str | Path) -> None:
        """One safetensors file; a proved layer is re-proved by the independent checker before it leaves."""
        from maxaffine.certify.checker import check

        tensors, record = self._record()
        table = None if isinstance(self.target.data, Entries) else self.target.data  # a loaded layer has no table
        if self.certificate.kind == "proved" and (self.target.expression is not None or table is not None):
            verdict = check(tensors, record, table)
            if not verdict.passed:
                raise Refused(f"the independent checker does not confirm this layer, so it is not saved: {verdict.reason}")
        write_container(path, tensors, record)

    @classmethod
    def load(cls, path: str | Path) -> Compiled:
        """The layer of a saved file, with the certificate it was saved with (`maxaffine check` proves it again)."""
        tensors, record = read_container(path)
        shown = repr(str(path))
        try:
            layer = layer_file.from_tensors(tensors, record["layer"])
            target = Target.from_json(record["target"])
            if layer.d_out != target.d_out or layer.n_out != target.n_out or layer.inputs != input_shapes(target):
                raise BadInput("its layer and its target have different shapes")
            if not (np.array_equal(layer.low, target.box.low) and np.array_equal(layer.high, target.box.high)):
                raise BadInput("its layer and its target speak about different boxes")
            return cls(
                target=target,
                layer=layer,
                certificate=Certificate.from_json(record["certificate"]),
                observed=Observed.from_json(record["observed"]),
                error=float(record["error"]),
                method=str(record["method"]),
                attention_kind=str(record["attention"]),
                plan=dict(record["plan"]),
                cost=Cost(*(int(record["cost"][k]) for k in ("tokens", "bytes", "peak_bytes", "flops_per_query"))),
                declared=dict(record["declared"]),
                file=str(path),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as failure:
            raise BadInput(f"{shown} does not hold a compiled layer: {failure}.") from None


def _is_tensor(x: object) -> bool:
    """Whether x is a PyTorch tensor, without importing PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _afford(needed: int, what: str, way_out: str) -> None:
    limit = free_memory() // 2
    if needed > limit:
        raise Refused(f"{what} take {size(needed)}, and {size(limit)} may be used here; {way_out}.")


def load(path: str | Path) -> Compiled:
    """The layer that `Compiled.save` or `maxaffine compile --out` wrote."""
    return Compiled.load(path)
