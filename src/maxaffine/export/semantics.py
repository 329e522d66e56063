"""What an export says about itself: inputs, outputs, domain, the layer's certificate, and the statement of its own route."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maxaffine._version import __version__

if TYPE_CHECKING:
    from maxaffine.proofs.certificate import Certificate
    from maxaffine.proofs.observe import Observed
    from maxaffine.proofs.statement import Statement
    from maxaffine.target.target import Target

CLAMP = "inputs outside the box are moved to the nearest point of it"


def semantics(
    target: Target, certificate: Certificate, observed: Observed, error: float, method: str, dtype: str, said: Statement
) -> dict[str, Any]:
    """A plain dictionary, JSON without NaN or infinities."""
    boxes = target.boxes or (target.box,)
    return {
        "target": target.name or target.text or "callable",
        "inputs": [
            {"names": list(box.names), "low": box.low.tolist(), "high": box.high.tolist(),
             "shape": ["batch", box.d, box.n] if box.is_sequence else ["batch", box.dimension]}
            for box in boxes
        ],
        "output": ["batch", *target.output_shape],
        "outside": CLAMP,
        "error": error,
        "norm": certificate.norm_label,
        "method": method,
        "dtype": dtype,
        "certificate": certificate.to_json(),
        "observed": observed.error,
        "statement": said.to_json(),
        "producer": f"maxaffine {__version__}",
    }  # fmt: skip
