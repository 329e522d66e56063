"""`maxaffine attack --routes`: what it counts, prints and exits with; the engine finds what is wrong."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.attack import walk as walking
from maxaffine.attack.routes import GROUPS, Tally, attack_routes, markdown, table
from maxaffine.attack.search import Effort, narrowed
from maxaffine.attack.walk import Row, walk
from maxaffine.attack.ways import ways
from maxaffine.compiler import compile
from maxaffine.core.errors import BadInput

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

SMALL = Effort(60, 3, 3, 3, 400)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "maxaffine", "attack", *arguments], capture_output=True, text=True, timeout=120)


def test_the_command_prints_a_table_and_counts():
    done = command("--routes", "--heads", "hard table;table", "--layers", "1", "--seed", "3", "--table")
    assert done.returncode == 0, done.stderr
    first, rule, hard, soft, last = done.stdout.splitlines()
    assert first.startswith("| head, float64 / float32 / bfloat16 | NumPy |") and set(rule) <= set("| -")
    assert hard.startswith("| hard table |") and "refused / refused / refused" in hard and soft.startswith("| table |")
    assert "6 layers" in last and "0 violations" in last and "layer-route pairs" in last
    found = json.loads(command("--routes", "--heads", "hard table", "--layers", "1", "--seed", "3", "--json").stdout)
    assert found["pairs"] >= 15 and found["violations"] == [] and len(found["rows"]) >= 84


@pytest.mark.parametrize("arguments", [("--table",), ("--routes", "--heads", "no such head"), ("--routes", "--layers", "0")])
def test_what_makes_no_sense_is_refused(arguments):
    done = command(*arguments)
    assert done.returncode == 2 and done.stderr.startswith("maxaffine: ") and not done.stdout


def test_an_interrupted_attack_tells_what_it_found():
    asked = 0

    def stopping(*arguments, **options):
        nonlocal asked
        asked += 1
        if asked > 1:
            raise KeyboardInterrupt
        return compile(*arguments, **options)

    tally = attack_routes(stopping, ["hard table"], layers=2, effort=SMALL)
    assert tally.interrupted and sum(tally.layers.values()) == 1 and tally.pairs > 0
    assert "interrupted" in tally.summary()
    with pytest.raises(BadInput, match="not known"):
        attack_routes(compile, ["none"])


def test_a_route_above_its_statement_is_found_and_shown(monkeypatch):
    layer = ma.compile("sin(x)", ma.Box(x=(-1, 1)), error=1e-3, method="spectral")

    def false_ways(compiled, kept):
        for way in ways(compiled, lambda route: route in ("arrays", "matrices")):
            if way.statement.bound is not None:
                yield replace(way, statement=replace(way.statement, bound=way.statement.bound * 0.1))

    monkeypatch.setattr(walking, "ways", false_ways)
    rows = list(walk(layer, np.random.default_rng(0), SMALL, "spectral"))
    judged = [row for row in rows if row.judged]
    assert judged and all(row.violated and row.ratio > 1 for row in judged)
    tally = Tally(rows=[(1, row) for row in rows])
    assert len(tally.violations) == len(judged) and f"{len(judged)} violations" in tally.summary()
    lines = table(rows)
    assert len(lines) == 2 and len(lines[0]) == 1 + len(GROUPS) and "**" in lines[1][1] and "–" in lines[1][2]
    assert markdown(lines).count("\n") == 2


def test_a_bound_of_zero_and_a_fault_are_judged():
    row = Row("h", "t", "float64", "arrays", "", "float64", 0.0, "", 0.0, (), 3)
    assert row.judged and not row.violated and row.ratio == 0.0
    assert replace(row, worst=1e-300).violated and replace(row, worst=1e-300).ratio == np.inf
    assert not replace(row, bound=None, worst=np.inf).violated


def test_float32_points_stay_in_the_box():
    low, high = np.array([0.1, -1e-3]), np.array([0.7, 2e-3])
    x = narrowed(np.array([low, high, (low + high) / 2]), low, high)
    assert (x >= low).all() and (x <= high).all() and np.array_equal(x, x.astype(np.float32).astype(np.float64))


def test_every_route_of_the_list_is_walked():
    from maxaffine.proofs.routes import ROUTES

    layers = [
        ma.compile("sin(x)+y", ma.Box(x=(-1, 1), y=(-1, 1)), error=0.5, method="lookup"),
        ma.compile("abs(x)", ma.Box(x=(-1, 1)), error=1e-2, method="axis"),
        ma.compile("sin(x)", ma.Box(x=(-1, 1)), error=1e-2, method="spectral"),
        ma.compile(ma.Table([np.arange(4.0)], np.arange(4.0) ** 2), method="nearest"),
        ma.compile("abs(x), sin(y)", ma.Box(x=(-1, 1), y=(-1, 1)), error=1e-2),
    ]
    here = {name for name, route in ROUTES.items() if "cpu" in route.devices}  # others need a GPU: benchmarks/gpu_clusters.py
    assert {way.route for layer in layers for way in ways(layer)} == here
    for layer in layers:  # and every arithmetic of it
        there = {(way.route, way.statement.dtype) for way in ways(layer)}
        assert there == {(said.route, said.dtype) for said in layer.statements() if said.device == "cpu"}
