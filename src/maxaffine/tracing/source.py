"""The target of whatever was given: functions of Python become expressions where they can be read, else stay black boxes."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from maxaffine.core.errors import BadInput
from maxaffine.expression.expression import Expression
from maxaffine.expression.grammar import MAX_CHARACTERS
from maxaffine.target.box import Box
from maxaffine.target.piecewise_affine import PiecewiseAffine, ReluNetwork
from maxaffine.target.target import BoxOrPair, Target, boxes_of
from maxaffine.tracing.calling import Called, is_module, signature
from maxaffine.tracing.reading import Reading
from maxaffine.tracing.trace import read

LONGEST = 60  # characters of a name


def target_of(
    source: Any, box: BoxOrPair, *, vectorize: bool = False, trace: bool = True, longest: int = MAX_CHARACTERS,
    shape: tuple[int, ...] | None = None,
) -> Target:  # fmt: skip
    """The target of an expression, a function, a torch module, a formula of SymPy, or of what `Target.of` takes.

    `shape` of the outputs, where it is known: then nobody has to call a black box to see it.
    """
    if _is_formula(source):
        from maxaffine.tracing.sympy_formulas import read_formula

        joined, _ = boxes_of(box)
        reading = read_formula(source, joined)
        made = Target.of(str(reading.text), box, output_shape=reading.output_shape)
        return replace(made, traced=reading)
    if not _is_function(source):
        return Target.of(source, box, vectorize=vectorize)
    joined, boxes = boxes_of(box)
    called = signature(source, joined, boxes is not None)
    name = str(getattr(source, "__name__", type(source).__name__))[:LONGEST].replace("<lambda>", "lambda")
    where = boxes or joined
    reading = Reading(name, called.says(joined), why="it was not asked for")
    if trace:
        reading, called = read(called, joined, boxes, vectorize, name, longest)
    if reading.text is None:
        try:
            return replace(_black_box(called, where, vectorize, name, shape), traced=reading if trace else None)
        except BadInput as failure:
            other = _by_tensors(called, where, vectorize, name)
            if other is None and not vectorize and boxes is None:
                other, vectorize = _by_point(called, joined, name), True
            if other is None:
                raise BadInput(f"{failure} Nor could it be read as a formula: {reading.why}.") from None if trace else failure
        reading = replace(reading, how=other.says(joined))
        if trace:
            reading, other = read(other, joined, boxes, vectorize, name, longest)
        if reading.text is None:
            return replace(_black_box(other, where, vectorize, name), traced=reading if trace else None)
    made = Target.of(reading.text, where, output_shape=reading.output_shape, name=None if name == "lambda" else name)
    return replace(made, traced=reading)


def _black_box(called: Called, box: BoxOrPair, vectorize: bool, name: str, shape: tuple[int, ...] | None = None) -> Target:
    """The function as it is, or behind its signature where that is not one batch of NumPy's."""
    plain = called.order is None and called.tensors is None
    source = called.function if plain else called
    return Target.of(source, box, vectorize=vectorize, name=name, output_shape=shape, probe=shape is None)


def _by_tensors(called: Called, box: BoxOrPair, vectorize: bool, name: str) -> Called | None:
    """The function given tensors, where it takes those and not NumPy's arrays; None where torch was not imported."""
    if "torch" not in sys.modules or called.tensors is not None:
        return None
    for dtype in ("float64", "float32"):
        one = replace(called, tensors=dtype)
        try:
            _black_box(one, box, vectorize, name)
        except BadInput:
            continue
        return one
    return None


def _by_point(called: Called, box: Box, name: str) -> Called | None:
    """How a function that takes no batches wants a single point: as numbers, or as one array; None where neither works."""
    numbers = called.order or ((0,) if box.dimension == 1 else None)
    for order in dict.fromkeys((numbers, called.order)):
        one = replace(called, order=order, single=True)
        try:
            _black_box(one, box, True, name)
        except BadInput:
            continue
        return one
    return None


def _is_function(source: Any) -> bool:
    """A callable that is no target, table, network or law by itself."""
    if isinstance(source, (str, Target, Expression, ReluNetwork, PiecewiseAffine, Box)) or hasattr(type(source), "target"):
        return False
    if isinstance(source, type):
        raise BadInput(f"the target is the class {source.__name__}; give a function, or an instance that can be called.")
    return callable(source) and (is_module(source) or not hasattr(source, "target"))


def _is_formula(source: Any) -> bool:
    """Whether something is a formula of SymPy, or a list or a matrix of them; SymPy is not imported for it."""
    sympy = sys.modules.get("sympy")
    if sympy is None:
        return False
    if isinstance(source, (list, tuple)):
        return bool(source) and all(_is_formula(one) for one in source)
    return isinstance(source, (sympy.Expr, sympy.MatrixBase)) and not callable(getattr(source, "compile", None))
