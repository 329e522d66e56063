"""The experiment on dimension: growth, refusals, the budget by bisection, every verdict on made-up results, and a tiny run."""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import maxaffine as ma
from maxaffine import search
from maxaffine.cli.app import main
from maxaffine.heads import HEADS
from maxaffine.lab import dimension
from maxaffine.lab import dimension_growth as growth
from maxaffine.lab.experiment import Context
from maxaffine.lab.record import empty_fields

METHODS = {name for name in search.METHODS if name not in HEADS or not HEADS[name].by_name}
PARAMETERS = dict(dimension.EXPERIMENT.parameters)


def unit(family: str = "additive", D: int = 2, method: str = "lookup", error: float | None = 0.1) -> dict[str, Any]:
    return {"id": "made-up", "family": family, "dimension": D, "method": method, "error": error}


def run(tmp_path: Any, parameters: dict[str, Any] = PARAMETERS, **asked: Any) -> dict[str, Any]:
    return dict(dimension.run(unit(**asked), parameters, Context("cpu", None, tmp_path)).values)


def made_up(lookup: Callable[[int], float], spectral: Callable[[int], float | None]) -> list[dict[str, Any]]:
    rows = []
    for one in dimension.units(PARAMETERS):
        made = {"lookup": lookup, "spectral": spectral}.get(one["method"], lambda D: None)(one["dimension"])
        values: dict[str, Any] = {"tokens": None, "stored": None, "kind": "refused", "chosen": "none", "reason": "It is refused."}
        if made is not None:
            values = {"tokens": round(made), "stored": round(made), "kind": "proved", "chosen": one["method"], "reached": 1e-3}
        rows.append({"unit": one, "values": values})
    return rows


def test_growth_is_the_slope_of_logarithms_with_its_interval() -> None:
    D = list(range(2, 11))
    assert growth.fit(D, [20.0**d for d in D], power=False) == pytest.approx((math.log10(20), 0.0), abs=1e-9)
    assert growth.fit(D, [3.0 * d**2 for d in D], power=True) == pytest.approx((2.0, 0.0), abs=1e-9)
    assert growth.fit(D, [7.0] * 9, power=False) == (0.0, 0.0)
    slope, half = growth.fit([2, 3, 4, 5], [1e2, 1e4, 1e4, 1e6], power=False)
    assert slope == pytest.approx(1.2) and half == pytest.approx(4.302653 * math.sqrt(0.8 / 2 / 5), rel=1e-6)


@pytest.mark.parametrize("family", list(dimension.FAMILIES))
@pytest.mark.parametrize("D", [2, 3, 4, 5])
def test_half_the_range_is_what_the_target_has_at_corners_and_peaks(family: str, D: int) -> None:
    target = ma.Target.of(dimension.expression(family, D), ma.Box(**{f"x{i + 1}": (-1.0, 1.0) for i in range(D)}))
    axis = np.array([-1.0, -math.pi / 4, 0.0, math.pi / 4, 1.0])
    values = target.values(np.stack(np.meshgrid(*[axis] * D), axis=-1).reshape(-1, D))
    assert dimension.one_constant(family, D) == pytest.approx((values.max() - values.min()) / 2.0, rel=1e-12)


def test_every_method_of_the_compiler_is_asked_for_every_family_and_dimension() -> None:
    asked = {(one["family"], one["dimension"], one["method"], one["error"]) for one in dimension.units(PARAMETERS)}
    assert {one[2] for one in asked} == METHODS
    assert len(asked) == 3 * 9 * len(METHODS) * 3 == len(dimension.units(PARAMETERS))


@pytest.mark.parametrize(
    ("lookup", "spectral", "outcome"),
    [
        (lambda D: 20**D, lambda D: 2 * D, "reproduced, but explained by the lookup, not by the architecture"),
        (lambda D: 20**D, lambda D: 3**D, "reproduced"),
        (lambda D: 20**D, lambda D: D**2, "reproduced"),
        (lambda D: 20**D, lambda D: D if D < 5 else None, "reproduced"),  # three dimensions are not judged
        (lambda D: 400 * D**3, lambda D: 2 * D, "not reproduced"),
    ],
)
def test_the_claim_is_judged_by_its_rule(lookup: Any, spectral: Any, outcome: str) -> None:
    assert dimension.verdict(made_up(lookup, spectral), PARAMETERS).outcome == outcome


def test_a_run_of_too_few_dimensions_is_not_judged() -> None:
    rows = [row for row in made_up(lambda D: 20**D, lambda D: 2 * D) if row["unit"]["dimension"] < 5]
    assert dimension.verdict(rows, PARAMETERS).outcome == "incomplete"


def test_the_table_has_one_column_per_method_and_no_cell_without_a_word() -> None:
    rows = made_up(lambda D: 20**D, lambda D: 2 * D)
    table = dimension.table(rows, PARAMETERS)
    assert table.header[:5] == ("family", "asked", "D", "lookup", "spectral")
    assert sorted(table.header[3:]) == sorted(dimension.METHODS)
    assert all(cell != "" and "nan" not in str(cell) for row in table.rows for cell in row)
    first = dict(zip(table.header, table.rows[0], strict=True))
    assert first["lookup"] == 400 and first["spectral"] == 4 and first["tree"].startswith("refused, R")
    slopes = {row[2]: dict(zip(table.header, row, strict=True)) for row in table.rows if isinstance(row[2], str)}
    assert slopes["the same / log10 P"]["lookup"] == "1.00 ± 0.00" and slopes["power of D"]["spectral"] == "1.00 ± 0.00"


def test_refusals_that_differ_in_numbers_share_a_name_and_are_counted() -> None:
    rows = [{"unit": unit(D=D, method="auto"), "values": {"kind": "refused", "reason": f"It needs 1.{D}e+09 tokens, {D} GiB."}}
            for D in (6, 7)]  # fmt: skip
    rows.append({"unit": unit(method="tree"), "values": {"kind": "refused", "reason": "word " * 300}})
    refusals = growth.Refusals(rows)
    assert refusals.legend["R1, auto"] == "It needs 1.6e+09 tokens, 6 GiB." and refusals.counts == {"auto": 2, "tree": 1}
    assert [refusals.name(row) for row in rows] == ["R1", "R1", "R2"]
    assert len(refusals.legend["R2, tree"]) <= growth.LONGEST + 4 and refusals.legend["R2, tree"].endswith(" ...")


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("piecewise", "not piecewise affine"),
        ("axis", "one direction"),
        ("regions", "three variables"),
        ("tree", "three variables"),
    ],
)
def test_a_method_that_does_not_apply_leaves_its_sentence(method: str, sentence: str, tmp_path: Any) -> None:
    for error in (0.1, None):
        values = run(tmp_path, D=4, method=method, error=error)
        assert values["kind"] == "refused" and values["tokens"] is None
        assert sentence in values["reason"] and values["reason"].endswith(".")


def test_a_cap_is_a_refusal_that_names_it(tmp_path: Any) -> None:
    capped = {**PARAMETERS, "caps": {"additive/spectral": 3}}
    assert "`caps`" in run(tmp_path, capped, D=4, method="spectral")["reason"]
    assert run(tmp_path, capped, D=3, method="spectral")["kind"] == "proved"


def test_the_lookup_is_the_compilers_and_planned_where_it_is_large(tmp_path: Any) -> None:
    made = ma.compile(dimension.expression("additive", 2), ma.Box(x1=(-1, 1), x2=(-1, 1)), error=0.1, method="lookup")
    built = run(tmp_path)
    planned = run(tmp_path, {**PARAMETERS, "built": 10})
    assert built["kind"] == "proved" and planned["kind"] == "planned"
    assert built["tokens"] == planned["tokens"] == made.tokens == math.prod(built["counts"])
    assert built["observed"] <= built["bound"] == made.bound <= 0.1


@pytest.mark.parametrize("least", [10.0, 0.1, 3.16e-5, 1e-8])
def test_the_budget_is_found_by_bisection_with_the_reason_that_ends_it(least: float, monkeypatch: Any, tmp_path: Any) -> None:
    def ask(unit: Any, error: float, parameters: Any, fewest: int) -> dict[str, Any]:
        assert fewest == 4097
        return {"tokens": 4096 if error >= least else 5000, "stored": 1, "kind": "proved", "chosen": "tree"}

    monkeypatch.setattr(dimension, "_ask", ask)
    values = run(tmp_path, method="tree", error=None)
    assert values["reached"] == least and values["tokens"] == 4096
    assert values["stopped_by"] == ("the ladder ends here" if least == 1e-8 else "5,000 tokens are above the budget of 4,096")


def test_a_budget_that_reaches_nothing_keeps_its_reason(monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.setattr(dimension, "_ask", lambda *arguments: dimension._refused("nothing fits"))
    assert run(tmp_path, error=None) == {**dimension._refused("nothing fits"), "reached": None}


def test_a_tiny_run_ends_in_a_record_without_empty_fields_and_a_figure(tmp_path: Any, capsys: Any) -> None:
    small = ["--set", "highest=2", "--set", "families=multiplicative", "--set", "ladder=1.0,0.1"]
    assert main(["lab", "run", "dimension", "--quick", *small, "--out", str(tmp_path / "run"), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["version"] == 2 and record["verdict"]["outcome"] == "incomplete" and not empty_fields(record)
    assert [row[:3] for row in record["table"]["rows"]][:1] == [["multiplicative", "tokens at 0.1", 2]]
    assert any(key.endswith(", level") for key in record["verdict"]["numbers"])
    assert (tmp_path / "run" / "figure.png").stat().st_size > 10_000
