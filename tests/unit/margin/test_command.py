"""`maxaffine margin`: files, sentences, JSON, the figure, the verdicts."""

import json

import numpy as np
import pytest

from maxaffine.cli.app import main
from maxaffine.margin.figures import FIGURES, draw_all
from maxaffine.margin.files import read


def test_a_problem_is_judged_and_drawn(tmp_path, capsys):
    picture = tmp_path / "run.png"
    assert main(["margin", "single-local", "--end", "1e20", "--figure", str(picture), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["status"] == "global" and record["length"] ** 2 / 2 == pytest.approx(0.49505, abs=1e-5)
    assert record["certificate"]["descent"] >= 0.999
    assert {v["claim"]: v["verdict"] for v in record["verdicts"]} == {
        "ATT-SVM is solved": "pass", "the direction is p_mm": "pass", "|p| grows like |p_mm| log T": "not yet",
        "T times the loss gap tends to |p_mm|^2": "not yet", "path and flow share a line": "pass",
    }  # fmt: skip
    assert picture.stat().st_size > 10_000


def test_the_same_tokens_from_npz_and_both_kinds_of_csv(tmp_path):
    X, Y, v = np.random.default_rng(0).standard_normal((2, 3, 2)), np.array([1.0, -1.0]), np.array([0.5, -2.0])
    np.savez(tmp_path / "a.npz", X=X, Y=Y, v=v, start=[0.0, 1.0])
    lines, scored = ["input,label,value,x1,x2"], ["input,score,k1,k2"]
    for i in range(2):
        for x in X[i]:
            lines.append(f"{i},{int(Y[i])},{float(v @ x)!r},{x[0]!r},{x[1]!r}".replace("np.float64(", "").replace(")", ""))
            scored.append(f"{i},{float(Y[i] * (v @ x))!r},{float(x[0])!r},{float(x[1])!r}")
    (tmp_path / "b.csv").write_text("\n".join(lines))
    (tmp_path / "c.csv").write_text("\n".join(scored))
    first, *others = (read(str(tmp_path / name)).tokens for name in ("a.npz", "b.csv", "c.csv"))
    for other in others:
        assert np.allclose(other.keys, first.keys, atol=0) and np.allclose(other.scores, first.scores, rtol=1e-15)
    assert read(str(tmp_path / "a.npz")).start.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("input,label,value,x\n0,1,2,3\n0,2,2,3\n", "two labels"),
        ("input,label,value,x\n0,2,2,3\n0,2,2,4\n", "the label 2 at input 0; labels are"),
        ("input,score,x\n0,1,nan\n0,1,2\n", "line 2: every number must be finite"),
        ("input,score,x\n0,1,a\n", "line 2: every cell after the input must be a number"),
        ("input,score,x\n0,1,2\n", "1 token per input"),
        ("input,score,x\n0,1,2\n0,1,3\n1,1,1\n", "the same number of tokens; 0 has 2, 1 has 1"),
        ("input,score,x\n0,1\n", "line 2: 2 cells came where 3"),
        ("a,b\n", "the header must begin with"),
        ("input,score\n0,1\n", "the coordinates of the key must follow"),
        ("", "it is empty"),
    ],
)
def test_a_file_that_is_wrong_is_a_sentence(tmp_path, capsys, text, sentence):
    (tmp_path / "d.csv").write_text(text)
    assert main(["margin", str(tmp_path / "d.csv")]) == 2
    assert sentence in capsys.readouterr().err


def test_a_name_that_is_none_and_an_archive_without_tokens_are_sentences(tmp_path, capsys):
    np.savez(tmp_path / "e.npz", Z=[1.0])
    (tmp_path / "g.npz").touch()
    for name, sentence in ((str(tmp_path / "e.npz"), "it must hold X, Y and v"), ("nobody", "single, single-local, multi"),
                           (str(tmp_path / "f.csv"), "there is no such file"),
                           (str(tmp_path / "g.npz"), "cannot read")):  # fmt: skip
        assert main(["margin", name]) == 2
        assert sentence in capsys.readouterr().err


def test_a_figure_is_drawn_and_all_seven_are_named(tmp_path):
    assert len(FIGURES) == 7
    assert [path.stat().st_size > 10_000 for path in draw_all(tmp_path, ["margin-3-gap"])] == [True]
    with pytest.raises(ValueError, match="the figures are"):
        draw_all(tmp_path, ["eighth"])
