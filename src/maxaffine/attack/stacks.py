"""The attack on stacks: random formulas, the worst point of each, nodes that err as much as they may, and forged files.

Four things are tried of every stack.  The error |stack - formula| is maximised.  Exact nodes are moved by their beta
(moved_nodes.py).  The literal blocks are run at the worst points.  And the record is changed: what no longer describes a proof
must not pass the checker (forged_stacks.py).  Every formula has a seed of its own, so that an attack can stop and go on.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.attack.case import Rng
from maxaffine.attack.forged_stacks import passed_lies
from maxaffine.attack.moved_nodes import moved
from maxaffine.attack.stack_targets import MOST, operations, random_formula
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.progress import Progress, silent
from maxaffine.run import Run
from maxaffine.stack.blocks import run as run_literally
from maxaffine.stack.observe import observe
from maxaffine.stack.stack import Stack

LIES = 4  # forged records of every stack
SECONDS = 30.0  # that one formula may take
DEEPEST = 1_000  # layers; a number, so that what no stack serves is not tried with one layer


@dataclass
class Attacked:
    """What was found of one formula; ratios are in units of the bound, below 1 if all is well."""

    number: int
    formula: str
    box: dict[str, tuple[float, float]]
    operations: int
    error: float
    refused: str = ""  # why there is no stack
    layers: int = 0
    tokens: int = 0
    nodes: int = 0
    bound: float = 0.0
    worst: float = 0.0
    worst_moved: float = 0.0
    worst_literal: float = 0.0
    unconfirmed: str = ""  # why the checker does not confirm it
    lies: int = 0
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0  # of the processor


@dataclass
class Tally:
    """All formulas that were attacked."""

    seed: int
    rows: list[Attacked] = field(default_factory=list)

    @property
    def stacks(self) -> list[Attacked]:
        """Those that became stacks."""
        return [row for row in self.rows if not row.refused]

    @property
    def violations(self) -> list[tuple[Attacked, str]]:
        """What was found above a bound, or passed and should not."""
        return [(row, what) for row in self.rows for what in row.violations]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def lines(self) -> list[str]:
        """As a person reads it."""
        made, lies = self.stacks, sum(row.lies for row in self.rows)
        passed = sum("forged" in what for _, what in self.violations)
        told = [
            f"formulas   {len(self.rows):,}: {_spread([len(row.box) for row in self.rows])} variables, "
            f"{_spread([row.operations for row in self.rows])} operations",
            f"served     {len(made):,} stacks, {len(self.rows) - len(made):,} refused",
        ]
        if made:
            told += [
                f"stacks     {_spread([row.nodes for row in made])} nodes, {_spread([row.layers for row in made])} layers",
                f"worst      {max(row.worst for row in made):.3f} of the bound, the largest error found of a stack",
                f"moved      {max(row.worst_moved for row in made):.3f} of the bound, exact nodes moved as far as heads may err",
                f"literal    {max(row.worst_literal for row in made):.3f} of their own bound, the literal blocks",
                f"checker    {sum(not row.unconfirmed for row in made):,} of {len(made):,} confirmed",
                f"forged     {lies - passed:,} of {lies:,} records refused",
            ]
        reasons: dict[str, int] = {}
        for row in self.rows:
            if row.refused:
                reasons[_kind(row.refused)] = reasons.get(_kind(row.refused), 0) + 1
        told += [f"refused    {count:,} x {reason}" for reason, count in sorted(reasons.items(), key=lambda one: -one[1])]
        return [*told, f"above      {len(self.violations)} points or records above a bound"]


def _spread(numbers: Sequence[int]) -> str:
    """From the least to the largest, and the middle."""
    return f"{min(numbers)} to {max(numbers)} (median {np.median(numbers):g})" if numbers else "no"


def _kind(reason: str) -> str:
    """A reason without its numbers."""
    kinds = {
        "is not shown to be bounded": "a part is not shown to be bounded or in its domain",
        "is not shown to be of bounded slope": "a part is not shown to have a bounded slope",
        "rounding of the nodes": "rounding in float64 takes the whole error",
        "more digits than float64": "rounding in float64 takes the whole error",
        "max_seconds": "not within the time that one formula may take",
        "could not be shown to be finite": "the formula is not shown to be finite",
    }
    return next((kind for sign, kind in kinds.items() if sign in reason), reason.partition(": ")[2][:80] or reason[:80])


def attack_stacks(
    compile_formula: Callable[..., Any], formulas: int, seed: int, seconds: float | None = None, progress: Progress = silent,
    operations: int = MOST, each: float | None = SECONDS, record: Path | None = None,
) -> Tally:  # fmt: skip
    """Attack the stacks of so many random formulas of at most so many operations, each compiled in at most so many seconds.

    `record`: a file that gets a line for every formula; those that it holds are not attacked again.
    """
    tally, begun = Tally(seed, _recorded(record, seed)), time.perf_counter()
    tally.rows = [row for row in tally.rows if row.number < formulas]
    done = {row.number for row in tally.rows}
    for number in range(formulas):
        progress("stacks of random formulas", number, formulas)
        if number in done:
            continue
        if seconds is not None and time.perf_counter() - begun > seconds:
            break
        row = attack_formula(compile_formula, seed, number, operations, each)
        tally.rows.append(row)
        if record is not None:
            with record.open("a") as file:
                file.write(json.dumps({"seed": seed, **asdict(row)}) + "\n")
    return tally


def _recorded(path: Path | None, seed: int) -> list[Attacked]:
    """The formulas of a file of an earlier attack with this seed."""
    if path is None or not path.exists():
        return []
    names, rows = {one.name for one in fields(Attacked)}, list[Attacked]()
    for line in path.read_text().splitlines():
        try:
            found = json.loads(line)
            row = Attacked(**{name: found[name] for name in names})
        except (ValueError, KeyError, TypeError):
            raise BadInput(f"`--record` (={str(path)!r}) holds a line that is no record of this attack: {line[:60]!r}.") from None
        rows += [row] if found.get("seed") == seed else []
    return rows


def attack_formula(compile_formula: Callable[..., Any], seed: int, number: int, most: int, each: float | None) -> Attacked:
    """One random formula."""
    rng, begun = np.random.default_rng([seed, number]), time.process_time()
    formula, box = random_formula(rng, most)
    error = float(10.0 ** rng.uniform(-7.0, -1.5))
    row = Attacked(number, formula.text, {name: (a, b) for name, a, b in box}, operations(formula), error)
    run = Run(max_seconds=each, seed=number)
    try:
        made = compile_formula(formula.text, box, error=error, relative=True, layers=DEEPEST, run=run)
    except (Refused, BadInput) as refusal:
        row.refused = str(refusal)
    else:
        if isinstance(made, Stack):
            _attack(row, made, rng)
        else:
            row.refused = f"one layer does, {made.method}"
    row.seconds = round(time.process_time() - begun, 2)
    return row


def _attack(row: Attacked, stack: Stack, rng: Rng) -> None:
    bound = row.bound = float(stack.certificate.bound or 0.0)
    row.layers, row.tokens, row.nodes = stack.layers, stack.tokens, len(stack.nodes)
    found = observe(lambda x: stack.values(x)[-1], stack.target, int(rng.integers(1 << 30)))
    row.worst = found.error / bound
    pushed = moved(stack, rng)
    row.worst_moved = pushed.most / bound
    if row.worst > 1.0:
        row.violations.append(f"an error of {found.error!r} at {list(found.at)} above the bound {bound!r}")
    if row.worst_moved > 1.0:
        row.violations.append(f"moved nodes err by {pushed.most!r} at {pushed.at.tolist()}, above the bound {bound!r}")
    if pushed.escaped:
        row.violations.append(f"the arguments of {pushed.escaped} leave the box of its head")
    _literally(row, stack, np.concatenate([stack.box.sample(60, rng), [found.at, pushed.at, stack.box.low, stack.box.high]]))
    verdict = stack.check()
    row.unconfirmed = "" if verdict.passed else verdict.reason
    row.lies, passed = passed_lies(stack, rng, LIES)
    row.violations += [f"a forged record passes: {what}" for what in passed]


def _literally(row: Attacked, stack: Stack, x: Any) -> None:
    """The literal blocks against their own statement, where it states a bound and they fit into memory."""
    stated = stack.statement("matrices").bound
    if stated is None:
        return
    try:
        away = float(np.abs(run_literally(stack, x) - stack.target.values(x)[:, 0, 0]).max())
    except Refused:
        return
    row.worst_literal = away / stated
    if away > stated:
        row.violations.append(f"the literal blocks err by {away!r}, above their bound {stated!r}")
