"""What is made once of a frozen layer or group, and kept as long as that lives."""

import weakref
from collections.abc import Callable, Hashable
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

Owner = TypeVar("Owner")
P = ParamSpec("P")
T = TypeVar("T")

_KEPT: dict[int, tuple[weakref.ref[Any], dict[Hashable, Any]]] = {}


def once(make: Callable[Concatenate[Owner, P], T]) -> Callable[Concatenate[Owner, P], T]:
    """`make`, called once for every owner (its first argument) and the rest: the same frozen object has the same numbers."""

    @wraps(make)
    def found(owner: Owner, /, *args: P.args, **named: P.kwargs) -> T:
        number = id(owner)
        held = _KEPT.get(number)
        if held is None or held[0]() is not owner:
            forget = partial(_KEPT.pop, number)  # called with the dead reference, which serves as pop's default
            held = _KEPT[number] = weakref.ref(owner, forget), {}
        key = (make, args, *named.items())
        if key not in held[1]:
            held[1][key] = make(owner, *args, **named)
        known: T = held[1][key]
        return known

    return found
