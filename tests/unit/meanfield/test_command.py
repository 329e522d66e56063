"""The command `maxaffine meanfield`, through the main program."""

import json
import math

import pytest

from maxaffine.cli.app import main


def call(capsys, *arguments):
    code = main(["meanfield", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def record_of(capsys, *arguments):
    code, out, err = call(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    assert out.count("\n") == 1

    def refuse(word):
        raise AssertionError(f"{word} in the output")

    return json.loads(out, parse_constant=refuse)


EXAMPLE = (
    "risk", "--d", "100", "--L", "20", "--beta", "1", "--gamma", "0.5",
    "--mu", ".3", "--nu", ".2", "--eta", ".1", "--zeta", "-.05", "--rho", ".15",
)  # fmt: skip


def test_the_example_of_the_documentation_prints_risk_gradient_and_self_check(capsys):
    record = record_of(capsys, *EXAMPLE)
    assert record["risk"] == pytest.approx(0.647321598368672, abs=1e-14)
    assert set(record["gradient"]) == {"mu", "nu", "eta", "zeta", "rho"}
    assert record["self_check"] < 1e-13
    code, out, err = call(capsys, *EXAMPLE)
    assert code == 0
    assert "0.64732159836867" in out
    assert err == ""


def test_lengths_up_to_1e60_temperatures_and_links_are_taken(capsys):
    assert record_of(capsys, "risk", "--L", "1e60", "--lam", "30", "--mu", "0.2")["self_check"] < 1e-13
    assert record_of(capsys, "risk", "--alpha", "0.1", "--d", "200")["problem"]["L"] == pytest.approx(1 + math.exp(20))
    values = [record_of(capsys, "risk", "--d", "10", "--L", "5", "--link", link)["risk"] for link in ("relu", "sign", "tanh(x)")]
    assert len(set(values)) == 3
    small = ("risk", "--d", "10", "--L", "5", "--mu", ".5", "--nu", ".4")
    own = record_of(capsys, *small, "--link", "max(x,0)", "--breaks", "0")
    assert own["risk"] == pytest.approx(record_of(capsys, *small, "--link", "relu")["risk"], abs=1e-11)
    # the sign link's gradient is infinite at the oracle: null in JSON, never Infinity
    assert record_of(capsys, "risk", "--link", "sign")["gradient"]["nu"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("risk", "--mu", ".9", "--eta", ".9"), "infeasible"),
        (("risk", "--mu", "nan"), "`mu` (=nan)"),
        (("risk", "--gamma", "1.5"), "`gamma` (=1.5)"),
        (("risk", "--gamma", "inf"), "`gamma`"),
        (("risk", "--L", "1"), "`L` (=1)"),
        (("risk", "--lam", "-3"), "`lam`"),
        (("risk", "--lam", "3", "--beta", "1"), "`beta` and `lam`"),
        (("risk", "--L", "3", "--alpha", "1"), "`L` and `alpha`"),
        (("risk", "--link", "cube"), "`link`"),
        (("risk", "--link", "abs(x)"), "`breaks`"),
        (("risk", "--link", "abs(x)", "--breaks", "zero"), "`breaks`"),
        (("dynamics", "--every", "0"), "`every`"),
        (("risk", "--figure", "x.txt"), "--figure"),
        (("risk", "--figure", "no/such/folder/x.png"), "does not exist"),
        (("risk", "--typo", "1"), "--typo"),
        (("dynamics", "--rule", "mine"), "`rule`"),
        (("dynamics", "--rule", "paper", "--link", "relu"), "`rule`"),
        (("dynamics", "--step", "0"), "`step`"),
        (("simulate", "--L", "2.5"), "`L`"),
        (("simulate", "--method", "adam"), "`method`"),
        (("simulate", "--backend", "jax"), "`backend`"),
        (("compare", "--seeds", "0"), "`seeds`"),
        (("claims", "--only", "none"), "`only`"),
        (("figures", "--only", "none"), "`only`"),
        (("phase", "--alpha", "9"), "`alpha`"),
    ],
)
def test_bad_input_exits_2_with_a_sentence_on_standard_error_and_nothing_else(capsys, arguments, words):
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_baselines_and_phase(capsys):
    record = record_of(capsys, "baselines", "--gamma", "0.9")
    assert record["bayes"] < record["bayes_projected"] < record["softmax_best"] < record["softmax_oracle"] < record["linear"]
    record = record_of(capsys, "phase", "--alpha", "0.1", "--gamma", "0.95", "--d", "2000", "--beta", "1")
    assert record["phase"] == "condensed"
    assert record["risk"]["exact"] == pytest.approx(record["risk"]["corrected"], abs=0.005)
    assert record["risk"]["exact"] - record["risk"]["paper"] == pytest.approx(0.557, abs=0.002)
    assert record_of(capsys, "phase", "--alpha", "0.2", "--gamma", "0.8")["intermediate"] is True


def test_dynamics_prints_the_recursion_the_flow_and_the_stationary_points(capsys, tmp_path):
    record = record_of(capsys, "dynamics", "--steps", "60", "--mu", ".2", "--figure", str(tmp_path / "path.png"))
    assert record["time"] == list(range(0, 61, 3))
    assert record["risk"][-1] < record["risk"][0]
    assert (tmp_path / "path.png").stat().st_size > 1000
    flow = record_of(capsys, "dynamics", "--steps", "60", "--mu", ".2", "--flow")
    assert flow["final"]["mu"] == pytest.approx(record["final"]["mu"], abs=0.01)
    kinds = [point["kind"] for point in record_of(capsys, "dynamics", "--steps", "1", "--stationary")["stationary"]]
    assert kinds.count("minimum") == 1
    assert record_of(capsys, "dynamics", "--steps", "5", "--rule", "paper")["rule"] == "paper"
    assert record_of(capsys, "dynamics", "--steps", "2", "--link", "relu", "--d", "10")["link"] == "relu"
    code, out, _ = call(capsys, "dynamics", "--steps", "10", "--stationary")
    assert code == 0
    assert "saddle" in out


def test_simulate_resumes_from_its_state_file(capsys, tmp_path):
    run = ("simulate", "--d", "12", "--L", "5", "--n", "50", "--steps", "20", "--every", "5", "--test", "100")
    whole = record_of(capsys, *run)
    state = str(tmp_path / "s.npz")
    assert record_of(capsys, *run, "--state", state, "--stop-at", "9")["finished"] is False
    resumed = record_of(capsys, *run, "--state", state)
    for key in ("step", "overlaps", "train", "test", "exact"):
        assert resumed[key] == whole[key]
    code, _, err = call(capsys, *run, "--state", state, "--seed", "5")
    assert (code, "other settings" in err) == (2, True)
    code, out, _ = call(capsys, *run, "--uniform", "--method", "sgd", "--figure", str(tmp_path / "x.svg"))
    assert code == 0
    assert "exact" in out
    assert (tmp_path / "x.svg").exists()


def test_compare_prints_test_exact_and_paper(capsys, tmp_path):
    small = ("--seeds", "1", "--steps", "2", "--n", "30", "--gamma", "0.5")
    record = record_of(capsys, "compare", *small, "--save", str(tmp_path / "r.json"))
    entry = record["runs"]["0.5"][0]
    assert {"test", "exact", "paper", "paper0", "learned", "z_rms"} <= set(entry)
    assert json.loads((tmp_path / "r.json").read_text())["runs"]["0.5"][0]["start"] == "uniform on both spheres"
    code, _, err = call(capsys, "figures", "--record", str(tmp_path / "r.json"), "--out", str(tmp_path / "f"))
    assert (code, "fields are missing" in err) == (2, True)


@pytest.mark.parametrize("name", ["risk", "transition", "bayes", "stationary", "invariance", "length", "linear"])
def test_claims_print_claim_check_and_finding(capsys, name):
    record = record_of(capsys, "claims", "--only", name)
    (claim,) = record["claims"]
    assert claim["verdict"] in ("holds", "holds in part")
    assert claim["finding"]
    code, out, _ = call(capsys, "claims", "--only", name)
    assert code == 0
    assert out.startswith("claim    ")
    assert "\ncheck    " in out
    assert "\nfinding  [" in out


def test_every_claim_of_the_paper_is_listed():
    from maxaffine.meanfield.claims import CLAIMS

    assert len(CLAIMS) == 10


@pytest.mark.parametrize("name", ["1-experiment", "2-retrieval", "4-fields", "6-success", "7-logarithmic", "8-limit"])
def test_figures_are_drawn_from_the_committed_record(capsys, name, tmp_path):
    from pathlib import Path

    record = Path(__file__).parents[3] / "docs" / "meanfield" / "experiment.json"
    result = record_of(capsys, "figures", "--out", str(tmp_path), "--record", str(record), "--only", name)
    assert result["files"] == [str(tmp_path / f"{name}.png")]
    assert 10_000 < (tmp_path / f"{name}.png").stat().st_size < 200_000


def test_the_committed_figures_are_eight_and_small():
    from pathlib import Path

    from maxaffine.meanfield.figures import FIGURES

    folder = Path(__file__).parents[3] / "docs" / "meanfield"
    assert sorted(path.stem for path in folder.glob("*.png")) == sorted(FIGURES)
    assert all(path.stat().st_size < 200_000 for path in folder.glob("*.png"))
