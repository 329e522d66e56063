"""The gate's sixty targets give what benchmarks/results/gate.json recorded: verdict, method, tokens, both bounds.

Hashes of files are shown by `make gate` and not asserted here: another processor may round elsewhere.
"""

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gate.py"
_spec = importlib.util.spec_from_file_location("maxaffine_gate", SCRIPT)
assert _spec is not None and _spec.loader is not None
gate = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = gate
_spec.loader.exec_module(gate)

ASKS = {ask.name: ask for ask in gate.asks()}
RECORD = json.loads(gate.RECORD.read_text())


def test_the_record_speaks_of_these_targets_and_of_no_others() -> None:
    assert len(ASKS) == len(gate.asks()) >= 60, "two requests have the same name"
    assert set(ASKS) == set(RECORD)


@pytest.mark.parametrize("name", ASKS)
def test_compiling_gives_what_was_recorded_or_better(name: str, record_property: Callable[[str, object], None]) -> None:
    now, before = gate.measure(ASKS[name]), RECORD[name]
    record_property("same file", now.get("file") == before.get("file"))
    assert gate.moved(before, now) == []


def test_what_is_worse_is_told() -> None:
    before = {"verdict": "proved", "method": "axis", "passed": True, "tokens": 10, "bound": 1e-3, "checked": 1e-3}
    assert gate.moved(before, {**before, "tokens": 9, "bound": 9e-4, "checked": 1e-3 * 1.0009}) == []
    for key, value in (
        ("verdict", "observed"), ("method", "tree"), ("passed", False), ("tokens", 11), ("bound", 1.01e-3), ("checked", None),
    ):  # fmt: skip
        assert len(gate.moved(before, {**before, key: value})) == 1, key
