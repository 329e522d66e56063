"""Rules for numbers that come from outside, each answered with a sentence."""

from __future__ import annotations

import math

from maxaffine.core.errors import BadInput


def finite(name: str, value: float, way_out: str) -> float:
    """Return ``value`` as a float, or refuse what is not a finite real number."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise BadInput(f"`{name}` (={value!r}) must be a real number; {way_out}.") from None
    if not math.isfinite(number):
        raise BadInput(f"`{name}` (={number}) must be finite; {way_out}.")
    return number


def positive(name: str, value: float, way_out: str) -> float:
    """Return ``value`` as a float > 0."""
    number = finite(name, value, way_out)
    if number <= 0:
        raise BadInput(f"`{name}` (={number:g}) must be positive; {way_out}.")
    return number


def whole(name: str, value: float, least: int, way_out: str) -> int:
    """Return ``value`` as an int >= ``least``."""
    number = finite(name, value, way_out)
    if number != math.floor(number) or number < least:
        raise BadInput(f"`{name}` (={value!r}) must be a whole number >= {least}; {way_out}.")
    return int(number)
