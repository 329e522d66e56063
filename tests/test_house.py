"""The rules of the house hold: `make house` prints them."""

import importlib.util
import sys
from pathlib import Path

import pytest

found = importlib.util.spec_from_file_location("house", Path(__file__).with_name("house.py"))
assert found is not None and found.loader is not None
house = importlib.util.module_from_spec(found)
sys.modules["house"] = house
found.loader.exec_module(house)
RULES = house.rules(house.modules())


@pytest.mark.parametrize("rule", RULES)
def test_no_rule_of_the_house_is_broken(rule: str) -> None:
    assert RULES[rule] == []
