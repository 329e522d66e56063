"""How a user's function wants to be called: with one batch or with one argument per variable, with NumPy's arrays or torch's."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.core.errors import BadInput
from maxaffine.target.box import Box

KINDS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Called:
    """The function behind one signature, arrays of NumPy in and out.

    `order`: which coordinate each argument is, where the function takes one argument per variable; None for whole batches.
    `tensors`: the dtype of the tensors that it takes in place of NumPy's arrays, None for arrays.
    """

    function: Callable[..., Any]
    order: tuple[int, ...] | None = None
    tensors: str | None = None
    single: bool = False  # whether it is called one point at a time
    keywords: tuple[str, ...] = ()  # names that the arguments are given by, where they are not the first ones

    def __call__(self, *inputs: Any) -> Any:
        """What the function returns, several results stacked behind one another."""
        given = inputs
        if self.order is not None:  # of a single point numbers, not arrays without axes, which are no keys of a dictionary
            x = inputs[0]
            given = tuple(x[i] if x.ndim == 1 else x[..., i] for i in self.order)
        if self.tensors is None:
            return self.gathered(self.given(self.function, given))
        import torch

        dtype = torch.float32 if self.tensors == "float32" else torch.float64
        with torch.no_grad():
            found = self.given(self.function, [torch.as_tensor(np.array(part), dtype=dtype) for part in given])
        many = isinstance(found, (tuple, list))
        return self.gathered([_plain(one) for one in found] if many else _plain(found))

    def given(self, function: Callable[..., Any], values: Sequence[Any]) -> Any:
        """The function of these values, by position or by name."""
        if self.keywords:
            return function(**dict(zip(self.keywords, values, strict=True)))
        return function(*values)

    @staticmethod
    def gathered(found: Any) -> Any:
        """Several results, each one per point, as the columns of one array."""
        if not isinstance(found, (tuple, list)) or not found:
            return found
        columns = [one[:, 0] if np.ndim(one) == 2 and np.shape(one)[1] == 1 else one for one in found]
        if all(np.ndim(one) <= 1 for one in columns):
            return np.stack(np.broadcast_arrays(*columns), axis=-1)
        return found

    @property
    def __name__(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def says(self, box: Box) -> str:
        """In words, how the function was called."""
        if self.order is not None:
            words = f"one argument per variable ({', '.join(box.names[i] for i in self.order)})"
        else:
            shape = (box.d, box.n) if box.is_sequence else (box.dimension,)
            words = f"one point of shape {shape}" if self.single else f"one batch of shape (B, {', '.join(map(str, shape))})"
        words += ", one point at a time" if self.single else ""
        return words if self.tensors is None else f"{words} of {self.tensors} tensors"


def _plain(value: Any) -> Any:
    """A tensor as an array of NumPy, which lacks bfloat16."""
    if not hasattr(value, "detach"):
        return value
    tensor = value.detach().cpu()
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()


def signature(function: Callable[..., Any], box: Box, pair: bool) -> Called:
    """The signature of a function: BadInput where it fits neither a batch nor the variables of the box."""
    parameters = None if pair or box.is_sequence else _positional(function)
    if parameters is None:
        return Called(function)
    required, most, names = parameters
    D, by_name = box.dimension, set(box.names) <= set(names) and set(names[:required]) <= set(box.names)
    if D > 1 and by_name:  # whatever the order of the arguments
        taken = tuple(name for name in names if name in box.names)
        plain = taken == names[:D]
        return Called(function, tuple(box.names.index(name) for name in taken), keywords=() if plain else taken)
    if required <= 1 <= most and (D == 1 or required == 1 or most != D):
        return Called(function)
    if required == D or (required == 0 and most == D):
        return Called(function, tuple(range(D)))
    shown, variables = ", ".join(names[: max(required, 1)][:8]), f"variable{'s' if D > 1 else ''}"
    raise BadInput(
        f"the target takes {required} arguments ({shown}) and the box has {D} {variables} ({', '.join(box.names[:8])}); it must "
        f"take one batch X of shape (B, {D}), or one argument per variable."
    )


def _positional(function: Any) -> tuple[int, int, tuple[str, ...]] | None:
    """Least and most positional arguments, and their names; None where nothing is known."""
    if isinstance(function, np.ufunc):
        return function.nin, function.nin, tuple(f"x{i + 1}" for i in range(function.nin))
    if is_module(function):
        function = function.forward
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    plain = [p for p in parameters if p.kind in KINDS]
    required = sum(p.default is inspect.Parameter.empty for p in plain)
    open_end = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
    return required, 10_000 if open_end else len(plain), tuple(p.name for p in plain)


def is_module(function: Any) -> bool:
    """Whether something is a torch.nn.Module; torch is not imported for it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(function, torch.nn.Module)
