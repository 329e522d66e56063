"""Units as sweeps over axes, and results read back along the same axes."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.lab.experiment import Row


def sweep(id_: str, **axes: Iterable[Any]) -> list[dict[str, Any]]:
    """One unit per combination of the axes, the last one running fastest; `id_` is the format of its id."""
    found = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    return [{"id": id_.format(**unit), **unit} for unit in found]


def select(results: Sequence[Row], **unit: Any) -> list[dict[str, Any]]:
    """The values of the results whose unit has these entries."""
    return [row["values"] for row in results if all(row["unit"].get(key) == value for key, value in unit.items())]


def curves(results: Sequence[Row], quantity: str, **unit: Any) -> NDArray[np.float64]:
    """One quantity of those results, stacked: (seeds, levels) where every unit is a seed; empty where nothing was run."""
    return np.array([values[quantity] for values in select(results, **unit) if quantity in values], dtype=np.float64)
