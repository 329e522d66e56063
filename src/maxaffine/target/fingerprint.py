"""A fingerprint of a callable: its code, and the plain values that it was given, but for what it counts with.

Evaluations that are kept on disk must belong to the function that asks for them.  Taken are the code of the function and of the
functions that it names, constants, defaults, the values of closures, globals and attributes where these are plain (numbers,
texts, arrays); left out are names that the code itself assigns, which are counters and caches.  What hides deeper stays unseen.
"""

import dis
import functools
import hashlib
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)
DEEPEST = 6


class Sums:
    """Two sums: of code, which is the same in every process of one version of Python, and of what it was given."""

    def __init__(self) -> None:
        self.code, self.given = hashlib.sha256(), hashlib.sha256()


def fingerprint(function: Any) -> tuple[str, str]:
    """SHA-256 of the code of a callable, and of the plain values that it was given."""
    found = Sums()
    _add(found, function, set(), 0)
    return found.code.hexdigest(), found.given.hexdigest()


def _add(found: Sums, thing: Any, seen: set[int], depth: int) -> None:
    """Everything about a value that is plain, or a function, or made of such."""
    if depth > DEEPEST or id(thing) in seen:
        return
    if isinstance(thing, PLAIN):
        found.given.update(repr(thing).encode())
    elif isinstance(thing, np.ndarray) and thing.dtype.kind in "fiubc":
        found.given.update(str((thing.shape, thing.dtype.str)).encode() + thing.tobytes())
    elif isinstance(thing, (tuple, list)):
        for one in thing:
            _add(found, one, seen, depth + 1)
    elif isinstance(thing, dict):
        for key in sorted(thing, key=str):
            found.given.update(str(key).encode())
            _add(found, thing[key], seen, depth + 1)
    elif isinstance(thing, functools.partial):
        _add(found, (thing.func, thing.args, thing.keywords), seen, depth + 1)
    elif isinstance(thing, MethodType):
        _add(found, (thing.__func__, thing.__self__), seen, depth + 1)
    elif isinstance(thing, FunctionType):
        seen.add(id(thing))
        _function(found, thing, seen, depth)
    elif isinstance(vars(type(thing)).get("__call__"), FunctionType):
        seen.add(id(thing))
        _object(found, thing, seen, depth)


def _function(found: Sums, function: FunctionType, seen: set[int], depth: int) -> None:
    code = function.__code__
    _code(found, code)
    assigned, named = _assigned(code), _names(code)
    _add(found, (function.__defaults__, function.__kwdefaults__), seen, depth + 1)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        if name not in assigned:
            try:
                _add(found, cell.cell_contents, seen, depth + 1)
            except ValueError:  # an empty cell
                continue
    for name in sorted(named - assigned):
        if name in function.__globals__:
            _add(found, function.__globals__[name], seen, depth + 1)


def _object(found: Sums, thing: Any, seen: set[int], depth: int) -> None:
    """The methods of an object's class, and its attributes that no method assigns after it was made."""
    methods = [value for _, value in sorted(vars(type(thing)).items()) if isinstance(value, FunctionType)]
    assigned = set().union(*(_assigned(one.__code__) for one in methods if one.__name__ != "__init__"))
    for method in methods:
        _function(found, method, seen, depth + 1)
    attributes = {name: value for name, value in getattr(thing, "__dict__", {}).items() if name not in assigned}
    _add(found, attributes, seen, depth + 1)


def _code(found: Sums, code: CodeType) -> None:
    found.code.update(code.co_code + repr(code.co_names).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _code(found, constant)
        else:
            found.code.update(repr(sorted(constant, key=repr) if isinstance(constant, frozenset) else constant).encode())


def _names(code: CodeType) -> set[str]:
    return set(code.co_names).union(*(_names(one) for one in code.co_consts if isinstance(one, CodeType)))


def _assigned(code: CodeType) -> set[str]:
    """Names that the code assigns outside of itself: globals, cells of others, attributes."""
    here = {str(one.argval) for one in dis.get_instructions(code) if one.opname in ("STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR")}
    return here.union(*(_assigned(one) for one in code.co_consts if isinstance(one, CodeType)))
