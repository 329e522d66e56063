"""A stack as plain data: its record and tensors in a file, read again; and the object that `--json` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maxaffine import saved as layers
from maxaffine._version import __version__
from maxaffine.compiled import Compiled
from maxaffine.core.container import read_container
from maxaffine.core.errors import BadInput
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.observe import Observed
from maxaffine.saved import claim
from maxaffine.structure.stacked import StackPlan
from maxaffine.target.target import Target

if TYPE_CHECKING:
    from pathlib import Path

    from maxaffine.stack.stack import Stack


def record_of(stack: Stack) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors and record of a stack: those of every head under its number, and how the nodes go together."""
    tensors: dict[str, Any] = {}
    heads = []
    for i, head in enumerate(stack.heads):
        own, record = layers.record_of(head)
        tensors |= {f"head.{i}.{name}": tensor for name, tensor in own.items()}
        heads.append(record)
    certificate, literal = stack.filed or (stack.certificate, stack.literal)
    return tensors, {
        "stack": stack.plan.to_json(),
        "heads": heads,
        "nodes": [node.to_json() for node in stack.nodes],
        "target": stack.target.to_json(),
        "method": "stack",
        "style": stack.style,
        "error": stack.error,
        "norm": certificate.norm_label,
        "certificate": certificate.to_json(),
        "literal": {name: claim(bound) for name, bound in literal.items()},
        "observed": stack.observed.to_json(),
        "cost": {"tokens": stack.tokens, "layers": stack.layers},
        "provenance": {"maxaffine": __version__},
    }


def summary_of(stack: Stack) -> dict[str, Any]:
    """The object that `--json` prints."""
    return {
        "target": stack.target.name or stack.target.text,
        "method": "stack",
        "layers": stack.layers,
        "tokens": stack.tokens,
        "nodes": [node.to_json() for node in stack.nodes],
        "style": stack.style,
        "error": stack.error,
        "norm": stack.certificate.norm_label,
        "bound": None if stack.bound is None else float(stack.bound),
        "standing": stack.standing,
        "literal": {name: claim(bound) for name, bound in stack.literal.items()},
        "kind": stack.certificate.kind,
        "observed": stack.observed.error,
        "observed_at": list(stack.observed.at),
        "dtype": stack.dtype,
        "parts": dict(stack.certificate.parts),
        "assumptions": list(stack.certificate.assumptions),
        "scope": stack.certificate.scope.to_json(),
        "seconds": stack.seconds,
        "ended": stack.ended,
    }


def head_of(record: Any, tensors: dict[str, Any], file: str) -> Compiled:
    """One head of a stack."""
    return Compiled(**layers.parts_of(tensors, record, file), standing="stated")


def is_stack(record: Any) -> bool:
    """Whether the record of a file is that of a stack."""
    return isinstance(record, dict) and record.get("method") == "stack"


def read(path: str | Path) -> dict[str, Any]:
    """The parts of a saved stack, as `Stack` takes them; BadInput for anything else."""
    from maxaffine.stack.stack import NodeProof

    tensors, record = read_container(path)
    try:
        target = Target.from_json(record["target"])
        listed = record["heads"]
        own: list[dict[str, Any]] = [{} for _ in listed]
        for name, tensor in tensors.items():
            _, number, rest = name.split(".", 2)
            own[int(number)][rest] = tensor
        heads = tuple(head_of(one, part, str(path)) for one, part in zip(listed, own, strict=True))
        return {
            "target": target,
            "plan": StackPlan.read(record["stack"], target.box.names, len(heads)),
            "heads": heads,
            "certificate": Certificate.from_json(record["certificate"]),
            "nodes": tuple(NodeProof(**one) for one in record["nodes"]),
            "literal": layers.claims_in(record.get("literal", {})),
            "observed": Observed.from_json(record["observed"]),
            "error": float(record["error"]),
            "style": str(record["style"])[:20],
            "file": str(path),
        }
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as failure:
        raise BadInput(f"{str(path)!r} does not hold a stack: {failure}.") from None
