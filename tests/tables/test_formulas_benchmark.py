"""The benchmark of real formulas: its data, one cell measured whole, a run resumed, and the page from a record."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.expression.expression import Expression

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark() -> Any:
    sys.path.insert(0, str(FOLDER))
    try:
        import formula_targets
        import formulas
        import formulas_page

        yield formula_targets, formulas, formulas_page
    finally:
        sys.path.remove(str(FOLDER))


def test_every_formula_of_the_hundred_parses_uses_all_its_ranges_and_is_finite_where_it_is_analytic(benchmark: Any) -> None:
    targets, _, page = benchmark
    hundred = targets.feynman()
    assert len(hundred) == len({f.name for f in hundred}) == 100 and set(page.SINGULAR) < {f.name for f in hundred}
    assert sum(f.dimension for f in hundred) == 365 and max(f.dimension for f in hundred) == 9
    for formula in hundred:
        target = ma.Target.of(formula.text, ma.Box(**formula.box))
        assert target.expression is not None and set(target.expression.used) == set(formula.box), formula.name
        assert all(low < high for low, high in formula.box.values())
        x = target.box.sample(200, np.random.default_rng(0))
        x = x if formula.name in page.SINGULAR else np.concatenate([x, target.box.corners()])
        assert np.isfinite(target.expression.evaluate(x)).all(), formula.name


def test_the_formulas_that_are_not_analytic_are_undefined_or_steep_where_the_page_says(benchmark: Any) -> None:
    targets, _, page = benchmark
    known = {f.name: f for f in targets.feynman()}
    at = {
        "I.8.14": (2, 2, 3, 3), "I.29.16": (2, 2, 3, 3), "I.26.2": (1, np.pi / 2), "I.30.5": (2, 2, 1),
        "III.9.52": (1, 1, 1, 1, 2, 2),
    }  # fmt: skip
    assert set(at) == set(page.SINGULAR)
    for name, point in at.items():
        names = list(known[name].box)
        expression, steps = Expression.parse(known[name].text, names), []
        for size in (1e-2, 1e-6):
            other = np.array(point, dtype=float)
            other[0 if name != "III.9.52" else names.index("omega")] -= size
            with np.errstate(all="ignore"):
                away, here = expression.evaluate(np.array([other, point], dtype=float)).ravel()
            steps.append(float(away - here) / size)
        if name == "III.9.52":
            assert np.isnan(steps).all()
        elif name in ("I.26.2", "I.30.5"):
            assert abs(steps[1]) > 50 * abs(steps[0])
        else:  # a cone: the slope does not shrink towards its point
            assert abs(steps[0]) > 0.9 and abs(steps[1]) > 0.9


def test_the_classical_functions_parse_and_are_those_of_the_gallery(benchmark: Any) -> None:
    classical = {f.name: f for f in benchmark[0].classical()}
    assert len(classical) == 19 and max(f.dimension for f in classical.values()) == 100
    same = {
        "OTL circuit": "otl_circuit", "piston": "piston", "borehole": "borehole", "1/(1+|x|^2), 10": "radial_peak_10",
        "1/(1+|x|^2), 50": "radial_peak_50", "sqrt(1+|x|^2), 20": "radial_root_20", "log(1+sum exp), 10": "log_sum_exp_10",
        "softmax entry, 8": "softmax_entry_8", "exp(sin |x|^2), 10": "radial_waves_10", "exp(-x'Ax), 6": "elliptic_bell_6",
        "Griewank, 20": "griewank_20", "Rosenbrock, 20": "rosenbrock_20", "Black-Scholes call": "black_scholes_call",
        "van der Waals": "van_der_waals", "Sobol g, 8": "sobol_g_8", "wing weight": "wing_weight", "tanh(q.k), 4": "alignment",
    }  # fmt: skip
    for name, entry in same.items():
        formula, target = classical[name], ma.gallery[entry].target
        box = ma.Box(**formula.box)
        assert np.array_equal(box.low, target.box.low) and np.array_equal(box.high, target.box.high), name
        x = box.sample(300, np.random.default_rng(1))
        assert np.allclose(ma.Target.of(formula.text, box).values(x), target.values(x), rtol=1e-9, atol=1e-9), name


def cell(name: str, text: str, box: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """One cell, measured from a fresh interpreter: the benchmark forks, which one with threads must not."""
    words = f"print(json.dumps(measured(Formula({name!r}, {text!r}, {box!r}), 1e-2, 20.0)))"
    code = f"import json; from formula_targets import Formula; from formulas import measured; {words}"
    done = subprocess.run([sys.executable, "-c", code], cwd=FOLDER, capture_output=True, text=True, timeout=120, check=True)
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def test_a_cell_is_proved_confirmed_and_searched_and_a_refusal_is_kept_in_words(benchmark: Any) -> None:
    _, formulas, _ = benchmark
    row = cell("one", "a*b/c", {"a": (1, 2), "b": (1, 2), "c": (1, 2)})
    assert row["kind"] == "proved" and row["confirmed"] and set(row["observed"]) == {"searched", "scattered", "attacked"}
    assert 0 < formulas.worst(row) <= row["bound"] <= row["asked"] == pytest.approx(0.04, rel=0.05)
    assert row["numbers"] > 0 and row["seconds"] > 0 and "confirmed" in formulas.told("one", "0.01", row)
    refused = cell("two", "1/(a-1)", {"a": (0, 2)})
    assert refused["kind"] == "refused" and refused["method"] is None and "not finite" in refused["reason"]


def test_a_run_is_resumed_from_its_record(benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    _, formulas, _ = benchmark
    asked: list[tuple[str, float]] = []

    def measured(formula: Any, error: float, seconds: float) -> dict[str, Any]:
        asked.append((formula.name, error))
        return {"dimension": formula.dimension, "kind": "refused", "method": None, "reason": "no", "seconds": 0.1}

    monkeypatch.setattr(formulas, "measured", measured)
    record = tmp_path / "record.json"
    words = ["formulas.py", "--record", str(record), "--only", "I.6.2", "piston", "--errors"]
    monkeypatch.setattr(sys, "argv", [*words, "1e-2"])
    assert formulas.main() == 0 and asked == [("I.6.2", 1e-2), ("piston", 1e-2)]
    monkeypatch.setattr(sys, "argv", [*words, "1e-2,1e-4"])
    assert formulas.main() == 0 and asked[2:] == [("I.6.2", 1e-4), ("piston", 1e-4)]
    assert set(json.loads(record.read_text())["feynman"]["I.6.2"]) == {"0.01", "0.0001"}
    assert not list(tmp_path.glob("*.part")) and "refused" in capsys.readouterr().out


def test_a_point_above_a_bound_is_an_exit_code(benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, formulas, _ = benchmark
    row = {
        "dimension": 2, "kind": "proved", "method": "spectral", "tokens": 10**120, "numbers": 7, "asked": 0.1, "bound": 0.05,
        "confirmed": True, "seconds": 0.1, "observed": {"searched": 0.01, "attacked": 0.06},
    }  # fmt: skip
    monkeypatch.setattr(formulas, "measured", lambda *_: dict(row))
    monkeypatch.setattr(sys, "argv", ["formulas.py", "--record", str(tmp_path / "r.json"), "--only", "I.6.2", "--errors", "1e-2"])
    assert formulas.main() == 1


def test_the_page_counts_what_is_confirmed_and_names_the_rest(benchmark: Any) -> None:
    _, _, page = benchmark
    good = {
        "dimension": 2, "kind": "proved", "method": "spectral", "tokens": 10**120, "numbers": 244, "asked": 0.1, "bound": 0.05,
        "confirmed": True, "seconds": 0.5, "observed": {"searched": 0.01}, "reason": None,
    }  # fmt: skip
    doubted = {**good, "confirmed": False, "doubt": "its own bound is larger"}
    refused = {"dimension": 4, "kind": "refused", "method": None, "reason": "too | many", "seconds": 3.0}
    hundred = {"I.6.2": {"0.01": good}, "I.12.1": {"0.01": doubted}, "I.8.14": {"0.01": refused}, "I.9.18": {"0.01": refused}}
    text = page.page({"feynman": hundred, "classical": {"OTL circuit": {"0.01": good}}})
    assert "| 0.01 | 4 | 2 | 1 | 0 | 0.200 |" in text
    assert "| I.9.18 | 0.01 | too \\| many |" in text and "| I.12.1 | 0.01 | the checker: its own bound is larger |" in text
    assert "| I.8.14 | a cone point" in text and "1.0e120" in text and "244 (2 x 122)" in text
