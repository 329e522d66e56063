"""What a pickle keeps of a callable: the name that it can be imported by, itself where it can be pickled, or a stand-in.

A layer runs without the function that it was compiled from, so a worker process can have the layer where it cannot have the
function: a lambda, something local, a function of a script that is not running there.  The stand-in says so when it is needed.
"""

import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from maxaffine.core.errors import BadInput


@dataclass(frozen=True)
class Absent:
    """Stands in for a callable that did not travel."""

    name: str
    why: str

    def __call__(self, *_: Any) -> Any:
        """It has no values."""
        raise BadInput(
            f"the function {self.name} did not travel with this layer ({self.why}); the layer runs without it. To compare them, "
            "pass the function itself."
        )


@dataclass(frozen=True)
class Named:
    """A function on its way, by the names of its module and itself."""

    module: str
    name: str

    def __reduce__(self) -> Any:
        return found, (self.module, self.name)


def carried(function: Callable[..., Any]) -> Any:
    """What a pickle holds in the place of a callable."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if isinstance(module, str) and isinstance(name, str):
        if "<" in name:
            return Absent(name, "it has no name that it can be imported by")
        if _attribute(sys.modules.get(module), name) is function:
            return Named(module, name)
    try:
        pickle.dumps(function)
    except Exception as failure:
        return Absent(name or type(function).__name__, f"pickle says: {failure}"[:200])
    return function


def found(module: str, name: str) -> Any:
    """The function of these names, or a stand-in where there is none here."""
    try:
        function = _attribute(import_module(module), name)
    except Exception:
        function = None
    return function if callable(function) else Absent(name, f"`{module}` has no {name} in this process")


def _attribute(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part, None)
    return module
