"""An experiment as data: a claim, settings in words, work units, one function per unit, a verdict rule fixed before the run.

A unit is a dictionary of JSON values with an "id" that no other unit has.  `run` turns one unit into a `Result`; given the
unit, the parameters and the data its values never differ on the same machine, so units can be done in any order, in any
process, and again after an interruption.  `verdict`, `table` and `draw` see all results in the order of `units`, as
{"unit": ..., "values": ...}, read back from the file: tuples have become lists, NaN and infinities None.

The experiments of the lab keep what is no code, claim, protocol, rule and parameters, in a TOML file beside their module.
"""

import itertools
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput

if TYPE_CHECKING:
    from maxaffine.lab.data import DataSource

Parameters = Mapping[str, Any]
Unit = Mapping[str, Any]
Row = dict[str, Any]
Rows = Sequence[Row]
Numbers = dict[str, float | int | str | bool]
Cells = tuple[str | float | int, ...]

REPRODUCED, NOT_REPRODUCED, EXPLAINED, INCOMPLETE = "reproduced", "not reproduced", "reproduced, but explained by ", "incomplete"


@dataclass(frozen=True)
class Verdict:
    """What the rule says of the results: an outcome, one sentence for a reader, and the numbers that decided it."""

    outcome: str
    sentence: str
    numbers: Mapping[str, float | int | str | bool]

    def __post_init__(self) -> None:
        explained = self.outcome.startswith(EXPLAINED) and len(self.outcome) > len(EXPLAINED)
        if self.outcome not in (REPRODUCED, NOT_REPRODUCED, INCOMPLETE) and not explained:
            raise BadInput(
                f"`outcome` (={self.outcome!r}) must be {REPRODUCED!r}, {NOT_REPRODUCED!r}, {INCOMPLETE!r} or "
                f"{EXPLAINED + '...'!r} with the explanation."
            )


@dataclass(frozen=True)
class Table:
    """The numbers a reader wants beside the figure."""

    header: tuple[str, ...]
    rows: Sequence[Cells]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise BadInput(f"a row of the table has {len(row)} cells under {len(self.header)} headings: {row!r}.")


@dataclass(frozen=True)
class Result:
    """What a unit found: values that JSON can hold, and arrays that are kept beside them."""

    values: Mapping[str, Any]
    tensors: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """Where a unit runs."""

    device: str  # "cpu" or "cuda"
    data: "DataSource | None"  # None for experiments without data sets
    folder: Path  # scratch of this unit, inside the run; removed once the unit is done
    report: Callable[[str, float], None] = lambda name, value: None  # the current metric, for whoever watches


@dataclass(frozen=True)
class Experiment:
    """One entry of the lab."""

    name: str
    version: int  # changes with the protocol or the verdict rule; results of two versions are never mixed
    claim: str  # what the paper says, in one sentence
    paper: str  # where it says so
    protocol: str  # markdown: every setting in words
    rule: str  # the verdict rule in words, fixed before the run
    parameters: Parameters  # defaults, values of JSON; "seeds" is the number of seeds, 0 to seeds - 1
    quick: Parameters  # what --quick puts in their place
    units: Callable[[Parameters], list[dict[str, Any]]]
    run: Callable[[Unit, Parameters, Context], Result]
    verdict: Callable[[Rows, Parameters], Verdict]
    draw: Callable[[Rows, Parameters, Path], None]
    table: Callable[[Rows, Parameters], Table]
    datasets: tuple[str, ...] = ()  # of "mnist", "fashion-mnist", "cifar10"; a parameter "datasets" may narrow them
    splits: str = "no data set: everything is made from the seed, nothing is split"

    @classmethod
    def described(
        cls, module: str, *functions: Callable[..., Any], words: Mapping[str, str] | None = None, **defaults: Any
    ) -> "Experiment":
        """The experiment that the TOML file beside `module` describes; `functions` are units, run, verdict, draw and table.

        `words` stand for {name} in protocol and rule, `defaults` for parameters that are computed.
        """
        about = tomllib.loads(Path(module).with_suffix(".toml").read_text(encoding="utf-8"))
        for name, text in (words or {}).items():
            about |= {key: about[key].replace("{" + name + "}", text) for key in ("protocol", "rule")}
        about["parameters"] |= defaults
        about["datasets"] = tuple(about.get("datasets", ()))
        about |= zip(("units", "run", "verdict", "draw", "table"), functions, strict=True)
        return cls(**about)

    def needs(self, parameters: Parameters) -> tuple[str, ...]:
        """The data sets that these parameters ask for."""
        chosen = parameters.get("datasets", self.datasets)
        return tuple(name for name in self.datasets if name in chosen)


def sweep(id_: str, **axes: Iterable[Any]) -> list[dict[str, Any]]:
    """One unit per combination of the axes, the last one running fastest; `id_` is the format of its id."""
    found = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    return [{"id": id_.format(**unit), **unit} for unit in found]


def select(results: Rows, **unit: Any) -> list[dict[str, Any]]:
    """The values of the results whose unit has these entries."""
    return [row["values"] for row in results if all(row["unit"].get(key) == value for key, value in unit.items())]


def curves(results: Rows, quantity: str, **unit: Any) -> Array:
    """One quantity of those results, stacked: (seeds, levels) where every unit is a seed; empty where nothing was run."""
    return np.array([values[quantity] for values in select(results, **unit) if quantity in values], dtype=np.float64)
