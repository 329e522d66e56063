"""The regression benchmark on little data: a resumed run is the whole run, budgets are equal, verdicts follow the statistics."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark() -> Any:
    sys.path.insert(0, str(FOLDER))
    try:
        import regression
        import regression_page

        yield regression, regression_page
    finally:
        sys.path.remove(str(FOLDER))


def _small(regression: ModuleType) -> Any:
    return replace(regression.QUICK, friedman=130, splits=2, candidates=2, names=("Friedman-1",))


def _run(regression: ModuleType, path: Path, plan: Any = None) -> list[dict[str, Any]]:
    plan = plan or _small(regression)
    return regression.run(plan, regression.Journal(path), regression.datasets(plan))


def _timeless(rows: list[dict[str, Any]]) -> str:
    for row in rows:
        row["default"].pop("seconds")
        row["tuned"].pop("seconds")
    return json.dumps(rows, sort_keys=True)


@pytest.fixture(scope="module")
def whole(benchmark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], bytes]:
    path = tmp_path_factory.mktemp("run") / "journal.jsonl"
    rows = _run(benchmark[0], path)
    return rows, path.read_bytes()


def test_a_run_that_was_killed_and_resumed_is_the_whole_run(benchmark: Any, whole: Any, tmp_path: Path) -> None:
    rows, lines = whole
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"".join(lines.splitlines(keepends=True)[:6]) + lines.splitlines()[6][:40])  # killed inside a line
    assert _timeless(_run(benchmark[0], path)) == _timeless(json.loads(json.dumps(rows)))
    assert len(path.read_bytes().splitlines()) == len(lines.splitlines()) == 11


def test_a_finished_run_is_not_done_again(benchmark: Any, whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(whole[1])
    monkeypatch.setattr(benchmark[0], "unit", lambda *_: pytest.fail("a unit was done again"))
    assert _run(benchmark[0], path) == whole[0]


def test_a_journal_of_another_plan_is_refused(benchmark: Any, whole: Any, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(whole[1])
    with pytest.raises(ValueError, match="another plan"):
        _run(benchmark[0], path, replace(_small(benchmark[0]), seed=1))


def test_every_model_gets_the_same_number_of_candidates_and_the_same_folds(benchmark: Any, whole: Any) -> None:
    regression = benchmark[0]
    rows = whole[0]
    assert {row["tuned"]["candidates"] for row in rows} == {2}
    assert {(row["fold"], row["model"]) for row in rows} == {(fold, name) for fold in (0, 1) for name in regression.models(1, 0)}
    assert len(regression.models(1, 0)) == 5
    full = regression.Plan()
    assert full.splits == full.repeats == 5 and all(len(regression.folds(full, data)) == 25 for data in regression.datasets(full))


def test_the_first_repeats_are_the_beginning_of_the_whole(benchmark: Any) -> None:
    regression = benchmark[0]
    plan = regression.Plan()
    data = regression.datasets(plan)[:1]
    assert list(regression.jobs(plan, data, 2)) == list(regression.jobs(plan, data))[: 2 * 5 * 5]
    fewer = regression.folds(replace(plan, repeats=2), data[0])
    assert all(np.array_equal(a[1], b[1]) for a, b in zip(fewer, regression.folds(plan, data[0]), strict=False))


def test_no_test_sample_is_trained_on_and_every_sample_is_tested_once_per_repeat(benchmark: Any) -> None:
    regression = benchmark[0]
    plan = regression.Plan()
    for data in regression.datasets(plan):
        tested = np.zeros(len(data.y), dtype=int)
        for train, test in regression.folds(plan, data):
            assert not set(train) & set(test)
            tested[test] += 1
        assert (tested == plan.repeats).all()


def test_what_cannot_be_reached_is_said_loudly(benchmark: Any, whole: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    regression, page = benchmark

    def unreachable(**_: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr(regression, "fetch_california_housing", unreachable)
    plan = _small(regression)
    assert regression.california(plan) is None
    kept = regression.record(plan, regression.datasets(plan), whole[0], [regression.CALIFORNIA])
    text = page.page(kept, "")
    assert "| California housing | **not reachable here** |" in text and "- **California housing: not reachable here**" in text


def test_the_page_keeps_what_is_written_around_its_tables(benchmark: Any, whole: Any, tmp_path: Path) -> None:
    regression, page = benchmark
    plan = _small(regression)
    kept = regression.record(plan, regression.datasets(plan), whole[0], [])
    once = page.page(kept, "")
    again = page.page(kept, once.replace("# Regression\n", "# Regression\n\nMine.\n") + "\nLast.\n")
    assert "Mine." in again and again.endswith("Last.\n") and again.count(page.BEGIN) == 1
    for model in regression.models(1, 0):
        mean = page.scores(kept, "Friedman-1", model, "tuned", "rmse").mean()
        assert page.figures(mean) in again
    page.draw(kept, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5_000
    with pytest.raises(ValueError, match="folds are done"):
        page.page({**kept, "rows": whole[0][:5]}, "")


def test_the_corrected_interval_is_that_of_nadeau_and_bengio(benchmark: Any) -> None:
    page = benchmark[1]
    from scipy.stats import ttest_1samp

    d = np.random.default_rng(0).normal(0.5, 1.0, 25)
    mean, half, p = page.corrected(d, 0.0)  # without overlap: Student's
    naive = ttest_1samp(d, 0.0)
    assert p == pytest.approx(naive.pvalue) and mean + half == pytest.approx(naive.confidence_interval(0.95).high)
    _, wider, larger = page.corrected(d, 0.25)
    assert wider == pytest.approx(half * np.sqrt((1 / 25 + 0.25) * 25)) and larger > p
    assert page.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_a_clear_difference_is_a_win_or_a_loss_and_noise_is_a_tie(benchmark: Any) -> None:
    page = benchmark[1]
    rng = np.random.default_rng(0)
    errors = {page.OURS: 1.0, "better": 0.5, "worse": 2.0, "same": 1.0}
    rows = [
        {"data": "d", "fold": k, "model": model, "train": 80, "test": 20, "tuned": {"rmse": mean + 0.05 * rng.normal()}}
        for k in range(25)
        for model, mean in errors.items()
    ]
    found = {item["peer"]: item["verdict"] for item in page.comparisons({"rows": rows})}
    assert found == {"better": "loses", "worse": "wins", "same": "tie"}
