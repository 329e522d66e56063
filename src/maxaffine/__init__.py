"""maxaffine: compile functions into the weights of one softmax attention layer, with a proved error.

    import maxaffine as ma
    layer = ma.compile("sin(x) + cos(y)", ma.Box(x=(-3, 3), y=(-3, 3)), error=0.1)
    layer.tokens, layer.certificate.bound, layer([0.5, 1.0])

Importing this needs NumPy alone; everything else loads at first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from maxaffine._version import __version__

if TYPE_CHECKING:
    from maxaffine import meanfield
    from maxaffine.compiled import Compiled
    from maxaffine.compiler import compile, load
    from maxaffine.core.errors import BadInput, MaxaffineError, Refused
    from maxaffine.frontier import plan
    from maxaffine.inspection.head import inspect
    from maxaffine.layer.layer import Layer
    from maxaffine.layer.maxaffine import MaxAffine
    from maxaffine.proofs.certificate import Certificate
    from maxaffine.proofs.statistical import Statistical
    from maxaffine.regressor import MaxAffineRegressor
    from maxaffine.report.diagnosis import diagnose
    from maxaffine.run import Run
    from maxaffine.stack.stack import Stack
    from maxaffine.target.box import Box
    from maxaffine.target.declare import Analytic, ConcaveModulus, Derivatives, IntegralModulus, TotalVariation
    from maxaffine.target.gallery import gallery
    from maxaffine.target.piecewise_affine import PiecewiseAffine, ReluNetwork
    from maxaffine.target.samples import Samples
    from maxaffine.target.table import Table
    from maxaffine.target.target import Target
    from maxaffine.temperatures import sweep
    from maxaffine.validate import check

_NAMES = {
    "compiled": "Compiled",
    "compiler": "compile load",
    "core.errors": "BadInput MaxaffineError Refused",
    "frontier": "plan",
    "inspection.head": "inspect",
    "layer.layer": "Layer",
    "layer.maxaffine": "MaxAffine",
    "proofs.certificate": "Certificate",
    "regressor": "MaxAffineRegressor",
    "temperatures": "sweep",
    "report.diagnosis": "diagnose",
    "run": "Run",
    "proofs.statistical": "Statistical",
    "stack.stack": "Stack",
    "target.box": "Box",
    "target.declare": "Analytic ConcaveModulus Derivatives IntegralModulus TotalVariation",
    "target.gallery": "gallery",
    "target.piecewise_affine": "PiecewiseAffine ReluNetwork",
    "target.samples": "Samples",
    "target.table": "Table",
    "target.target": "Target",
    "validate": "check",
}
_HOMES = {name: f"maxaffine.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Analytic", "BadInput", "Box", "Certificate", "Compiled", "ConcaveModulus", "Derivatives", "IntegralModulus", "Layer",
    "MaxAffine", "MaxAffineRegressor", "MaxaffineError", "PiecewiseAffine", "Refused", "ReluNetwork", "Run", "Samples", "Stack",
    "Statistical", "Table", "Target", "TotalVariation", "__version__", "check", "compile", "diagnose", "gallery", "inspect",
    "load", "meanfield", "plan", "sweep",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "meanfield":
        return import_module("maxaffine.meanfield")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'maxaffine' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
