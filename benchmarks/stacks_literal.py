"""The literal blocks of a stack, as NumPy matrices, stock MultiheadAttention and ONNX, each searched for its worst point."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import maxaffine as ma
from maxaffine.export.write import module_answers, onnx_answers
from maxaffine.stack.blocks import run
from maxaffine.stack.observe import observe

AT_ONCE = 256  # points, whose tokens are all kept


def answers(stack: ma.Stack) -> dict[str, Callable[[Any], Any]]:
    """Every literal route as a function of points."""
    shapes = ((stack.box.dimension, 1),)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stack.onnx"
        stack.to_onnx(path)
        model = onnx_answers(path.read_bytes(), "float64", shapes)
    return {
        "matrices": lambda x: run(stack, x),
        "multihead": module_answers(stack.to_torch(), "float64", shapes),
        "onnx": model,
    }


def literal(stack: ma.Stack) -> dict[str, dict[str, float]]:
    """By route: the bound that is stated, and the largest error that a search finds, in units of it."""
    found = {}
    for route, answer in answers(stack).items():

        def chunked(x: Any, answer: Callable[[Any], Any] = answer) -> Any:
            parts = [x[i : i + AT_ONCE] for i in range(0, len(x), AT_ONCE)]
            return np.concatenate([np.asarray(answer(part)).reshape(len(part)) for part in parts])

        stated = stack.statement(route).bound
        assert stated is not None
        found[route] = {"stated": float(stated), "worst": float(observe(chunked, stack.target, 2).error / stated)}
    return found
