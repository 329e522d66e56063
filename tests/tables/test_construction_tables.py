"""The tables of the construction on fewer points: no bound is violated, and the figures are the expected ones."""

import functools
import importlib.util
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def _module(name):
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location(f"construction_{name}", FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(FOLDER))


@functools.cache
def _tables(name):
    return _module("tables").make([name], points=1_500)


@pytest.mark.parametrize("name", ["T3", "T4", "T5", "T6", "T7", "T8"])
def test_no_bound_of_the_table_is_violated(name):
    made = _tables(name)
    assert sum(table.checks for table in made) > 0
    assert [table.title for table in made if table.violations] == []


def test_t3_has_the_expected_bounds_and_dense_parameter_counts():
    table = _tables("T3")[0]
    bounds = [round(float(row[5]), 4) for row in table.rows]
    assert bounds == [0.9874, 0.9821, 0.4937, 0.4962, 0.1975, 0.1997, 0.0987, 0.0999, 0.0497, 0.05]
    counts = [row[8] for row in table.rows]
    assert counts == ["578", "6,848", "2,048", "26,098", "12,338", "158,848", "49,088", "635,128", "193,298", "2,530,178"]


def test_t4_has_the_expected_bounds_and_parameter_counts():
    table = _tables("T4")[0]
    assert [float(row[2]) for row in table.rows] == pytest.approx([2.20, 1.467, 1.10, 0.88, 0.733, 0.55], rel=1e-3)
    assert table.rows[-1][5:7] == ("164,120", "90,172")


def test_a_violated_claim_is_counted_and_a_nan_is_one():
    table = _module("table_tools").Table("a table", ("column",))
    table.claim(1.0, 2.0)
    assert table.violations == 0
    table.claim(2.0, 1.0)
    table.claim(float("nan"), 1.0)
    assert (table.checks, table.violations) == (3, 2)


def test_the_page_in_docs_is_complete_and_tells_no_violation():
    page = (FOLDER.parent / "docs" / "tables.md").read_text()
    assert "claims checked; violations: 0" in page
    assert all(f"## T{n}" in page for n in range(3, 9))
