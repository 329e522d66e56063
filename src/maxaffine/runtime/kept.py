"""What is made once of a frozen layer or group, and kept as long as that lives."""

import weakref
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

_KEPT: dict[int, tuple[weakref.ref[Any], dict[Hashable, Any]]] = {}


def kept(owner: object, key: Hashable, make: Callable[[], T]) -> T:
    """`make()`, called once for every owner and key: owners are frozen, so the same object has the same numbers."""
    number = id(owner)
    held = _KEPT.get(number)
    if held is None or held[0]() is not owner:
        forget = partial(_KEPT.pop, number)  # called with the dead reference, which serves as pop's default
        held = weakref.ref(owner, forget), {}
        _KEPT[number] = held
    if key not in held[1]:
        held[1][key] = make()
    found: T = held[1][key]
    return found
