"""Errors relative to |f(x)|, from the request to the file: proved twice, true on every route, forged files refused."""

import json
from functools import cache

import numpy as np
import pytest
from forgery import attack_file

import maxaffine as ma
from maxaffine.attack.walk import walk
from maxaffine.checker import check

TEN = "+".join(f"x{i}**2" for i in range(1, 11))
CASES = {
    "monomial over two decades": ("a*b**2*c/(d*g)", dict.fromkeys("abcdg", (1.0, 2.5)), 1e-4, "float64"),
    "monomial over eleven decades": ("a*b**2*c**3/(d**2*g**3)", dict.fromkeys("abcdg", (1.0, 10.0)), 1e-4, "float64"),
    "monomial in float32": ("a*b**2*c/(d**2*g)", dict.fromkeys("abcdg", (1.0, 5.0)), 1e-2, "float32"),
    "peak of ten variables": (f"1/(1+{TEN})", {f"x{i}": (-1.0, 1.0) for i in range(1, 11)}, 1e-3, "float64"),
    "one variable": ("exp(x)", {"x": (-6.0, 6.0)}, 1e-3, "float64"),
    "kink": ("abs(x) + 0.1", {"x": (-1.0, 1.0)}, 1e-2, "float32"),
}


@cache
def _compiled(name):
    text, box, error, dtype = CASES[name]
    return ma.compile(text, box, error=error, relative="pointwise", dtype=dtype)


@pytest.mark.parametrize("name", CASES)
def test_a_layer_is_proved_twice_and_its_file_says_how(name, tmp_path):
    c = _compiled(name)
    assert c.observed.error <= c.bound <= c.error == CASES[name][2]
    c.save(tmp_path / "f.safetensors")
    verdict = ma.check(tmp_path / "f.safetensors")
    assert verdict.passed, verdict.reason
    assert verdict.confirmed
    assert ma.load(tmp_path / "f.safetensors").certificate == c.certificate


@pytest.mark.parametrize("name", CASES)
def test_no_route_is_off_by_more_than_is_stated(name):
    rows = list(walk(_compiled(name), np.random.default_rng(2), kept=lambda route: "onnx" not in route))
    assert sum(row.judged for row in rows) >= 5
    assert not [row for row in rows if row.violated]


@pytest.mark.parametrize("name", ["monomial over eleven decades", "one variable"])
def test_no_forged_file_is_proved_falsely(name):
    tensors, record = _compiled(name)._record()
    record = json.loads(json.dumps(record))
    assert check(tensors, record).passed
    counts = attack_file(dict(tensors), record, np.random.default_rng(5), 10)
    assert not counts.false, counts.false
    assert counts.refused + counts.unreadable > 0


def test_what_spans_fifty_decades_in_one_factor_is_refused_with_its_reason():
    with pytest.raises(ma.MaxaffineError, match=r"5 directions together spans 5\d decades"):
        ma.compile("n*exp(-m*g*x/(k*T))", dict.fromkeys("nmgxkT", (1.0, 5.0)), error=1e-2, relative="pointwise")
