"""Every command in process: exit codes, the two streams, files that appear whole or not at all."""

import csv
import io
import json
import math
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.cli.app import main
from maxaffine.core.container import read_container, write_container

BOX = ("--box", "x=-1:1")
SQUARE = ("--box", "x=-pi:pi,y=-pi:pi")


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self):
        def refuse(word):
            raise AssertionError(f"{word} in JSON")

        assert self.out.count("\n") == 1
        return json.loads(self.out, parse_constant=refuse)


@pytest.fixture
def run(capsys, monkeypatch):
    def call(*arguments, stdin: bytes = b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return call


@pytest.fixture
def refused(run, tmp_path):
    """Run, and check that it is refused: code 2, one sentence, empty standard output, no file."""

    def call(*arguments, stdin: bytes = b"") -> str:
        before = sorted(tmp_path.rglob("*"))
        answer = run(*arguments, stdin=stdin)
        assert answer.code == 2, answer
        assert answer.out == ""
        assert answer.err.startswith("maxaffine: ") and "Traceback" not in answer.err
        assert sorted(tmp_path.rglob("*")) == before
        return answer.err

    return call


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """sin(x) + cos(y) in a file."""
    path = tmp_path_factory.mktemp("layer") / "f.safetensors"
    assert main(["compile", "sin(x)+cos(y)", *SQUARE, "--error", "0.3", "--method", "lookup", "--out", str(path), "--quiet"]) == 0
    return path


# -- compile


def test_a_refusal_says_the_main_thing_first_and_what_was_tried_a_line_each(refused):
    asked = ("compile", "floor(3*x)", "--box", "x=-1:1", "--error", "1e-3")
    lines = refused(*asked, "--verbose").splitlines()
    assert lines[0].startswith("maxaffine: the sup norm cannot be proved") and "tried" not in lines[0]
    assert lines[1] == "  try: maxaffine compile 'floor(3*x)' --box x=-1:1 --error 1e-3 --verbose --gap 1e-06"
    methods = [line.removeprefix("  tried ").partition(":")[0] for line in lines[2:]]
    assert all(line.startswith("  tried ") for line in lines[2:])
    short = refused(*asked).splitlines()
    assert short[0] == lines[0] and len(short) == 3 and short[2].startswith("  --verbose lists what was tried")
    assert methods[:2] == ["piecewise", "axis"] and "tree" in methods and len(set(methods)) == len(methods)


def test_a_refusal_as_json_is_one_object(run):
    answer = run("compile", "sin(x)", "--box", "x=-1:1", "--error", "1e-16", "--json")
    found = json.loads(answer.out)
    assert answer.code == 2 and set(found) == {"refused", "reason", "nearest_error", "try", "tried"}
    assert found["refused"] == "request" and "float64" in found["reason"] and 1e-14 < found["nearest_error"] < 1e-9
    command = shlex.split(found["try"])
    assert command[:3] == ["maxaffine", "compile", "sin(x)"]
    assert float(command[command.index("--error") + 1]) == found["nearest_error"]
    for asked in (("compile", "sin(", *BOX, "--error", "1", "--json"), ("compile", "x", *BOX, "--eror", "1", "--json")):
        answer = run(*asked)
        found = json.loads(answer.out)
        assert answer.code == 2 and found["refused"] == "input" and found["reason"] and found["try"] is None


def test_compile_json_is_one_object_with_the_promised_fields(run):
    found = run("compile", "sin(x)+cos(y)", *SQUARE, "--error", "0.1", "--method", "lookup", "--json").json
    assert found["tokens"] <= 4900 and found["bound"] <= 0.1 and found["kind"] == "proved"
    assert found["method"] == "lookup" and found["error"] == 0.1 and found["dtype"] == "float64"
    assert 0 < found["observed"] <= found["bound"] and found["seconds"] > 0 and found["file"] is None
    assert math.isclose(sum(found["parts"].values()), found["bound"], rel_tol=1e-9)
    assert set(found["parts"]) == {"approximation", "leakage", "rounding", "target_rounding"}
    assert isinstance(found["tokens"], int) and found["sharpness"] > 0


def test_compile_writes_layer_and_figure_and_says_so(run, tmp_path):
    layer, figure = tmp_path / "f.safetensors", tmp_path / "f.png"
    answer = run("compile", "sin(x)", *BOX, "--error", "0.1", "--out", layer, "--figure", figure)
    assert answer.code == 0 and answer.err == ""
    assert "proved" in answer.out and f"maxaffine check {layer}" in answer.out and str(figure) in answer.out
    assert sorted(tmp_path.iterdir()) == [figure, layer]
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert abs(ma.load(layer)(0.5) - math.sin(0.5)) <= 0.1


def test_the_same_compile_gives_the_same_bytes(run, tmp_path):
    for name in ("a", "b"):
        run("compile", "x*abs(x)", *BOX, "--error", "0.1", "--out", tmp_path / f"{name}.safetensors", "--quiet")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_quiet_prints_nothing_and_json_still_speaks(run):
    assert run("compile", "x", *BOX, "--error", "0.5", "--quiet") == Answer(0, "", "")
    assert run("compile", "x", *BOX, "--error", "0.5", "--quiet", "--json").json["error"] == 0.5


@pytest.mark.parametrize(
    "words",
    [
        ("-x**2",),
        ("-x**2+1",),
        ("-x",),
        ("--x**2",),
        ("--", "-x"),
        ("--", "--x"),
        ("-1",),
        ("-(x)",),
        ("-sin(x) - 1",),
        ("-h**2",),
    ],
)
def test_an_expression_may_begin_with_a_minus(run, words):
    box = ("--box", "x=-1:1,h=0:1")
    answer = run("compile", *box, "--error", "0.9", "--json", *words)
    assert answer.code == 0 and answer.json["target"] == words[-1]
    if len(words) == 1:
        assert run("compile", *words, *box, "--error", "0.9", "--json").json["target"] == words[0]


def test_several_outputs_a_range_and_an_error_as_an_expression(run):
    found = run("compile", "x1, x2*x3", "--box", "x1..x3=0:1", "--error", "1/2", "--json").json
    assert found["error"] == 0.5 and found["bound"] <= 0.5


def test_a_gallery_name_needs_no_box(run):
    assert run("compile", "kink", "--error", "0.2", "--json").json["target"] == "kink"


def test_options_reach_the_compiler(run):
    args = ("compile", "100*x", *BOX, "--error", "0.1", "--relative", "--dtype", "float32", "--attention", "cross", "--json")
    found = run(*args, "--lipschitz", "100", "--seed", "3", "--max-bytes", "1MiB").json
    assert found["dtype"] == "float32" and found["attention"] == "cross" and found["bound"] <= found["error"]
    assert 9 <= found["error"] <= 10
    assert run("compile", "abs(x)", *BOX, "--error", "0.2", "--norm", "1", "--json").json["norm"] == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("sin(x)", *BOX, "--error", "0"), "`error` (=0)"),
        (("sin(x)", *BOX, "--error", "-1"), "`error` (=-1)"),
        (("sin(x)", *BOX, "--error", "nan"), "`error` (=nan)"),
        (("sin(x)", *BOX, "--error", "inf"), "`error` (=inf)"),
        (("sin(x)", *BOX, "--error", "1e-300"), "`error` (=1e-300)"),
        (("sin(x)", *BOX, "--error", "small"), "'small'"),
        (("sin(x)", "--box", "", "--error", "1"), "box is empty"),
        (("sin(x)", "--box", "x=1:1", "--error", "1"), "box is empty"),
        (("sin(x)", "--box", "x=1:-1", "--error", "1"), "inverted"),
        (("sin(x)", "--box", "x=a:1", "--error", "1"), "'a'"),
        (("sin(x)", "--error", "1"), "--box"),
        (("foo(x)", *BOX, "--error", "1"), "`foo`"),
        (('__import__("os")', *BOX, "--error", "1"), "`__import__`"),
        (("x.__class__", *BOX, "--error", "1"), "malformed"),
        (("(" * 40_000 + "x" + ")" * 40_000, *BOX, "--error", "1"), "80,001 characters"),
        (("(" * 4000 + "x" + ")" * 4000, *BOX, "--error", "1"), "200"),
        (("x**(10**9)", *BOX, "--error", "1"), "exponent"),
        (("sin(", *BOX, "--error", "1"), "malformed"),
        (("", *BOX, "--error", "1"), "empty"),
        (("sign(x)", *BOX, "--error", "0.1"), "`sign(x)` jumps"),
        (("1/x", *BOX, "--error", "0.1"), "`1/x`"),
        (("log(x)", *BOX, "--error", "0.1"), "`log(x)`"),
        (("x+y", *BOX, "--error", "0.1"), "`y`"),
        (("abs(x1*x2+x3*x4)", "--box", "x1..x4=-9:9", "--error", "1e-4"), "The nearest error"),
        (("sin(x)", *BOX, "--error", "1e-3", "--max-bytes", "100"), "`max_bytes`"),
        (("sin(x)", *BOX, "--error", "1", "--max-bytes", "much"), "'much'"),
        (("sin(x)", *BOX, "--error", "1", "--method", "magic"), "`method` (='magic') is not known; choose one of auto"),
        (("sin(x)", *BOX, "--error", "1", "--norm", "0.5"), "`norm` (='0.5')"),
        (("sin(x)", *BOX, "--error", "1", "--dtype", "int8"), "`dtype` (='int8')"),
        (("sin(x)", *BOX, "--error", "1", "--attention", "both"), "`attention` (='both')"),
        (("sin(x)", *BOX, "--error", "1", "--seed", "-1"), "`seed` (=-1)"),
        (("sin(x)", *BOX, "--error", "1", "--seed", "x"), "`seed` (='x')"),
        (("sin(x)", *BOX, "--error", "0.1", "--lipschitz", "0.1"), "`lipschitz`"),
        (("sin(x)", *BOX, "--error", "0.1", "--lipschitz", "1,2,3"), "lipschitz"),
        (("sin(x)", *BOX), "--error"),
        ((*BOX, "--error", "1"), "EXPR"),
        (("sin(x)", *BOX, "--error"), "--error needs a value"),
        (("sin(x)", "--box", "--error", "1"), "--box needs a value"),
        (("sin(x)", *BOX, "--error", "1", "--foo"), "--foo"),
        (("sin(x)", *BOX, "--erro", "1"), "did you mean --error?"),
        (("sin(x)", *BOX, "--error", "1", "--figre=f.png"), "did you mean --figure?"),
        (("sin(x)", *BOX, "--error", "1", "-z", "f"), "no option -z"),
        (("sin(x)", "+", "1", *BOX, "--error", "1"), 'blanks: "sin(x) + 1"'),
        (("no_such_entry", "--error", "1"), "`no_such_entry`"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)  # fmt: skip
def test_bad_requests_are_refused_with_a_sentence_and_no_file(refused, tmp_path, arguments, named):
    message = refused("compile", *arguments, "--out", tmp_path / "f.safetensors", "--figure", tmp_path / "f.png")
    assert named in message


@pytest.mark.parametrize(
    ("option", "path"),
    [("--out", "f.pt"), ("--out", "missing/f.safetensors"), ("--out", "."), ("--figure", "f.gif"), ("--figure", "missing/f.png")],
)
def test_bad_paths_are_refused_before_the_work_starts(refused, tmp_path, monkeypatch, option, path):
    monkeypatch.setattr("maxaffine.compiler.compile", lambda *_, **__: pytest.fail("work was begun"))
    message = refused("compile", "x", *BOX, "--error", "1", option, tmp_path / path)
    assert option in message and str(tmp_path / path) in message


def test_a_failing_figure_leaves_neither_figure_nor_layer(run, tmp_path, monkeypatch):
    for failure, code in ((KeyboardInterrupt(), 130), (ma.Refused("no ink"), 2), (RuntimeError("boom"), 70), (MemoryError(), 2)):

        def draw(*_, failure=failure, **__):
            raise failure

        monkeypatch.setattr("maxaffine.report.figures.draw", draw)
        answer = run("compile", "x", *BOX, "--error", "1", "--out", tmp_path / "f.safetensors", "--figure", tmp_path / "f.png")
        assert answer.code == code and answer.out == "" and list(tmp_path.iterdir()) == []
        assert ("Traceback" in answer.err) == (code == 70)
        assert "report it" in answer.err if code == 70 else answer.err.count("\n") == 1


def test_a_refused_compile_keeps_the_old_file(run, tmp_path):
    path = tmp_path / "f.safetensors"
    path.write_bytes(b"precious")
    assert run("compile", "1/x", *BOX, "--error", "1", "--out", path).code == 2
    assert path.read_bytes() == b"precious" and list(tmp_path.iterdir()) == [path]


def test_brackets_and_escapes_survive_in_messages(refused):
    assert "[red]" in refused("compile", "x", "--box", "x=[red]:1", "--error", "1")
    assert "\x1b" not in refused("compile", "x", "--box", "x=\x1b[31m:1", "--error", "1")


# -- check


def test_check_prints_both_bounds_and_passes(run, saved):
    answer = run("check", saved)
    assert answer.code == 0 and answer.err == ""
    assert "claimed    bound 0.29" in answer.out and "checked    bound 0.29" in answer.out and "verdict    proved" in answer.out
    found = run("check", saved, "--json").json
    assert found["passed"] is True and found["bound"] <= found["error"] == 0.3 and found["claimed"] <= 0.3


def test_check_says_plainly_that_a_stated_bound_is_not_confirmed(run, saved, tmp_path):
    assert "not confirmed" not in run("check", saved).out and run("check", saved, "--json").json["bound_confirmed"] is True
    tensors, record = read_container(saved)
    path = tmp_path / "boast.safetensors"
    write_container(path, tensors, {**record, "certificate": {**record["certificate"], "bound": 1e-9}})
    answer = run("check", path)
    assert answer.code == 1 and "is not confirmed, only the error is" in answer.err
    assert answer.out.splitlines()[-1] == "verdict    not proved"
    found = run("check", path, "--json").json
    assert found["passed"] is False and found["bound_confirmed"] is False and found["claimed"] == 1e-9
    assert "only the error is" in found["reason"]


def test_check_prints_every_claim_of_the_literal_form_and_refuses_one_that_is_false(run, saved, tmp_path):
    answer, told = run("check", saved), read_container(saved)[1]["literal"]["float64"]["bound"]
    (line,) = [line for line in answer.out.splitlines() if line.startswith("literal")]
    assert answer.code == 0 and line.startswith(f"literal    float64: stated {told!r}, checked 0.29")
    tensors, record = read_container(saved)
    path = tmp_path / "boast.safetensors"
    write_container(path, tensors, {**record, "literal": {"float64": {"bound": 0.01}}})
    answer = run("check", path)
    assert answer.code == 1 and "literal form in float64 is claimed to be within 0.01" in answer.err
    found = run("check", path, "--json").json
    assert found["bound_confirmed"] is True and found["literal"]["float64"]["confirmed"] is False and found["passed"] is False


def test_check_says_that_a_callable_cannot_be_proved_again(run, tmp_path):
    path = tmp_path / "f.safetensors"
    ma.compile(lambda x: x[:, 0], ma.Box(x=(0, 1)), error=0.5, lipschitz=1, trace=False).save(path)
    answer = run("check", path)
    assert answer.code == 1 and "callable" in answer.err and answer.err.count("\n") == 1 and "not proved" in answer.out
    found = run("check", path, "--json")
    assert (
        found.code == 1 and found.json["passed"] is False and found.json["bound"] is None and "callable" in found.json["reason"]
    )


def test_check_does_not_believe_a_file_that_promises_too_much(run, saved, tmp_path):
    tensors, record = read_container(saved)
    path = tmp_path / "boast.safetensors"
    write_container(path, tensors, {**record, "error": 0.01})
    answer = run("check", path, "--json")
    assert answer.code == 1 and answer.json["passed"] is False and answer.json["error"] == 0.01
    assert "not proved" in answer.err


@pytest.mark.parametrize(
    "change",
    [
        {"certificate": None},
        {"certificate": []},
        {"error": None},
        {"error": "much"},
        {"target": 7},
        {"layer": {}},
        {"plan": None, "layer": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("command", ["check", "eval"])
def test_a_forged_record_with_a_sound_hash_is_refused(refused, saved, tmp_path, change, command):
    tensors, record = read_container(saved)
    path = tmp_path / "forged.safetensors"
    write_container(path, tensors, {**record, **change})
    assert "forged.safetensors" in refused(command, path, stdin=b"0,0\n")


def _damage(path: Path, kind: str) -> None:
    data = bytearray(path.read_bytes())
    if kind == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif kind == "edited":
        data[-5] ^= 1
        path.write_bytes(data)
    elif kind == "longer":
        path.write_bytes(data + b"\0" * 8)
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("x,y\n1,2\n")
    elif kind == "missing":
        path.unlink()
    elif kind == "folder":
        path.unlink()
        path.mkdir()
    else:
        from safetensors.numpy import save_file

        save_file({"weight": np.ones(3)}, path)


@pytest.mark.parametrize("command", ["check", "eval"])
@pytest.mark.parametrize("kind", ["truncated", "edited", "longer", "empty", "text", "missing", "folder", "foreign"])
def test_a_bad_file_is_refused_by_name(refused, saved, tmp_path, kind, command):
    path = tmp_path / f"{kind}.safetensors"
    shutil.copy(saved, path)
    _damage(path, kind)
    assert path.name in refused(command, path, stdin=b"0,0\n")


# -- plan


def test_plan_tells_the_cost_of_every_error_and_builds_nothing(run, monkeypatch):
    monkeypatch.setattr("maxaffine.heads.lookup.search.Lookup.build", lambda *_: pytest.fail("something was built"))
    found = run("plan", "sin(x)+cos(y)", *SQUARE, "--error", "0.1,0.05,1e-6", "--json").json
    assert found["errors"] == [0.1, 0.05, 1e-6]
    cheapest = {error: min(p["tokens"] for p in found["plans"] if p["error"] == error) for error in found["errors"]}
    assert cheapest[0.1] <= 4900 and cheapest[0.05] <= 19_321 and cheapest[1e-6] <= 26
    lookups = [p for p in found["plans"] if p["method"] == "lookup"]
    assert min(p["tokens"] for p in lookups if p["error"] == 1e-6) > 1e12
    assert all(p["affordable"] == (p["error"] > 1e-3) for p in lookups)
    text = run("plan", "-x", *BOX, "--error", ".1", "--norm", "inf").out
    assert "tokens" in text and "lookup" in text and "flops per query" in text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("x", *BOX, "--error", "0.1,0"), "`error` (=0)"),
        (("x", *BOX, "--error", "0.1,,0.2"), "'0.1,,0.2'"),
        (("1/x", *BOX, "--error", "0.1"), "`1/x`"),
        (("x", *BOX, "--error", "0.1", "--out", "f"), "--out"),
    ],
)
def test_a_bad_plan_is_refused(refused, arguments, named):
    assert named in refused("plan", *arguments)


# -- eval


def _table(text: str):
    rows = list(csv.reader(io.StringIO(text)))
    return rows[0], np.array(rows[1:], dtype=np.float64)


def test_eval_reads_columns_in_any_order_and_repeats_them_exactly(run, saved):
    answer = run("eval", saved, stdin=b"y,x\n0.1,0.5\n-1e-3,2\n\n")
    head, rows = _table(answer.out)
    assert head == ["y", "x", "f"] and answer.err == ""
    assert rows[:, :2].tolist() == [[0.1, 0.5], [-1e-3, 2.0]]
    assert rows[:, 2].tolist() == ma.load(saved)([[0.5, 0.1], [2.0, -1e-3]]).tolist()


def test_eval_repeats_columns_of_other_names_as_they_are(run, saved):
    answer = run("eval", saved, stdin=b"id,y,f,x,\nu 1,0.1,,0.5,a\nnan,-1e-3,7,2,\n").out
    head, *rows = csv.reader(io.StringIO(answer))
    assert head == ["id", "y", "f", "x", "", "fvalue"] and [row[:5] for row in rows] == [
        ["u 1", "0.1", "", "0.5", "a"], ["nan", "-0.001", "7", "2.0", ""],
    ]  # fmt: skip
    assert [float(row[5]) for row in rows] == ma.load(saved)([[0.5, 0.1], [2.0, -1e-3]]).tolist()
    assert json.loads(run("eval", saved, "--json", stdin=b"id,y,x\nu,0.1,0.5\n").out)["rows"][0][:2] == ["u", 0.1]


@pytest.mark.parametrize(
    "text", [b"0.1,0.5\n", b"\xef\xbb\xbfx,y\r\n0.1,0.5\r\n", b" x , y \n 0.1 , 0.5", b'"x","y"\n"0.1","0.5"\n']
)
def test_eval_reads_what_spreadsheets_write(run, saved, text):
    head, rows = _table(run("eval", saved, stdin=text).out)
    assert head == ["x", "y", "f"] and rows[0, :2].tolist() == [0.1, 0.5]


def test_eval_from_file_to_file_in_chunks_by_every_runtime(run, saved, tmp_path, monkeypatch):
    monkeypatch.setattr("maxaffine.cli.points.ROWS", 7)
    points = np.random.default_rng(0).uniform(-3, 3, (50, 2))
    source, out = tmp_path / "points.csv", tmp_path / "values.csv"
    source.write_text("x,y\n" + "".join(f"{x!r},{y!r}\n" for x, y in points.tolist()))
    for runtime in ("dense", "blocked", "factorised"):
        answer = run("eval", saved, "--points", source, "--out", out, "--runtime", runtime)
        assert answer.code == 0 and "50 points" in answer.out
        _, rows = _table(out.read_text())
        assert np.array_equal(rows[:, :2], points)
        assert np.abs(rows[:, 2] - ma.load(saved)(points)).max() < 1e-12
    assert sorted(tmp_path.iterdir()) == [source, out]


def test_eval_json_holds_the_rows_or_the_path(run, saved, tmp_path):
    found = run("eval", saved, "--json", stdin=b"0,0\n1,1\n").json
    assert found["points"] == 2 and found["columns"] == ["x", "y", "f"] and found["rows"][1][:2] == [1.0, 1.0]
    found = run("eval", saved, "--json", "--out", tmp_path / "v.csv", stdin=b"0,0\n").json
    assert found["rows"] is None and found["out"] == str(tmp_path / "v.csv")


def test_eval_clamps_on_request(run, saved):
    _, rows = _table(run("eval", saved, "--outside", "clamp", stdin=b"9,0\n3.14159265,0\n").out)
    assert rows[0, 0] == 9.0 and abs(rows[0, 2] - 1.0) < 0.3


def test_eval_names_every_output(run, tmp_path):
    path = tmp_path / "f.safetensors"
    run("compile", "f*0, f", "--box", "f=0:1", "--error", ".5", "--out", path, "--quiet")
    assert _table(run("eval", path, stdin=b"0.5\n").out)[0] == ["f", "fvalue1", "fvalue2"]
    run("compile", "mixed_2x2", "--error", "1.5", "--out", path, "--quiet")
    head, rows = _table(run("eval", path, stdin=b"0.1,0.2,0.3,0.4\n").out)
    assert head == ["x11", "x21", "x12", "x22", "f11", "f21", "f12", "f22"]
    sequence = np.array([[0.1, 0.3], [0.2, 0.4]])
    assert np.array_equal(rows[0, 4:], ma.load(path)(sequence).T.reshape(-1))


def test_eval_takes_both_inputs_of_a_cross_attention_layer(run, tmp_path):
    path = tmp_path / "f.safetensors"
    assert run("compile", "alignment", "--error", "1", "--method", "lookup", "--out", path, "--quiet").code == 0
    head, rows = _table(run("eval", path, stdin=b"0.1,0.2,0.3,0.4\n").out)
    assert head[:4] == ["q1", "q2", "k1", "k2"] and rows.shape == (1, len(head))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b"x,y\n", "no points"),
        (b"x,z\n1,2\n", "'y' is missing; the variables are x, y, and the header has x, z"),
        (b"x\n1\n", "'y' is missing"),
        (b"x,y,x\n1,2,3\n", "'x' twice"),
        (b"x,y\n1,2\n1,oops\n", "line 3, column y: 'oops'"),
        (b"y,x\n1,2\n1,\n", "line 3, column x: ''"),
        (b"1,2\nx,y\n", "line 2, column x: 'x'"),
        (b"1,b\n", "line 1, column y: 'b'"),
        (b"1,2\n\n3\n", "line 3: 1 cells"),
        (b"1,2,3\n", "line 1: 3 cells"),
        (b"1,nan\n", "line 1, column y: nan"),
        (b"1,2\n1,-inf\n", "line 2, column y: -inf"),
        (b"0,0\n4,0\n", "line 2: x = 4.0"),
        (b"1,\xff\n", "UTF-8"),
        (b"x,y\n1," + b"1" * 200_000 + b"\n", "not CSV"),
    ],
    ids=lambda value: value[:20].decode(errors="replace") if isinstance(value, bytes) else None,
)  # fmt: skip
def test_bad_points_are_refused_by_place_and_nothing_is_written(refused, saved, tmp_path, text, named):
    assert named in refused("eval", saved, stdin=text)
    points = tmp_path / "points.csv"
    points.write_bytes(text)
    message = refused("eval", saved, "--points", points, "--out", tmp_path / "values.csv")
    assert named in message and "points.csv" in message


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--points", "no-such.csv"), "no-such.csv"),
        (("--points", "."), "directory"),
        (("--runtime", "fast"), "'fast'"),
        (("--outside", "ignore"), "'ignore'"),
        (("--out", "no-such-folder/v.csv"), "no-such-folder"),
        (("--poins", "x"), "did you mean --points?"),
        (("extra",), "`extra`"),
    ],
)
def test_bad_options_of_eval_are_refused(refused, saved, arguments, named):
    assert named in refused("eval", saved, *arguments, stdin=b"0,0\n")


# -- gallery, doctor, and the command itself


def test_gallery_lists_and_shows(run, refused):
    listed = run("gallery", "--json").json["gallery"]
    assert len(listed) >= 45 and {"franke", "borehole"} <= {entry["name"] for entry in listed}
    assert len(run("gallery").out.splitlines()) == len(listed) + 1
    assert "Franke" in run("gallery", "franke").out
    assert run("gallery", "franke", "--json").json["dimension"] == 2
    assert "franke" in refused("gallery", "frnake")
    for entry in listed:
        assert run("gallery", entry["name"]).code == 0


def test_doctor_reports_and_passes(run):
    answer = run("doctor")
    assert answer.code == 0 and "numpy" in answer.out and "core       works" in answer.out
    found = run("doctor", "--json").json
    assert found["core_works"] is True and found["packages"]["python-flint"] and found["threads"] >= 1
    assert "torch" in found["extras"] and found["memory_free_bytes"] > 0 and "available" in found["gpu"]


def test_doctor_says_when_the_core_fails(run, monkeypatch):
    def broken(*_, **__):
        raise ImportError("libflint is gone")

    monkeypatch.setattr("maxaffine.compiler.compile", broken)
    answer = run("doctor", "--json")
    assert answer.code == 70 and answer.json["core_works"] is False and "libflint" in answer.err


@pytest.mark.parametrize("command", ["compile", "check", "plan", "eval", "gallery", "doctor"])
def test_every_command_has_help(run, command):
    for asked in ("--help", "-h"):
        answer = run(command, asked)
        assert answer.code == 0 and f"maxaffine {command}" in answer.out and answer.err == ""


def test_alone_it_shows_help_and_knows_its_version(run):
    answer = run()
    assert answer.code == 0 and "compile" in answer.out and "doctor" in answer.out
    assert run("--version").out == f"maxaffine {ma.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(("comple",), "did you mean compile?"), (("frobnicate",), "compile, check"), (("--foo",), "--foo"), (("check",), "FILE")],
)
def test_unknown_commands_and_missing_arguments(refused, arguments, named):
    assert named in refused(*arguments)


@pytest.mark.parametrize("option", [("--relative", "pointwise"), ("--relative=pointwise",)])
def test_errors_relative_to_each_value_are_asked_for_by_a_word(run, tmp_path, option):
    path = tmp_path / "f.safetensors"
    answer = run("compile", "exp(x)", "--box", "x=-3:3", "--error", "1e-3", *option, "--out", path)
    assert answer.code == 0, answer
    assert "sup norm relative to |f(x)|, pointwise (asked: 0.001)" in answer.out
    checked = run("check", path)
    assert checked.code == 0
    assert "error <= 0.001 |f(x)| at every x" in checked.out


@pytest.mark.parametrize("order", [("--relative", "exp(x)"), ("exp(x)", "--relative")])
def test_relative_alone_stays_in_units_of_the_largest_value(run, order):
    answer = run("compile", *order, "--box", "x=-3:3", "--error", "1e-3", "--quiet", "--json")
    assert json.loads(answer.out)["norm"] == "inf"
    assert json.loads(answer.out)["error"] == pytest.approx(1e-3 * np.exp(3.0), rel=0.01)


def test_relative_to_what_must_be_known(refused):
    told = refused("compile", "exp(x)", "--box", "x=-3:3", "--error", "1e-3", "--relative=each")
    assert "--relative pointwise" in told
