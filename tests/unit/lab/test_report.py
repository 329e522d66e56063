"""Records without empty fields, what is kept of a run, and the report: as text, as markdown, in a real browser."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from maxaffine.cli.app import main
from maxaffine.core.errors import BadInput
from maxaffine.lab import machine
from maxaffine.lab.experiment import Verdict
from maxaffine.lab.record import VARIABLES, empty_fields, read, stated
from maxaffine.lab.registry import EXPERIMENTS, find
from maxaffine.lab.report import collect, markdown, page, write

TOYS = Path(__file__).with_name("toys")
ROOT = Path(__file__).resolve().parents[3]
KEPT = sorted(folder.name for folder in (ROOT / "results").iterdir() if folder.is_dir())

_spec = importlib.util.spec_from_file_location("maxaffine_browser", TOYS / "browser.py")
assert _spec is not None and _spec.loader is not None
browser = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(browser)


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    monkeypatch.syspath_prepend(str(TOYS))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A results folder with one toy run in it."""
    folder = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOYS))
        assert main(["lab", "run", "lab_toy:EXPERIMENT", "--out", str(folder / "run")]) == 0
        assert main(["lab", "keep", str(folder / "run"), "--results", str(folder / "results")]) == 0
    return folder / "results"


def test_a_record_answers_all_ten_variables_and_has_no_empty_field(kept):
    record = read(kept / "toy")
    assert list(record["card"]) == list(VARIABLES) and empty_fields(record) == []
    card = record["card"]
    assert card["open data"].startswith("no data set: synthetic, made by lab_toy.py")
    assert card["seeds"] == "0 to 0" and card["wall time"].endswith("s") and "6 units" in card["wall time"]
    assert card["hardware"][0]["units"] == 6 and card["hardware"][0]["cores"] >= 1
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", card["software"][0]["numpy"])
    assert card["experiment setup"]["parameters"]["deadly"] == "none"
    assert len(card["source code"][0]["module_sha256"]) == 64


@pytest.mark.parametrize("name", KEPT)
def test_every_kept_record_is_complete_and_matches_its_results(name):
    record = read(ROOT / "results" / name)
    assert record["experiment"] == name in EXPERIMENTS and empty_fields(record) == []
    assert not record["quick"] and not record["synthetic"]
    experiment = find(name)
    if record["version"] == experiment.version:
        assert record["rule"] == experiment.rule.strip() or record["rule"] == experiment.rule
    text = json.dumps(record)
    for secret in ("/work", "/home", "/root", "/tmp", "http://", "https://", "localhost"):
        assert secret not in text


@pytest.mark.parametrize("name", KEPT)
def test_every_kept_verdict_follows_from_the_kept_results(name):
    record = read(ROOT / "results" / name)
    experiment = find(name)
    if record["version"] != experiment.version:
        pytest.skip("the results are of an earlier version")
    results = json.loads((ROOT / "results" / name / "results.json").read_text())
    found = experiment.verdict(results["results"], results["parameters"])
    assert found.outcome == record["verdict"]["outcome"]  # the words of the sentence may get better


def test_empty_places_are_found_and_filled_with_words():
    hollow = {"a": None, "b": ["", []], "c": {}, "d": 0, "e": False}
    assert empty_fields(hollow) == ["record.a", "record.b[0]", "record.b[1]", "record.c"]
    assert stated(hollow) == {"a": "none", "b": ["none", "none"], "c": "none", "d": 0, "e": False}


@pytest.mark.parametrize("outcome", ["maybe", "reproduced, but explained by ", "Reproduced", ""])
def test_a_verdict_has_one_of_the_known_outcomes(outcome):
    with pytest.raises(BadInput, match="`outcome`"):
        Verdict(outcome, "words", {})
    assert Verdict("reproduced, but explained by the size of the inputs", "words", {})


def test_hardware_and_software_are_read_from_the_machine():
    hardware, software = machine.hardware("cpu"), machine.software()
    assert hardware["processor"] and hardware["memory"].endswith("GiB") and "python" in software and "numpy" in software
    assert not any(str(Path.home()) in str(value) for value in (*hardware.values(), *software.values()))


def test_a_copy_that_no_repository_tracks_has_no_commit(tmp_path):
    goal = tmp_path / "copy" / "maxaffine"
    shutil.copytree(ROOT / "src" / "maxaffine", goal, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    code = "from maxaffine.lab.machine import source; print(source('maxaffine.lab.record'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(goal.parent)})
    assert done.returncode == 0 and "package_sha256" in done.stdout and "commit" not in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("record.json", "{", "is not JSON"),
        ("record.json", "{}", "is not a record"),
        ("results.json", "{}", "SHA-256 differs"),
        ("record.json", None, "the run is not finished"),
        ("results.json", None, "cannot read"),
        ("figure.png", None, "has no figure.png"),
    ],
)
def test_a_damaged_result_is_a_sentence_and_exit_code_2(file, content, sentence, kept, tmp_path, capsys):
    shutil.copytree(kept, tmp_path / "results")
    path = tmp_path / "results" / "toy" / file
    path.unlink() if content is None else path.write_text(content)
    assert main(["lab", "report", "--results", str(tmp_path / "results"), "--out", str(tmp_path / "r.html")]) == 2
    assert sentence in capsys.readouterr().err and not (tmp_path / "r.html").exists()


def test_a_quick_run_is_not_kept_as_a_result(tmp_path, capsys):
    assert main(["lab", "run", "lab_toy:EXPERIMENT", "--quick", "--out", str(tmp_path / "run")]) == 0
    assert main(["lab", "keep", str(tmp_path / "run"), "--results", str(tmp_path / "results")]) == 2
    assert "was a quick one" in capsys.readouterr().err and not (tmp_path / "results").exists()


def test_the_report_holds_claim_verdict_table_and_card_of_every_record(kept, tmp_path):
    pages = write(kept, tmp_path / "r.html", tmp_path / "r.md")
    assert pages == {"experiments": 1, "files": [str(tmp_path / "r.html"), str(tmp_path / "r.md")]}
    for text in ((tmp_path / "r.html").read_text(), (tmp_path / "r.md").read_text()):
        for words in ("Numbers add up.", "The sum was found.", "reproduced", "unit-5", *VARIABLES):
            assert words in text
    assert re.search(r"!\[toy: The sum was found\.\]\((.*?)\)", (tmp_path / "r.md").read_text())[1].endswith("toy/figure.png")


def test_what_a_record_says_cannot_become_markup():
    hostile = "<script>alert(1)</script> & `x` **y** | z"
    assert "<script" not in page.prose(hostile) and "<code>x</code>" in page.prose(hostile)
    assert page.prose("- a\n- b `c`\n  more") == "<ul><li>a</li><li>b <code>c</code>\n  more</li></ul>"


def test_numbers_of_a_verdict_stand_on_lines_of_their_own(kept):
    (folder, record), *_ = collect(kept)
    record["verdict"]["numbers"] = {"x < y": 12345, "R1, tree": "at most <b> tokens."}
    text = markdown.render([(folder, record)], kept)
    assert "\n- x &lt; y: 12,345\n- R1, tree: at most &lt;b> tokens.\n" in text


def test_the_page_in_the_documentation_is_the_one_that_the_results_give():
    found = collect(ROOT / "results")
    assert (ROOT / "docs" / "experiments.md").read_text() == markdown.render(found, ROOT / "docs")


def test_the_report_opens_in_a_browser_without_errors_or_outside_requests_and_shows_every_figure(tmp_path):
    path = browser.chromium()
    if path is None:
        pytest.skip("no Chromium; name one in CHROMIUM")
    goal = tmp_path / "report.html"
    write(ROOT / "results", goal, None)
    with browser.Browser(path) as window:
        window.open(goal.as_uri())
        images = window.evaluate(
            "Promise.all([...document.images].map(i => i.decode().then(() => [i.naturalWidth, i.getBoundingClientRect().width,"
            " i.getBoundingClientRect().height, getComputedStyle(i).visibility, i.alt])))"
        )
        sections = window.evaluate("[...document.querySelectorAll('article')].map(a => a.id)")
        wide = window.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        asked = [event["request"]["url"] for event in window.seen("Network.requestWillBeSent")]
        complaints = window.seen("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Network.loadingFailed")
    assert sorted(sections) == KEPT and len(images) == len(KEPT)
    for natural, width, height, shown, alt in images:
        assert natural > 300 and width > 300 and height > 100 and shown == "visible" and alt.strip()
    assert wide
    assert asked and all(url == goal.as_uri() or url.startswith("data:") for url in asked)
    assert complaints == []


def test_the_browser_test_would_notice_errors_and_requests(tmp_path):
    path = browser.chromium()
    if path is None:
        pytest.skip("no Chromium; name one in CHROMIUM")
    goal = tmp_path / "bad.html"
    goal.write_text("<img src='http://127.0.0.1:9/x.png'><script>console.error('no'); throw new Error('bad')</script>")
    with browser.Browser(path) as window:
        window.open(goal.as_uri())
        asked = [event["request"]["url"] for event in window.seen("Network.requestWillBeSent")]
        assert "http://127.0.0.1:9/x.png" in asked
        assert window.seen("Runtime.exceptionThrown") and window.seen("Runtime.consoleAPICalled")
