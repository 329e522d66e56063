"""Stack: what `ma.compile(..., layers=..)` returns where it takes several layers.  It answers what a `Compiled` does."""

from __future__ import annotations

import sys
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike, NDArray

from maxaffine import checker
from maxaffine.checker import Verdict
from maxaffine.compiled import Compiled
from maxaffine.confirmed import confirmed
from maxaffine.core.container import container_bytes, write_container
from maxaffine.core.errors import BadInput, Refused
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.observe import Observed
from maxaffine.proofs.statement import Bound, Statement
from maxaffine.runtime.named import points_of
from maxaffine.stack import saved, text
from maxaffine.stack.blocks import Block, blocks
from maxaffine.stack.evaluate import node_values, outputs
from maxaffine.stack.routes import statement, statements
from maxaffine.structure.stacked import StackPlan
from maxaffine.target.box import Box
from maxaffine.target.target import Target

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from maxaffine.export.judge import Judged
    from maxaffine.stack.kernel_module import KernelStack
    from maxaffine.stack.torch_stack import StackModule

Array = NDArray[Any]


@dataclass(frozen=True)
class NodeProof:
    """What is proved of one node: the error beta of its head, the weight W that errors of it have in the output, their product.

    `share` is W (beta + what rounding of its arguments does) as a part of the bound.  `rough`: its slope is not bounded, so that
    its share holds what errors of its argument do, and the nodes it reads have weight only where others read them.
    """

    name: str
    function: str
    layer: int
    tokens: int
    method: str
    beta: float
    weight: float
    share: float
    rough: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class Stack:
    """A formula inside a few softmax attention layers, with what is proved and what was observed about its error."""

    target: Target
    plan: StackPlan
    heads: tuple[Compiled, ...]
    certificate: Certificate
    nodes: tuple[NodeProof, ...]
    literal: Mapping[str, float | str]  # of the stack of literal layers, per arithmetic: a proved bound, or why there is none
    observed: Observed
    error: float
    style: str  # how the formula was cut
    tried: tuple[str, ...] = ()
    seconds: float = 0.0
    ended: str | None = field(default=None, compare=False)  # that `max_seconds` was over, and a smaller stack may exist
    standing: str = field(default="proved", compare=False)
    file: str | None = field(default=None, compare=False)
    filed: Any = field(default=None, compare=False, repr=False)  # of a checked stack, what its file states

    # -- evaluate

    def __call__(self, *x: Any, outside: str = "error", threads: int | None = None, **by_name: ArrayLike) -> Any:
        """Values (B,) at points (B, D), or a scalar at one point; tensors of PyTorch give tensors, differentiable in x.

        Keywords, dictionaries, frames and labelled arrays go by name and are answered in kind (runtime/named.py).
        """
        if any(_is_tensor(one) for one in x):
            from maxaffine.stack import tensors

            return tensors.evaluate(self, *x, outside=outside)
        points, form = points_of(self.target, x, by_name, outside)
        return form.give(self.target.present(outputs(self.plan, self.heads, points, threads)[:, None, None]))

    def values(self, points: Array, threads: int | None = None) -> list[Array]:
        """What every node says at points (B, D) of the box, in order, those of `plan.flat`, and last the output: (B,) each."""
        return node_values(self.plan, self.heads, points, threads)

    # -- what it is

    @property
    def layers(self) -> int:
        """The number of attention layers."""
        return self.plan.depth

    @property
    def tokens(self) -> int:
        """Key tokens of all heads together; a head that several nodes share counts once per node."""
        return sum(self.heads[node.head].tokens * node.heads for node in self.plan.nodes)

    @property
    def largest(self) -> float:
        """A bound of |f| on the box."""
        return float(self.certificate.details["largest"])

    @property
    def method(self) -> str:
        """What made it."""
        return "stack"

    @property
    def box(self) -> Box:
        """The box that the stack speaks about."""
        return self.target.box

    @property
    def dtype(self) -> str:
        """The dtype that it is stored and run in."""
        return "float64"

    @property
    def norm(self) -> float:
        """Of the error: the sup norm."""
        return self.certificate.norm

    @property
    def bound(self) -> Bound | None:
        """What is proved of `stack(x)`; of a loaded stack what its file states, and its `standing` says so until `check`."""
        return None if self.certificate.bound is None else Bound(self.certificate.bound, self.standing)

    def statement(self, route: str = "arrays", dtype: str | None = None, device: str = "cpu") -> Statement:
        """What is proved of one way to run this stack, or why nothing is."""
        return statement(self, route, dtype, device)

    def statements(self) -> list[Statement]:
        """The statements of all routes."""
        return statements(self)

    def matrices(self) -> tuple[Block, ...]:
        """The literal weights, block by block: a linear map, one softmax attention, a linear map; the stream is kept."""
        return blocks(self)

    @cached_property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """The nodes of every layer, as they run: those of `plan.flat`."""
        found: list[list[int]] = [[] for _ in range(self.plan.depth)]
        for k, level in enumerate(self.plan.flat.levels):
            found[level - 1].append(k)
        return tuple(tuple(one) for one in found)

    # -- tell

    def summary(self) -> str:
        """A few lines: what was compiled, what is proved, what was observed."""
        return text.summary(self)

    def explain(self, device: str = "cpu") -> str:
        """Every node with its share of the bound, and what is proved of every way to run the stack, on `device` "cuda" too."""
        return text.explain(self, device)

    def cite(self) -> str:
        """The theorems and papers behind this stack."""
        return text.cite(self)

    def draw(self, path: str | Path | None = None) -> tuple[Axes, ...]:
        """Draw layers and nodes, their tokens and their shares of the bound, into a file where a path is given.

        Returns:
            The axes of the figure; `axes[0].figure` is the figure.
        """
        from maxaffine.stack.picture import draw_axes

        return draw_axes(self, path)

    def __repr__(self) -> str:
        bound = "no bound" if self.bound is None else f"bound {self.bound:.4g}"
        bound += " (stated, not checked)" if self.standing == "stated" else ""
        what = self.target.name or self.target.text or "formula"
        return (
            f"<maxaffine.Stack {what[:40]!r}: {self.layers} layers, {self.tokens} tokens, {bound}, "
            f"{self.certificate.kind}, observed {self.observed.error:.3g}, {self.dtype}>"
        )

    def _repr_html_(self) -> str:
        from maxaffine.stack.notebook import as_html

        return as_html(self)

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        return saved.summary_of(self)

    # -- export

    def to_torch(self, trainable: bool = False, form: str = "literal") -> StackModule | KernelStack:
        """A torch.nn.Module of stock torch.nn.MultiheadAttention blocks; its `statement` says what is proved of it.

        `trainable`: the linear maps, keys and values are parameters that learn.  `form` "kernel": one operator of PyTorch.
        """
        if form == "kernel":
            from maxaffine.stack.kernel_module import to_kernel

            return to_kernel(self, trainable)
        if form != "literal":
            raise BadInput(f'`form` (={form!r}) must be "literal" or "kernel".')
        from maxaffine.stack.torch_stack import module_of

        return module_of(self, trainable)

    def to_onnx(self, path: str | Path, opset: int = 23) -> tuple[Judged, ...]:
        """An ONNX model of the literal stack in float64, run in ONNX Runtime before it is kept."""
        return self.export("onnx", path, opset=opset)

    def export(self, to: str, path: str | Path, *, opset: int = 23) -> tuple[Judged, ...]:
        """Write "onnx", or "mha" (also "torch"), the state of `to_torch()`; run and compared with the stack before it is kept."""
        from maxaffine.stack import export

        return export.write(self, to, path, opset)

    # -- keep

    def check(self) -> Verdict:
        """Prove this stack again by the independent checker; what passes is no longer merely stated, nor below what it proved."""
        verdict = checker.check(*saved.record_of(self))
        if verdict.passed and self.standing == "stated":
            filed = self.certificate, dict(self.literal)
            certificate, literal = confirmed(*filed, verdict)
            for name, value in {"certificate": certificate, "literal": literal, "filed": filed, "standing": "checked"}.items():
                object.__setattr__(self, name, value)
        return verdict

    def to_bytes(self) -> bytes:
        """The bytes that `save` writes."""
        return container_bytes(*saved.record_of(self))

    def save(self, path: str | Path) -> None:
        """One safetensors file; the stack is re-proved by the independent checker before it leaves."""
        tensors, record = saved.record_of(self)
        verdict = checker.check(tensors, record)
        if not verdict.passed:
            raise Refused(f"the independent checker does not confirm this stack, so it is not saved: {verdict.reason}")
        write_container(path, tensors, record)

    @classmethod
    def load(cls, path: str | Path, check: bool = False) -> Stack:
        """The stack of a saved file, with what the file states of it; `check` proves that again, or refuses."""
        made = cls(**saved.read(path), standing="stated")
        if check:
            verdict = made.check()
            if not verdict.passed:
                raise Refused(f"{str(path)!r} is not confirmed by the independent checker: {verdict.reason}")
        return made


def node_proofs(
    plan: StackPlan, heads: Sequence[Compiled], betas: Array, weights: Array, shares: Array, rough: Container[int]
) -> tuple[NodeProof, ...]:
    """The table of nodes; `rough` are the numbers of those whose slope is not bounded."""
    rows = enumerate(zip(plan.nodes, plan.levels, betas, weights, shares, strict=True))
    return tuple(
        NodeProof(
            node.name, node.function.text, level, heads[node.head].tokens * node.heads, heads[node.head].method,
            float(beta), float(weight), float(share), k in rough,
        )
        for k, (node, level, beta, weight, share) in rows
    )  # fmt: skip


def _is_tensor(x: object) -> bool:
    """Whether x is a PyTorch tensor, without importing PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)
