"""What an exported file or module says about itself: inputs, outputs, domain, certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maxaffine._version import __version__

if TYPE_CHECKING:
    from maxaffine.certify.certificate import Certificate
    from maxaffine.certify.observe import Observed
    from maxaffine.target.target import Target

CLAMP = "inputs outside the box are moved to the nearest point of it"


def semantics(
    target: Target, certificate: Certificate, observed: Observed, error: float, method: str, dtype: str
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
        "certificate_covers": f"{_layer(method)} in {dtype} run by maxaffine; the table of this export says what the export adds",
        "producer": f"maxaffine {__version__}",
    }  # fmt: skip


def _layer(method: str) -> str:
    """What was certified; an export is a softmax, whatever the layer is."""
    return "the layer" if method != "hard" else "the nearest entry, and not the softmax that this export is,"
