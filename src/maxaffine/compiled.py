"""Compiled: what `ma.compile` and `ma.load` return.  Its methods only delegate."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike, NDArray

from maxaffine import checker, literal_matrices, running, saved, sharpen
from maxaffine.checker import Verdict
from maxaffine.confirmed import confirmed
from maxaffine.core.budget import Cost, afford_bytes, count_text
from maxaffine.core.container import container_bytes, write_container
from maxaffine.core.errors import BadInput, Refused
from maxaffine.heads.found import Found
from maxaffine.heads.spectral.plan import SpectralPlan
from maxaffine.layer.maxaffine import MaxAffine
from maxaffine.layer.records import CrossMatrices, SelfMatrices
from maxaffine.layer.side_by_side import AnyLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.observe import Observed
from maxaffine.proofs.routes import narrow_tolerance, statement, statements
from maxaffine.proofs.statement import Bound, Statement
from maxaffine.report import by_output, text
from maxaffine.runtime import chooser
from maxaffine.runtime.collapse import SHARE
from maxaffine.runtime.named import points_of
from maxaffine.target.box import Box
from maxaffine.target.samples import Samples
from maxaffine.target.table import Table
from maxaffine.target.target import Target
from maxaffine.validate import confirm

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from maxaffine.export.judge import Judged
    from maxaffine.export.torch_module import AttentionBlock, Exported

Array = NDArray[Any]


@dataclass(frozen=True)
class Compiled:
    """A function inside one softmax attention layer, with what is proved and what was observed about its error."""

    target: Target
    weights: AnyLayer  # keys and values, as they are stored and run
    certificate: Certificate
    observed: Observed
    error: float  # asked for: absolute, or relative to |f(x)| where the certificate is
    method: str
    attention_kind: str  # "self" | "cross"
    plan: Mapping[str, Any]  # argument, counts, what was tried
    cost: Cost
    seconds: float = 0.0
    calls: int | None = None  # points at which a callable was evaluated
    found: Found | None = field(default=None, compare=False, repr=False)  # the search that made it; None when loaded
    stated: Mapping[str, float | str] | None = None  # a loaded layer's bounds of the literal softmax, per arithmetic
    standing: str = field(default="proved", compare=False)  # "proved" here, "stated" in a file, or "checked" from it
    declared: Mapping[str, Any] = field(default_factory=dict)  # constants that the user declared
    file: str | None = field(default=None, compare=False)
    filed: Any = field(default=None, compare=False, repr=False)  # of a checked layer, what its file states
    errors: tuple[float, ...] | None = None  # asked for of every output, row by row, where they differ; `error` is the largest

    # -- evaluate

    def __call__(
        self, *x: Any, runtime: str | None = None, outside: str = "error", threads: int | None = None, **by_name: ArrayLike
    ) -> Any:
        """Values in the target's shape: (B, D) -> (B,) or (B, K), one point -> a scalar or (K,); `statement` says how exact.

        Keywords, dictionaries, frames and labelled arrays go by name and are answered in kind (runtime/named.py).  Tensors of
        PyTorch give tensors on the same device and in the same dtype, differentiable in x (runtime/torch_runtime.py).
        `threads` of large batches: by default OMP_NUM_THREADS, else all processors; the values do not depend on it.
        `runtime` "pieces" runs a layer of clusters by short polynomials, "direct" not the layer but its target's own formula,
        each within a bound of its own (`statement`).
        """
        if any(_is_tensor(one) for one in x):
            if runtime == "direct":
                return running.direct_on_tensors(self, *x, outside=outside)
            from maxaffine.runtime import torch_runtime

            return torch_runtime.evaluate(
                self.target, self.weights, *x, runtime=runtime, outside=outside, narrow=narrow_tolerance(self),
                reserve=self.reserve or 0.0,
            )  # fmt: skip
        points, form = points_of(self.target, x, by_name, outside)
        return form.give(self.target.present(running.values(self, points, runtime, threads)))

    @property
    def reserve(self) -> float | None:
        """What a collapse into polynomials may differ by: what the certificate holds in reserve for it (None: nothing)."""
        if self.certificate.kind != "proved":
            return SHARE * self.error
        found = self.certificate.details.get("collapse")
        return float(found) if isinstance(found, (int, float)) and 0.0 < found < math.inf else None

    def runtimes(self) -> tuple[str, ...]:
        """The runtimes that can run this layer."""
        return running.runtimes(self)

    def runtime(self, batch: int | None = None, threads: int | None = None) -> tuple[str, str]:
        """The runtime that runs this layer, and why; for a batch of so many queries also how (bits do not depend on that)."""
        name, reason = chooser.choose(self.weights, self.reserve)
        if batch is None:
            return name, reason
        return name, f"{reason}; {chooser.how_it_runs(self.weights, self.reserve, batch, threads, name)}"

    def attention(self, *x: Any, outside: str = "error", **by_name: ArrayLike) -> Array:
        """The attention weights (B, N), or (N,) for one point, keys in row-major order."""
        points, form = points_of(self.target, x, by_name, outside)
        needed = len(points) * self.weights.keys.count * 16
        what = f"attention weights of {len(points)} points over {count_text(self.weights.keys.count)} keys"
        afford_bytes(needed, what, "ask for fewer points")
        weights = chooser.attention(self.weights, points)
        return weights[0] if form.single else weights

    # -- what it is

    @property
    def layer(self) -> AnyLayer:
        """Deprecated name of `weights`."""
        warnings.warn("`layer` is called `weights` now; `.layer` will go in the next release.", DeprecationWarning, 2)
        return self.weights

    @property
    def tokens(self) -> int:
        """Key tokens of the literal layer, stored or implied."""
        return self.weights.tokens

    @property
    def bound(self) -> Bound | None:
        """What is proved of `layer(x)`; of a loaded layer what its file states, and its `standing` says so until `check`."""
        made = self.certificate
        where = made.where if made.norm_label == "entries" else ""
        return None if made.bound is None else Bound(made.bound, self.standing, where)

    @property
    def bounds(self) -> Array | None:
        """What is proved of every output, in the target's shape; None where nothing is."""
        return by_output.bounds(self)

    @cached_property
    def literal(self) -> Mapping[str, float | str]:
        """Of the literal softmax over all tokens, per arithmetic: a proved bound, or why there is none."""
        return sharpen.literal_of(self) if self.stated is None else dict(self.stated)

    def statement(self, route: str = "arrays", dtype: str | None = None, device: str = "cpu") -> Statement:
        """What is proved of one way to run this layer (proofs/routes.py lists them), or why nothing is."""
        return statement(self, route, dtype, device)

    def statements(self) -> list[Statement]:
        """The statements of all routes that this layer has."""
        return statements(self)

    def check(self) -> Verdict:
        """Prove this layer again by the independent checker; what passes is no longer merely stated, nor below what it proved."""
        verdict = checker.check(*self._record(), self._table)
        if verdict.passed and self.standing == "stated":
            filed = self.certificate, dict(self.literal)
            certificate, literal = confirmed(*filed, verdict)
            self.__dict__.pop("literal", None)
            for name, value in {"certificate": certificate, "stated": literal, "filed": filed, "standing": "checked"}.items():
                object.__setattr__(self, name, value)
        return verdict

    @property
    def sharpness(self) -> float | None:
        """rho = R h^2 on a grid, the multiplier of the scores on other partitions; None for spectral heads and hard layers."""
        return None if self.weights.grouped or self.weights.hard else self.weights.sharpness

    @property
    def dtype(self) -> str:
        """The dtype that keys and values are stored and run in."""
        return self.weights.dtype

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
        if self.weights.grouped:
            pieces = self.weights.site_pieces()
            if pieces is not None:
                return MaxAffine(*pieces)
            raise Refused("a spectral layer blends all keys of a group everywhere; it has no partition worth drawing.")
        return MaxAffine(*self.weights.affine_pieces())

    def matrices(
        self, kind: str | None = None, layout: str | None = None, correction: str = "output", bonus: float | None = None
    ) -> SelfMatrices | CrossMatrices:
        """The literal weights: "self" in layout Q, K or I, or "cross"."""
        return literal_matrices.of(self, self.attention_kind if kind is None else kind, layout, correction, bonus)

    def certificate_for(self, runtime: str = "arrays", dtype: str | None = None) -> Certificate:
        """The certificate for one runtime alone (and this layer's dtype)."""
        return running.certificate_for(self, runtime, dtype)

    @cached_property
    def search(self) -> Found:
        """The search that made this layer; a loaded one repeats it from its target, which must give the same weights."""
        return sharpen.again(self) if self.found is None else self.found

    def with_sharpness(self, r: float, require: str | None = None) -> Compiled:
        """The same keys and values at another temperature: every logit times r, proved anew, or kind "none" and why."""
        return sharpen.with_sharpness(self, r, require)

    @property
    def prove(self) -> Callable[[str], Certificate]:
        """The certificate of this layer for one runtime, proved anew."""
        if self.search.prove is None:
            raise Refused("nothing is proved of this layer.")
        return self.search.prove

    @property
    def spectral(self) -> SpectralPlan | None:
        """The plan of a spectral layer; None of others, and where it cannot be found again."""
        try:
            plan = self.search.plan if self.method == "spectral" else None
        except Refused:
            return None
        return plan if isinstance(plan, SpectralPlan) else None

    # -- tell

    def explain(self, batch: int | None = None, device: str = "cpu") -> str:
        """Which part of the bound dominates, what to change, which runtime runs the layer, and what the batch decides.

        `batch`: a number of queries to describe; `device` "cuda": also which kernels run tensors there.
        """
        return text.explain(self, batch, device)

    def cite(self) -> str:
        """The theorems and papers behind this layer."""
        return text.cite(self)

    def draw(self, path: str | Path | None = None) -> tuple[Axes, ...]:
        """Draw target, layer, error, cells and attention entropy, into a file where a path is given.

        Returns:
            The axes of the figure, in the order of drawing; `axes[0].figure` is the figure.
        """
        from maxaffine.report.figures import draw_axes

        return draw_axes(self, path)

    def __repr__(self) -> str:
        return text.short(self)

    def _repr_html_(self) -> str:
        from maxaffine.report.notebook import as_html

        return as_html(self)

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        return saved.summary_of(self)

    # -- export

    def to_torch(self, kind: str = "self", form: str = "fast", trainable: bool = False) -> Exported:
        """A torch.nn.Module: "fast" by the structure, the "literal" self- or cross-attention, or one operator, the "kernel"."""
        from maxaffine.export import kernel_module, torch_module

        if kind not in ("self", "cross") or form not in ("fast", "literal", "kernel"):
            forms = f'`form` (={form!r}) "fast", "literal" or "kernel"'
            raise BadInput(f'`kind` (={kind!r}) must be "self" or "cross", and {forms}.')
        if form == "kernel":
            return kernel_module.to_kernel(self, trainable)
        if self.target.inputs == "pair":
            kind = "cross"
        made = self.matrices(kind) if form == "literal" else None
        module = torch_module.to_torch(self.weights, self.target.output_shape, made, trainable)
        self._judge(module, "module" if form == "fast" else "literal module", form)
        return module

    def to_multihead_attention(self) -> AttentionBlock:
        """A module around a stock torch.nn.MultiheadAttention (`.attention`) that holds this layer."""
        from maxaffine.export import torch_module

        module = torch_module.to_multihead_attention(self.weights, self.target.output_shape)
        self._judge(module, "multihead", "mha")
        return module

    def _judge(self, module: Exported, route: str, form: str) -> None:
        """Give a module its statement, and run it against this layer."""
        from maxaffine.export import write

        module.statement = self.statement(route)
        module.semantics = self.semantics(module.statement)
        write.judge_module(self, module, form)

    def to_onnx(self, path: str | Path, opset: int = 23, form: str | None = None) -> tuple[Judged, ...]:
        """An ONNX model, run in ONNX Runtime before it is kept; returns how far it was seen from the layer, per dtype.

        `form` "literal" is the Attention operator over all tokens, "fast" follows the structure in float64; left out, the literal
        one where it is proved to 1.1 times the bound of the layer.
        """
        return self.export("onnx", path, opset=opset, form=form)

    def to_safetensors(self, path: str | Path) -> tuple[Judged, ...]:
        """Weights for other tools under the names of export/safetensors_file.py."""
        return self.export("safetensors", path)

    def export(
        self, to: str, path: str | Path, *, opset: int = 23, form: str | None = None, kind: str = "self"
    ) -> tuple[Judged, ...]:
        """Write "torch", "mha", "onnx" or "safetensors"; checked by reading it back, and nothing is left of a failed one."""
        from maxaffine.export import write

        if form not in (None, "fast", "literal"):
            raise BadInput(f'`form` (={form!r}) must be "fast" or "literal".')
        if to == "onnx":
            return write.write_onnx(self, path, opset, form)
        if to == "safetensors":
            return write.write_safetensors(self, path)
        if to in ("torch", "mha"):
            return write.write_torch(self, path, "mha" if to == "mha" else form or "fast", kind)
        raise BadInput(f"`to` (={to!r}) is not known; choose one of {', '.join(write.FORMATS)}.")

    def semantics(self, said: Statement | None = None) -> dict[str, Any]:
        """What an export says about itself: inputs, outputs, domain, the layer's certificate, and its own statement."""
        from maxaffine.export import write

        return write.semantics(self, said or self.statement())

    # -- keep

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle holds: everything but the search, which is found again when it is asked for."""
        return {**{name: value for name, value in self.__dict__.items() if name != "_search"}, "found": None}

    def __copy__(self) -> Compiled:
        """The same parts, which do not change."""
        return replace(self)

    def __deepcopy__(self, memo: Any) -> Compiled:
        """The same parts, which do not change."""
        return replace(self)

    @property
    def _table(self) -> Table | Samples | None:
        """The table or samples that it was compiled from; a loaded layer has only their record."""
        return self.target.data if isinstance(self.target.data, (Table, Samples)) else None

    def _record(self) -> tuple[dict[str, Array], dict[str, Any]]:
        return saved.record_of(self)

    def to_bytes(self) -> bytes:
        """The bytes that `save` writes."""
        return container_bytes(*self._record())

    def save(self, path: str | Path) -> None:
        """One safetensors file; a proved layer is re-proved by the independent checker before it leaves."""
        tensors, record = self._record()
        if self.certificate.kind == "proved" and (self.target.expression is not None or self._table is not None):
            confirm(tensors, record, self._table)
        write_container(path, tensors, record)

    @classmethod
    def load(cls, path: str | Path, check: bool = False) -> Compiled:
        """The layer of a saved file, with what the file states of it; `check` proves that again, or refuses."""
        made = cls(**saved.read(path), standing="stated")
        if check:
            verdict = made.check()
            if not verdict.passed:
                raise Refused(f"{str(path)!r} is not confirmed by the independent checker: {verdict.reason}")
        return made


def _is_tensor(x: object) -> bool:
    """Whether x is a PyTorch tensor, without importing PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)
