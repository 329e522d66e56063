"""A layer as plain data: its record in a file, read again into the parts of a layer; and the object that `--json` prints."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from maxaffine._version import __version__
from maxaffine.core.budget import Cost
from maxaffine.core.container import read_container
from maxaffine.core.errors import BadInput
from maxaffine.core.outdated import refuse_outdated
from maxaffine.layer.file import from_tensors, to_tensors
from maxaffine.layer.temperature import Sharpened
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.observe import Observed
from maxaffine.report import by_output
from maxaffine.target.target import Target

if TYPE_CHECKING:
    from pathlib import Path

    from maxaffine.compiled import Compiled

COST = ("tokens", "bytes", "peak_bytes", "flops_per_query")


def record_of(compiled: Compiled) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors and record of a layer."""
    c = compiled
    tensors, description = to_tensors(c.weights)
    certificate, literal = c.filed or (c.certificate, c.literal)
    return tensors, {
        "layer": description,
        "target": c.target.to_json(),
        "method": c.method,
        "attention": c.attention_kind,
        "error": c.error,
        **({} if c.errors is None else {"errors": list(c.errors)}),
        "norm": certificate.norm_label,
        "certificate": certificate.to_json(),
        "literal": {name: claim(bound) for name, bound in literal.items()},
        "observed": c.observed.to_json(),
        "plan": dict(c.plan),
        "cost": c.cost.to_json(),
        "declared": dict(c.declared),
        "provenance": {"maxaffine": __version__},
    }


def summary_of(compiled: Compiled) -> dict[str, Any]:
    """The object that `--json` prints."""
    c = compiled
    parts = {name: c.certificate.parts.get(name) for name in ("approximation", "leakage", "rounding", "target_rounding")}
    return {
        "target": c.target.name or c.target.text or "callable",
        "method": c.method,
        "argument": c.certificate.argument,
        "attention": c.attention_kind,
        "tokens": c.tokens,
        "counts": list(c.weights.keys.shape),
        "layout": c.weights.layout(),
        "error": c.error,
        **({} if c.errors is None else {"errors": list(c.errors)}),
        "norm": c.certificate.norm_label,
        "bound": None if c.bound is None else float(c.bound),
        "standing": c.standing,
        "literal": {name: claim(bound) for name, bound in c.literal.items()},
        "kind": c.certificate.kind,
        "observed": c.observed.error,
        "observed_at": list(c.observed.at),
        "observed_standard_error": c.observed.standard_error,
        "sharpness": c.sharpness,
        "sharpened": Sharpened.of(c.plan, c.error).record().get("sharpened"),
        "dtype": c.dtype,
        "parts": parts if c.bound is not None else None,
        "assumptions": list(c.certificate.assumptions),
        "scope": c.certificate.scope.to_json(),
        **({} if c.certificate.least is None else {"least": c.certificate.least}),
        **({} if not c.weights.several else {"outputs": by_output.rows(c)}),
        **({} if c.certificate.drawn is None else {"drawn": c.certificate.drawn.to_json()}),
        "bytes": c.weights.nbytes,
        "seconds": c.seconds,
        "ended": None if c.found is None else c.found.ended,
        "calls": c.calls,
        "file": c.file,
    }


def read(path: str | Path) -> dict[str, Any]:
    """The fields of the Compiled that a file holds; BadInput where it holds none."""
    tensors, record = read_container(path)
    return parts_of(tensors, record, str(path))


def parts_of(tensors: dict[str, Any], record: dict[str, Any], file: str) -> dict[str, Any]:
    """The same of what was read from a file."""
    refuse_outdated(record)
    try:
        layer, target = from_tensors(tensors, record["layer"]), Target.from_json(record["target"])
        if layer.d_out != target.d_out or layer.n_out != target.n_out or layer.inputs != target.input_shapes:
            raise BadInput("its layer and its target have different shapes")
        if not (np.array_equal(layer.low, target.box.low) and np.array_equal(layer.high, target.box.high)):
            raise BadInput("its layer and its target have different boxes")
        Sharpened.of(record["plan"], float(record["error"]))
        return {
            "target": target,
            "weights": layer,
            "certificate": Certificate.from_json(record["certificate"]),
            "observed": Observed.from_json(record["observed"]),
            "error": float(record["error"]),
            "method": str(record["method"]),
            "attention_kind": str(record["attention"]),
            "plan": dict(record["plan"]),
            "cost": Cost(*(int(record["cost"][name]) for name in COST)),
            "declared": dict(record["declared"]),
            "errors": None if record.get("errors") is None else tuple(float(one) for one in record["errors"]),
            "file": file,
            "stated": claims_in(record.get("literal", {})),
        }
    except (KeyError, TypeError, ValueError, AttributeError) as failure:
        raise BadInput(f"{file!r} does not hold a compiled layer: {failure}.") from None


def claim(bound: float | str) -> dict[str, float | str]:
    """A bound of the literal softmax as a file has it, or why there is none."""
    return {"why": bound} if isinstance(bound, str) else {"bound": float(bound)}


def claims_in(record: Any) -> dict[str, float | str]:
    """What a file states of the literal softmax; other things in their place say nothing."""
    found: dict[str, float | str] = {}
    for name in ("float64", "float32"):
        stated = record.get(name) if isinstance(record, dict) else None
        if isinstance(stated, dict):
            bound = stated.get("bound")
            good = isinstance(bound, (int, float)) and not isinstance(bound, bool) and math.isfinite(bound)
            found[name] = float(bound) if good else str(stated.get("why", "nothing is stated of it"))[:300]  # type: ignore[arg-type]
    return found
