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
    from maxaffine.compiled import Compiled, load
    from maxaffine.compiler import compile
    from maxaffine.core.errors import BadInput, Refused
    from maxaffine.inspection.head import inspect
    from maxaffine.layer.layer import Layer
    from maxaffine.layer.maxaffine import MaxAffine
    from maxaffine.proofs.certificate import Certificate
    from maxaffine.regressor import MaxAffineRegressor
    from maxaffine.report.diagnosis import diagnose
    from maxaffine.target.box import Box
    from maxaffine.target.facts import Analytic, ConcaveModulus, Derivatives, IntegralModulus, TotalVariation
    from maxaffine.target.gallery import gallery
    from maxaffine.target.piecewise_affine import PiecewiseAffine, ReluNetwork
    from maxaffine.target.samples import Samples
    from maxaffine.target.table import Table
    from maxaffine.target.target import Target

_HOMES = {
    "Analytic": "maxaffine.target.facts",
    "BadInput": "maxaffine.core.errors",
    "Box": "maxaffine.target.box",
    "Certificate": "maxaffine.proofs.certificate",
    "Compiled": "maxaffine.compiled",
    "ConcaveModulus": "maxaffine.target.facts",
    "Derivatives": "maxaffine.target.facts",
    "IntegralModulus": "maxaffine.target.facts",
    "Layer": "maxaffine.layer.layer",
    "MaxAffine": "maxaffine.layer.maxaffine",
    "MaxAffineRegressor": "maxaffine.regressor",
    "PiecewiseAffine": "maxaffine.target.piecewise_affine",
    "Refused": "maxaffine.core.errors",
    "ReluNetwork": "maxaffine.target.piecewise_affine",
    "Samples": "maxaffine.target.samples",
    "Table": "maxaffine.target.table",
    "Target": "maxaffine.target.target",
    "TotalVariation": "maxaffine.target.facts",
    "compile": "maxaffine.compiler",
    "diagnose": "maxaffine.report.diagnosis",
    "gallery": "maxaffine.target.gallery",
    "inspect": "maxaffine.inspection.head",
    "load": "maxaffine.compiled",
}

__all__ = [
    "Analytic",
    "BadInput",
    "Box",
    "Certificate",
    "Compiled",
    "ConcaveModulus",
    "Derivatives",
    "IntegralModulus",
    "Layer",
    "MaxAffine",
    "MaxAffineRegressor",
    "PiecewiseAffine",
    "Refused",
    "ReluNetwork",
    "Samples",
    "Table",
    "Target",
    "TotalVariation",
    "__version__",
    "compile",
    "diagnose",
    "gallery",
    "inspect",
    "load",
    "meanfield",
]


def __getattr__(name: str) -> Any:
    if name == "meanfield":
        return import_module("maxaffine.meanfield")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'maxaffine' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
