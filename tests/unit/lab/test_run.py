"""A run of the lab: killed, interrupted, out of disk, damaged, contested; and what it leaves behind."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from maxaffine.cli.app import main
from maxaffine.core.errors import BadInput, Refused
from maxaffine.lab import journal as journals
from maxaffine.lab.folder import locked
from maxaffine.lab.journal import Journal, sealed
from maxaffine.lab.registry import EXPERIMENTS, find, resolve
from maxaffine.lab.runner import default_folder

TOYS = Path(__file__).with_name("toys")
TOY = "lab_toy:EXPERIMENT"


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    monkeypatch.syspath_prepend(str(TOYS))
    monkeypatch.setenv("PYTHONPATH", str(TOYS))


def start(*arguments, module="maxaffine"):
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines(folder):
    journal = folder / "results.jsonl"
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def wait_for_lines(folder, count, process):
    deadline = time.monotonic() + 60
    while lines(folder) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def outcome(folder):
    """Everything of a finished run that must not depend on how it was run."""
    tensors = {path.name: path.read_bytes() for path in sorted((folder / "tensors").iterdir())}
    return (folder / "results.json").read_bytes(), (folder / "figure.png").read_bytes(), tensors


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run of six slow units."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOYS))
        assert main(["lab", "run", TOY, "--set", "wait=0.1", "--out", str(folder)]) == 0
    return folder


@pytest.mark.parametrize("module", ["maxaffine", "maxaffine.lab.worker"])
def test_a_run_killed_in_the_middle_and_resumed_equals_one_run_bit_for_bit(module, tmp_path, whole):
    folder = tmp_path / "run"
    words = [*(["lab", "run"] if module == "maxaffine" else []), TOY, "--set", "wait=0.1", "--out", folder]
    for done in (2, 4):
        process = start(*words, module=module)
        wait_for_lines(folder, done, process)
        time.sleep(0.03)
        process.kill()
        process.communicate()
        assert done <= lines(folder) < 6
    before = (folder / "results.jsonl").read_bytes()
    assert main(["lab", "run", TOY, "--set", "wait=0.1", "--out", str(folder)]) == 0
    assert (folder / "results.jsonl").read_bytes().startswith(before)
    assert outcome(folder) == outcome(whole)


def test_units_in_other_processes_give_the_same_results_in_the_same_order(tmp_path, whole):
    folder = tmp_path / "run"
    assert main(["lab", "run", TOY, "--set", "wait=0.1", "--workers", "2", "--out", str(folder)]) == 0
    assert outcome(folder) == outcome(whole)


def test_a_worker_process_that_dies_is_replaced_and_the_run_completes(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TOY_MARK", str(tmp_path / "mark"))
    folder = tmp_path / "run"
    assert main(["lab", "run", TOY, "--set", "deadly=unit-3", "--workers", "2", "--out", str(folder)]) == 0
    assert (tmp_path / "mark").exists()
    assert [row["unit"]["id"] for row in json.loads((folder / "results.json").read_text())["results"]] == [
        f"unit-{i}" for i in range(6)
    ]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at /proc")
def test_worker_processes_do_not_outlive_a_killed_run(tmp_path):
    folder = tmp_path / "run"
    process = start("lab", "run", TOY, "--set", "wait=0.2", "--workers", "2", "--out", folder)
    wait_for_lines(folder, 1, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) >= 2
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_an_interrupt_exits_with_130_keeps_finished_work_and_says_how_to_go_on(tmp_path):
    folder = tmp_path / "run"
    process = start("lab", "run", TOY, "--set", "wait=0.3", "--out", folder)
    wait_for_lines(folder, 1, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130 and out == ""
    assert "finished units are kept" in err and "run the same command to resume" in err and "Traceback" not in err
    assert lines(folder) >= 1 and not (folder / "record.json").exists()


def test_a_failing_unit_leaves_the_others_done(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["lab", "run", TOY, "--set", "failing=unit-4", "--out", str(folder)]) == 70
    assert lines(folder) == 4
    assert "this unit fails" in capsys.readouterr().err


def test_when_a_unit_fails_what_other_processes_have_under_way_is_kept(tmp_path, capsys):
    folder = tmp_path / "run"
    words = ["lab", "run", TOY, "--set", "failing=unit-0", "--set", "wait=0.1", "--workers", "2", "--out", str(folder)]
    assert main(words) == 70
    assert "this unit fails" in capsys.readouterr().err
    done = [entry["unit"]["id"] for entry in Journal(folder / "results.jsonl").entries]
    assert "unit-1" in done and "unit-0" not in done and len(done) < 6


def test_the_same_command_after_the_end_changes_nothing(whole):
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    assert main(["lab", "run", TOY, "--set", "wait=0.1", "--out", str(whole)]) == 0
    assert {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()} == before


def test_a_second_process_is_turned_away_and_the_first_one_finishes(tmp_path, whole):
    folder = tmp_path / "run"
    first = start("lab", "run", TOY, "--set", "wait=0.1", "--out", folder)
    wait_for_lines(folder, 1, first)
    second = start("lab", "run", TOY, "--set", "wait=0.1", "--out", folder)
    _, err = second.communicate(timeout=30)
    assert second.returncode == 2 and f"process {first.pid} is using" in err and "another --out" in err
    assert first.wait(timeout=30) == 0
    first.communicate()
    assert outcome(folder) == outcome(whole)


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path):
    code = f"import os, pathlib, maxaffine.lab.folder as home\nwith home.locked(pathlib.Path({str(tmp_path)!r})): os._exit(9)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    assert (tmp_path / "lock").read_text().strip().isdigit()
    with locked(tmp_path):
        pass


def test_a_full_disk_is_a_sentence_and_finished_work_is_kept(tmp_path, whole):
    """A limit on the size of files stands in for the disk; the journal is what meets it."""
    folder = tmp_path / "run"
    size = (whole / "results.jsonl").stat().st_size // 2
    code = (
        f"import resource, sys\nresource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))\nfrom maxaffine.cli.app import main\n"
        f"sys.exit(main(['lab', 'run', {TOY!r}, '--set', 'wait=0.1', '--out', {str(folder)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    kept = lines(folder)
    assert 1 <= kept < 6 and f"the {kept} finished units are kept" in done.stderr and "Free some space" in done.stderr
    assert (folder / "results.jsonl").read_bytes().endswith(b"\n")
    assert main(["lab", "run", TOY, "--set", "wait=0.1", "--out", str(folder)]) == 0
    assert outcome(folder) == outcome(whole)


def test_no_space_for_a_line_leaves_the_journal_as_it_was(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "j")
    journal.append({"unit": {"id": "a"}})
    before = journal.path.read_bytes()
    real = os.write

    def half(descriptor, data):
        if len(before) == journal.path.stat().st_size:
            return real(descriptor, data[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(journals.os, "write", half)
    with pytest.raises(Refused, match=r"No space left on device; the 1 finished units are kept"):
        journal.append({"unit": {"id": "b"}, "values": "x" * 50})
    monkeypatch.undo()
    assert journal.path.read_bytes() == before
    journal.append({"unit": {"id": "b"}})
    assert [entry["unit"]["id"] for entry in Journal(journal.path).entries] == ["a", "b"]


@pytest.mark.parametrize("cut", [1, 20, 10_000])
def test_a_torn_last_line_is_dropped_and_its_unit_done_again(tmp_path, whole, cut, capsys):
    folder = tmp_path / "run"
    copy(whole, folder)
    path = folder / "results.jsonl"
    content = path.read_bytes()
    last = len(content) - content.rindex(b"\n", 0, -1) - 1
    path.write_bytes(content[: -min(cut, last - 5)])
    assert main(["lab", "run", TOY, "--set", "wait=0.1", "--out", str(folder)]) == 0
    assert "cut short by an interruption" in capsys.readouterr().err
    assert lines(folder) == 6 and outcome(folder) == outcome(whole)


def test_a_damaged_line_in_the_middle_is_named_with_the_way_out(tmp_path, whole, capsys):
    folder = tmp_path / "run"
    copy(whole, folder)
    path = folder / "results.jsonl"
    content = path.read_bytes().splitlines(keepends=True)
    content[2] = content[2].replace(b'"total":', b'"total":1', 1)
    path.write_bytes(b"".join(content))
    assert main(["lab", "run", TOY, "--set", "wait=0.1", "--out", str(folder)]) == 2
    err = capsys.readouterr().err
    assert "line 3 of" in err and "Delete that line" in err
    path.write_bytes(b"".join(content[:2] + content[3:]))
    assert main(["lab", "run", TOY, "--set", "wait=0.1", "--out", str(folder)]) == 0
    assert outcome(folder) == outcome(whole)


def test_damaged_tensors_are_made_again(tmp_path, whole, capsys):
    folder = tmp_path / "run"
    copy(whole, folder)
    (folder / "tensors" / "unit-1.safetensors").write_bytes(b"damage")
    (folder / "tensors" / "unit-2.safetensors").unlink()
    assert main(["lab", "run", TOY, "--set", "wait=0.1", "--out", str(folder)]) == 0
    assert capsys.readouterr().err.count("missing or damaged") == 2
    assert outcome(folder) == outcome(whole)


@pytest.mark.parametrize("damage", ["{", "[]", '{"format": 1}', '{"format": 99}'])
def test_an_unreadable_header_is_a_sentence(tmp_path, whole, damage, capsys):
    folder = tmp_path / "run"
    copy(whole, folder)
    (folder / "run.json").write_text(damage)
    before = (folder / "results.jsonl").read_bytes()
    assert main(["lab", "run", TOY, "--set", "wait=0.1", "--out", str(folder)]) == 2
    assert "run.json" in capsys.readouterr().err
    assert (folder / "results.jsonl").read_bytes() == before


def test_results_without_a_header_are_not_claimed(tmp_path, whole, capsys):
    folder = tmp_path / "run"
    copy(whole, folder)
    (folder / "run.json").unlink()
    assert main(["lab", "run", TOY, "--set", "wait=0.1", "--out", str(folder)]) == 2
    assert "says what they belong to" in capsys.readouterr().err


def copy(source, goal):
    shutil.copytree(source, goal)


def test_results_of_other_parameters_or_versions_are_not_mixed(tmp_path, capsys):
    folder = str(tmp_path / "run")
    assert main(["lab", "run", TOY, "--quick", "--out", folder]) == 0
    assert main(["lab", "run", TOY, "--out", folder]) == 2
    assert "count was 2 and is now 6" in capsys.readouterr().err
    assert main(["lab", "run", "lab_toy:NEWER", "--quick", "--out", folder]) == 2
    assert "toy version 1, not toy version 2" in capsys.readouterr().err


def test_journals_of_two_machines_can_be_joined(tmp_path, whole):
    parts = []
    for only in ("unit-1", "unit-2"):
        process = start(TOY, "--set", "wait=0.1", "--only", only, "--out", tmp_path / only, module="maxaffine.lab.worker")
        assert process.wait(timeout=30) == 0
        process.communicate()
        parts.append((tmp_path / only / "results.jsonl").read_bytes())
        assert parts[-1].count(b"\n") == 1
    folder = tmp_path / "unit-1"
    (folder / "results.jsonl").write_bytes(b"".join(parts))
    (tmp_path / "unit-2" / "tensors" / "unit-2.safetensors").rename(folder / "tensors" / "unit-2.safetensors")
    assert main(["lab", "run", TOY, "--set", "wait=0.1", "--out", str(folder)]) == 0
    assert outcome(folder) == outcome(whole)


LEAN = {  # experiments whose units need no more than NumPy, safetensors and PyTorch, and a small unit of each
    "norms-under-noise": ("primary-mnist-0", "datasets=mnist", "images=100", "epochs=1", "levels=2"),
    "temperature-sweep": ("held-00", "held_steps=20"),
    "noise-and-precision": ("plane-0", "plane_steps=20", "samples=200"),
    "failure-signatures": ("none-0",),
}


def worker_without_packages(*arguments):
    """What the worker says where nothing of the command line, the compiler and the figures is installed."""
    banned = ["typer", "rich", "click", "scipy", "matplotlib", "flint", "psutil", "ml_dtypes", "numba", "loky", "distributed"]
    code = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {banned!r}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())
from maxaffine.lab.worker import main
sys.exit(main({list(map(str, arguments))!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_the_worker_needs_nothing_but_numpy_and_safetensors(tmp_path):
    assert "2 of 2 units are done" in worker_without_packages(TOY, "--quick", "--out", tmp_path / "run")
    assert main(["lab", "run", TOY, "--quick", "--out", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "record.json").is_file()


@pytest.mark.parametrize("name", LEAN)
def test_units_that_only_train_need_pytorch_beside_and_nothing_of_the_compiler(name, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    unit, *settings = LEAN[name]
    words = [word for setting in settings for word in ("--set", setting)]
    said = worker_without_packages(name, "--quick", "--only", unit, *words, "--out", tmp_path / "run")
    assert re.search(r"[1-9]\d* of \d+ units are done", said)


def test_the_worker_answers_refusals_with_a_sentence_and_exit_code_2(tmp_path):
    process = start(TOY, "--set", "cuont=3", "--out", tmp_path / "run", module="maxaffine.lab.worker")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 2 and "did you mean count?" in err


def test_runs_stand_under_the_current_folder_by_name_and_hash(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["lab", "run", TOY, "--quick", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert Path(record["folder"]).parent == Path("lab-runs") and Path(record["folder"]).name.startswith("toy-quick-")
    toy = find(TOY)
    names = {default_folder(toy, resolve(toy, q, s), q, synthetic) for q, s, synthetic in SETTINGS}
    assert len(names) == len(SETTINGS) and Path(record["folder"]) in names


SETTINGS = [(True, (), False), (False, (), False), (True, (), True), (False, ("scale=2",), False)]


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("count", "must be NAME=VALUE"),
        ("cuont=3", "did you mean count"),
        ("zebra=3", "it has count, seeds"),
        ("count=many", "a whole number"),
        ("count=1.5", "a whole number"),
        ("scale=wide", "a number"),
    ],
)
def test_a_wrong_setting_is_named(setting, sentence):
    with pytest.raises(BadInput, match=sentence):
        resolve(find(TOY), False, [setting])


def test_settings_are_of_the_kind_of_their_default():
    found = resolve(find(TOY), True, ["scale=2", "names=b,c", "deadly=unit-1"], seeds=3)
    assert found["scale"] == 2.0 and type(found["scale"]) is float
    assert found["names"] == ["b", "c"] and found["deadly"] == "unit-1" and found["seeds"] == 3 and found["count"] == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["lab", "run", "mean-feild"], "did you mean mean-field?"),
        (["lab", "run", "nowhere:EXPERIMENT"], "no module 'nowhere'"),
        (["lab", "run", "lab_toy:units"], "is not an experiment"),
        (["lab", "run", TOY, "--workers", "0"], "at least 1"),
        (["lab", "run", TOY, "--seeds", "0"], "at least 1"),
        (["lab", "run", "explicit-weights", "--seeds", "3"], "takes no `--seeds`"),
        (["lab", "run", TOY, "--workers", "2", "--dask", "tcp://x:1"], "give one of"),
        (["lab", "run", TOY, "--quick", "--download"], "never downloads"),
        (["lab", "run", TOY, "--device", "tpu"], "must be cpu or cuda"),
    ],
)
def test_bad_requests_are_answered_with_a_sentence(words, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert sentence in capsys.readouterr().err


def test_every_registered_experiment_is_complete_and_its_quick_form_is_smaller():
    for name in EXPERIMENTS:
        experiment = find(name)
        assert experiment.name == name and experiment.version >= 1
        for text in (experiment.claim, experiment.paper, experiment.protocol, experiment.rule, experiment.splits):
            assert text.strip()
        assert set(experiment.quick) <= set(experiment.parameters)
        full, quick = (experiment.units(resolve(experiment, is_quick)) for is_quick in (False, True))
        assert len({unit["id"] for unit in full}) == len(full) >= len(quick) > 0
        assert full == experiment.units(resolve(experiment, False))


def test_lab_list_names_every_experiment(capsys):
    assert main(["lab", "list", "--json"]) == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)["experiments"]] == list(EXPERIMENTS)
    assert main(["lab", "list"]) == 0
    shown = capsys.readouterr().out
    assert all(f"{name}\n    " in shown for name in EXPERIMENTS)


def test_a_line_of_the_journal_carries_its_own_checksum(tmp_path):
    entry = {"unit": {"id": "é"}, "values": {"b": 1.0, "a": float("inf")}}
    path = tmp_path / "j"
    path.write_bytes(sealed(entry))
    assert Journal(path).entries == [{"unit": {"id": "é"}, "values": {"b": 1.0, "a": None}}]
    assert list(Journal(path).entries[0]["values"]) == ["b", "a"]
