"""The rules of the house hold: `make house` prints what is measured."""

import importlib.util
import sys
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("maxaffine_house", Path(__file__).parents[1] / "house.py")
assert _spec is not None and _spec.loader is not None
house = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = house
_spec.loader.exec_module(house)

RULES = house.rules(house.modules())


@pytest.mark.parametrize("rule", RULES)
def test_the_rule_is_kept(rule: str) -> None:
    assert RULES[rule] == []
