"""The attack on stacks: random formulas, the worst point of each, nodes that err as much as they may, and forged files.

Three things are tried of every stack.  The error |stack - formula| is maximised.  Exact nodes are moved by their beta, each to
the side that makes the answer worse: the theorem says that this moves it by no more than sum W beta.  And its record is changed,
number by number and text by text: what no longer describes a proof must not pass the checker.
"""

import copy
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from maxaffine.attack.case import Rng
from maxaffine.attack.stack_targets import random_formula
from maxaffine.checker import check
from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.progress import Progress, silent
from maxaffine.run import Run
from maxaffine.stack.observe import observe
from maxaffine.stack.saved import record_of
from maxaffine.stack.stack import Stack

POINTS = 96  # at which nodes are moved
LIES = 4  # forged records of every stack
SECONDS = 30.0  # that one formula may take


@dataclass
class Tally:
    """What was attacked and what was found; ratios are in units of the bound, below 1 if all is well."""

    formulas: int = 0
    stacks: int = 0
    refused: int = 0
    nodes: int = 0
    deepest: int = 0
    worst: float = 0.0
    worst_moved: float = 0.0
    unconfirmed: int = 0
    lies: int = 0
    caught: int = 0
    violations: list[dict[str, Any]] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def lines(self) -> list[str]:
        """As a person reads it."""
        told = [
            f"formulas   {self.formulas:,} of 3 to 20 variables and 5 to 60 operations",
            f"served     {self.stacks:,} stacks, {self.refused:,} refused",
            f"stacks     {self.nodes:,} nodes in all, at most {self.deepest} layers",
            f"worst      {self.worst:.3f} of the bound, the largest error found of a stack",
            f"moved      {self.worst_moved:.3f} of the bound, exact nodes moved as far as their heads may err",
            f"checker    {self.stacks - self.unconfirmed:,} of {self.stacks:,} confirmed",
            f"forged     {self.caught:,} of {self.lies:,} records refused",
        ]
        told += [
            f"refused    {count:,} x {reason}" for reason, count in sorted(self.reasons.items(), key=lambda one: -one[1])[:6]
        ]
        return [*told, f"above      {len(self.violations)} points or records above a bound"]


def attack_stacks(
    compile_formula: Callable[..., Any], formulas: int, seed: int, seconds: float | None = None, progress: Progress = silent,
    operations: int = 60, each: float | None = SECONDS,
) -> Tally:  # fmt: skip
    """Attack the stacks of so many random formulas of at most so many operations, each compiled in at most so many seconds."""
    rng, tally, begun = np.random.default_rng(seed), Tally(), time.perf_counter()
    for i in range(formulas):
        progress("stacks of random formulas", i, formulas)
        if seconds is not None and time.perf_counter() - begun > seconds:
            break
        text, box = random_formula(rng, operations)
        error = float(10.0 ** rng.uniform(-7.0, -1.5))
        tally.formulas += 1
        try:
            made = compile_formula(text, box, error=error, relative=True, layers="auto", run=Run(max_seconds=each, seed=i))
        except (Refused, BadInput) as refusal:
            tally.refused += 1
            reason = f"{str(refusal).partition(': ')[2][:60] or str(refusal)[:60]}"
            tally.reasons[reason] = tally.reasons.get(reason, 0) + 1
            continue
        if isinstance(made, Stack):
            _attack(made, rng, tally)
    tally.seconds = time.perf_counter() - begun
    return tally


def _attack(stack: Stack, rng: Rng, tally: Tally) -> None:
    bound = float(stack.certificate.bound or 0.0)
    tally.stacks += 1
    tally.nodes += len(stack.nodes)
    tally.deepest = max(tally.deepest, stack.layers)
    found = observe(lambda x: stack.values(x)[-1], stack.target, int(rng.integers(1 << 30)))
    tally.worst = max(tally.worst, found.error / bound)
    if found.error > bound:
        _violated(tally, stack, "an error above the bound", found.error)
    moved = _moved(stack, rng)
    tally.worst_moved = max(tally.worst_moved, moved / bound)
    if moved > bound:
        _violated(tally, stack, "moved nodes above the bound", moved)
    if not stack.check().passed:
        tally.unconfirmed += 1
    for _ in range(LIES):
        tensors, record = record_of(stack)
        tensors, record = dict(tensors), copy.deepcopy(record)
        what = str(rng.choice(list(FORGERIES)))
        if not FORGERIES[what](record, tensors, rng):
            continue
        tally.lies += 1
        try:
            passed = check(tensors, record).passed
        except BadInput:
            passed = False
        if passed:
            _violated(tally, stack, f"a forged record passes: {what}", bound)
        tally.caught += not passed


def _violated(tally: Tally, stack: Stack, what: str, found: float) -> None:
    bound = float(stack.certificate.bound or 0.0)
    tally.violations.append({"what": what, "found": found, "bound": bound, "target": stack.target.text, "box": repr(stack.box)})


def _moved(stack: Stack, rng: Rng) -> float:
    """The most that exact nodes, each moved by its beta, were seen to move the answer: signs by the slope of what follows."""
    x = stack.box.sample(POINTS, rng)
    betas = np.array([node.beta for node in stack.nodes])
    plain = _exact(stack, x, np.zeros((len(betas), 1)))
    slopes = []
    for k in range(len(betas)):
        one = np.zeros((len(betas), 1))
        one[k] = betas[k]
        slopes.append(_exact(stack, x, one) - plain)
    signs = np.where(np.array(slopes) >= 0.0, 1.0, -1.0)
    ends = [np.abs(_exact(stack, x, side * signs * betas[:, None]) - plain) for side in (1.0, -1.0)]
    noise = 1e-13 * float(np.abs(plain).max())
    return max(0.0, float(np.nanmax(ends)) - noise)


def _exact(stack: Stack, x: Array, shifts: Array) -> Array:
    """The formula node by node, with so much added at every node (m, 1) or (m, B)."""
    known: list[Any] = list(x.T)
    for node, shift in zip(stack.plan.nodes, shifts, strict=True):
        rows = np.stack([row(known) for row in node.maps], axis=1)
        known.append(node.function.evaluate(rows)[:, 0] + shift)
    return np.asarray(stack.plan.result(known))


# ---------------------------------------------------------------------- forgeries: record, tensors, rng -> whether it was changed

Forgery = Callable[[dict[str, Any], dict[str, Any], Rng], bool]


def _bound(record: dict[str, Any], tensors: dict[str, Any], rng: Rng) -> bool:
    return _below_what_was_seen(record)


def _below_what_was_seen(record: dict[str, Any]) -> bool:
    """A bound of half the error that was observed, which is surely false; halving a bound need not be."""
    certificate = record["certificate"]
    factor = 0.5 * record["observed"]["error"] / certificate["bound"]
    certificate["parts"] = {name: part * factor for name, part in certificate["parts"].items()}
    certificate["bound"] *= factor
    return bool(factor > 0.0)


def _argument(record: dict[str, Any], tensors: dict[str, Any], rng: Rng) -> bool:
    node = record["stack"]["nodes"][int(rng.integers(len(record["stack"]["nodes"])))]
    node["arguments"][0] += " + 1e-9"
    return True


def _output(record: dict[str, Any], tensors: dict[str, Any], rng: Rng) -> bool:
    record["stack"]["output"] = f"1.00001*({record['stack']['output']})"
    return True


def _function(record: dict[str, Any], tensors: dict[str, Any], rng: Rng) -> bool:
    node = record["stack"]["nodes"][int(rng.integers(len(record["stack"]["nodes"])))]
    node["function"] = f"({node['function']})*1.000001"
    return True


def _head(record: dict[str, Any], tensors: dict[str, Any], rng: Rng) -> bool:
    """Another head with the same number of arguments but another function."""
    node = record["stack"]["nodes"][int(rng.integers(len(record["stack"]["nodes"])))]
    own = record["heads"][node["head"]]["target"]["text"]
    others = [i for i, head in enumerate(record["heads"]) if head["target"]["text"] != own]
    if others:
        node["head"] = int(rng.choice(others))
    return bool(others)


def _lift(record: dict[str, Any], tensors: dict[str, Any], rng: Rng) -> bool:
    record["stack"]["nodes"][int(rng.integers(len(record["stack"]["nodes"])))]["lift"] += 1
    return True


def _head_bound(record: dict[str, Any], tensors: dict[str, Any], rng: Rng) -> bool:
    return _below_what_was_seen(record["heads"][int(rng.integers(len(record["heads"])))])


def _box(record: dict[str, Any], tensors: dict[str, Any], rng: Rng) -> bool:
    record["target"]["box"]["high"] = [3.0 * high + 1.0 for high in record["target"]["box"]["high"]]
    return True


def _target(record: dict[str, Any], tensors: dict[str, Any], rng: Rng) -> bool:
    record["target"]["text"] += " + 0.001"
    return True


FORGERIES: dict[str, Forgery] = {
    "bound": _bound, "argument": _argument, "output": _output, "function": _function, "head": _head, "lift": _lift,
    "head bound": _head_bound, "box": _box, "target": _target,
}  # fmt: skip
