"""Forged records of stacks: number by number and text by text changed so that they no longer describe a proof."""

import copy
from collections.abc import Callable
from typing import Any

from maxaffine.attack.case import Rng
from maxaffine.checker import check
from maxaffine.core.errors import BadInput
from maxaffine.stack.saved import record_of
from maxaffine.stack.stack import Stack

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


def passed_lies(stack: Stack, rng: Rng, count: int) -> tuple[int, list[str]]:
    """How many of so many forgeries could be made, and the names of those that the checker lets pass."""
    made, passed = 0, []
    for _ in range(count):
        tensors, record = record_of(stack)
        tensors, record = dict(tensors), copy.deepcopy(record)
        what = str(rng.choice(list(FORGERIES)))
        if not FORGERIES[what](record, tensors, rng):
            continue
        made += 1
        try:
            if check(tensors, record).passed:
                passed.append(what)
        except BadInput:
            continue
    return made, passed
