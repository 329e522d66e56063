"""The installed command as a process: streams, signals, pipes, start-up."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import maxaffine as ma

COMMAND = [sys.executable, "-m", "maxaffine"]
DISCS = "+".join(f"where((x-{k}/9)**2+y**2<1,1,0)" for k in range(24))
LONG = ("compile", DISCS, "--box", "x=-2:4,y=-2:2", "--error", "0.18", "--norm", "1")  # a minute or so


def call(*arguments: str, **options):
    options = {"capture_output": True, "text": True, "timeout": 60, **options}
    return subprocess.run([*COMMAND, *arguments], **options)


def processor_seconds() -> float:
    """Of all processes started here that have ended."""
    used = os.times()
    return used.children_user + used.children_system


def test_version_starts_fast():
    def once() -> float:
        begun = processor_seconds()
        done = call("--version")
        assert (done.returncode, done.stdout, done.stderr) == (0, f"maxaffine {ma.__version__}\n", "")
        return processor_seconds() - begun

    assert min(once() for _ in range(5)) < 0.5


def test_the_command_line_loads_nothing_heavy_for_help():
    code = (
        "import sys; from maxaffine.cli.app import main; main(['--help']); main(['plan', '--help']);"
        "heavy = {'numpy', 'scipy', 'matplotlib', 'flint', 'torch'} & set(sys.modules); sys.exit(' '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_installed_script_is_the_module():
    script = Path(sys.executable).with_name("maxaffine")
    if not script.exists():
        pytest.skip("the script is not beside the interpreter")
    done = subprocess.run([str(script), "--version"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == f"maxaffine {ma.__version__}\n"


def test_from_expression_to_file_to_proof_to_values(tmp_path):
    done = call("compile", "-x**2", "--box", "x=-1:1", "--error", ".1", "--out", "f.safetensors", "--json", cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == "" and json.loads(done.stdout)["file"] == "f.safetensors"
    done = call("check", "f.safetensors", "--json", cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == "" and json.loads(done.stdout)["passed"] is True
    done = call("eval", "f.safetensors", cwd=tmp_path, input="x\n0.5\n")
    assert done.returncode == 0 and done.stderr == ""
    head, row = done.stdout.splitlines()
    assert head == "x,f" and abs(float(row.split(",")[1]) + 0.25) <= 0.1
    assert [path.name for path in tmp_path.iterdir()] == ["f.safetensors"]


def test_a_refusal_has_code_2_and_speaks_on_standard_error(tmp_path):
    done = call("compile", "1/x", "--box", "x=-1:1", "--error", ".1", "--out", "f.safetensors", "--json", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("maxaffine: `1/x` is not finite")
    assert json.loads(done.stdout)["reason"].startswith("`1/x` is not finite")
    assert list(tmp_path.iterdir()) == []


def _interrupted(arguments, cwd: Path, wait: float, **options):
    """Start the command, wait until it runs, press Ctrl-C."""
    # A shell without job control starts its background jobs with SIGINT ignored, which a child would inherit.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from maxaffine.cli.app import main; print('ready', file=sys.stderr, flush=True); sys.exit(main(sys.argv[1:]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )
    try:
        assert process.stderr is not None and process.stderr.readline() == "ready\n"
        time.sleep(wait)
        assert process.poll() is None, process.stderr.read()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    return process.returncode, out, err


@pytest.mark.parametrize("wait", [0.2, 3.0])
def test_ctrl_c_leaves_one_line_and_no_file(tmp_path, wait):
    arguments = (*LONG, "--max-bytes", "100GiB", "--out", "f.safetensors", "--figure", "f.png")
    code, out, err = _interrupted(arguments, tmp_path, wait)
    assert code == 130 and out == ""
    assert err == "maxaffine: interrupted; nothing half-written was left.\n"
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_points_are_awaited(tmp_path):
    ma.compile("x", ma.Box(x=(0, 1)), error=0.5).save(tmp_path / "f.safetensors")
    reading, writing = os.pipe()  # nothing ever comes
    try:
        code, out, err = _interrupted(("eval", "f.safetensors", "--out", "v.csv"), tmp_path, 2.0, stdin=reading)
    finally:
        os.close(reading)
        os.close(writing)
    assert (code, out) == (130, "") and err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["f.safetensors"]


def test_a_reader_that_leaves_is_no_fault(tmp_path):
    ma.compile("x", ma.Box(x=(0, 1)), error=0.5).save(tmp_path / "f.safetensors")
    (tmp_path / "p.csv").write_text("0.25\n" * 100_000)
    process = subprocess.Popen(
        [*COMMAND, "eval", "f.safetensors", "--points", "p.csv"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == b"x,f\n"
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 141 and err == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_a_sentence():
    with Path("/dev/full").open("w") as full:
        done = call("gallery", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2 and done.stderr.startswith("maxaffine: ") and "Traceback" not in done.stderr


def test_a_plain_locale_and_odd_bytes_do_not_break_it(tmp_path):
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*COMMAND, "compile", b"sin(\xff)\xc3\xa9", "--box", "x=0:1", "--error", "1"], env=environment,
                          capture_output=True, timeout=60)  # fmt: skip
    assert done.returncode == 2 and done.stderr.startswith(b"maxaffine: ") and b"Traceback" not in done.stderr
    folder = tmp_path / "\u00e9"
    folder.mkdir()
    done = subprocess.run([*COMMAND, "compile", "x", "--box", "x=0:1", "--error", "1", "--out", str(folder / "f.safetensors")],
                          env={**environment, "PYTHONUTF8": "1"}, capture_output=True, timeout=60)  # fmt: skip
    assert done.returncode == 0 and (folder / "f.safetensors").exists(), done.stderr


SLOW = """
import sys, time
import maxaffine.compiler
from maxaffine.cli.app import main
from maxaffine.core.errors import Refused

def compile(*_, run, **__):
    for done in range(20):
        run.progress("walking", done, 20)
        time.sleep(0.1)
    raise Refused("far enough")

maxaffine.compiler.compile = compile
sys.exit(main(["compile", "x", "--box", "x=0:1", "--error", "1", *sys.argv[1:]]))
"""


@pytest.mark.parametrize("option", ["--json", "--quiet"])
def test_a_bar_is_drawn_on_a_terminal_unless_quiet(option):
    pty = pytest.importorskip("pty")
    master, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, option], stdout=subprocess.PIPE, stderr=terminal, env={**os.environ, "TERM": "xterm"}
    )
    os.close(terminal)
    seen = b""
    with suppress(OSError):  # the other side of a terminal closes with an error
        while chunk := os.read(master, 65536):
            seen += chunk
    out, _ = process.communicate(timeout=60)
    os.close(master)
    assert process.returncode == 2 and b"maxaffine: far enough" in seen
    assert (json.loads(out)["reason"] == "far enough") if option == "--json" else out == b""
    assert (b"walking" in seen) == (option == "--json")


def test_no_bar_is_drawn_in_a_log():
    done = subprocess.run([sys.executable, "-c", SLOW], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "maxaffine: far enough\n")
