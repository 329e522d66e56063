"""Evaluations on disk and by executors: asked once, kept whole, believed only where they belong to the function."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.target.fingerprint import fingerprint
from maxaffine.target.store import Store

BOX = ma.Box(x=(-1, 1), y=(-1, 1))
# A function that writes every point it is asked for, and ends its process at call 1,000.
SCRIPT = """
import math, os, signal, struct, sys
from scipy.integrate import quad
import maxaffine as ma

asked = 0

def integrand(t, a, b):
    return math.exp(-a * t) * math.cos(3 * b * t)

def f(x):
    global asked
    if asked == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    asked += 1
    with open(sys.argv[1], "ab") as log:
        log.write(struct.pack("dd", *x))
    return quad(integrand, 0, 1, args=tuple(x))[0]

run = ma.Run(cache=sys.argv[2])
layer = ma.compile(f, ma.Box(x=(0, 2), y=(-1, 1)), error=1e-6, vectorize=True, run=run, require=ma.Statistical(1e-2, 0.99))
sys.stdout.buffer.write(layer.to_bytes())
"""


def smooth(x):
    return np.sin(3 * x[:, 0]) * np.cos(x[:, 1])


def slow(x):
    time.sleep(1e-3 * len(x))
    return smooth(x)


def rows(path):
    return {row.tobytes() for row in np.fromfile(path).reshape(-1, 2)}


def test_a_run_that_is_killed_goes_on_without_calling_again(tmp_path):
    script, cache = tmp_path / "run.py", tmp_path / "f.cache"
    script.write_text(SCRIPT)

    def go(log, cache, most):
        line = [sys.executable, str(script), str(log), str(cache), str(most)]
        return subprocess.run(line, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)

    killed = go(tmp_path / "first", cache, 1_000)
    assert killed.returncode == -signal.SIGKILL and len(rows(tmp_path / "first")) == 1_000
    resumed = go(tmp_path / "second", cache, -1)
    assert resumed.returncode == 0, resumed.stderr
    first, second = rows(tmp_path / "first"), rows(tmp_path / "second")
    assert not first & second and len(second) == (tmp_path / "second").stat().st_size // 16
    again = go(tmp_path / "third", cache, 0)  # everything is there: the function is not called at all
    assert again.returncode == 0 and again.stdout == resumed.stdout and not (tmp_path / "third").exists()


def test_the_layer_is_the_same_with_and_without_a_file(tmp_path):
    plain = ma.compile(smooth, BOX, error=1e-6, run=ma.Run(max_calls=900))
    for _ in range(2):
        kept = ma.compile(smooth, BOX, error=1e-6, run=ma.Run(max_calls=900, cache=tmp_path / "f.cache"))
        assert kept.to_bytes() == plain.to_bytes() and kept.calls == plain.calls


def kept(path, function=smooth):
    return Store(path, BOX.names, (), function)


@pytest.fixture
def file(tmp_path):
    store = kept(tmp_path / "f.cache")
    x = BOX.sample(20, np.random.default_rng(0))
    store.append(x, smooth(x))
    store.close()
    return store.path


def test_what_is_torn_is_dropped_and_what_is_damaged_is_refused(file):
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    store = kept(file)
    assert len(store.points) == 19
    store.append(BOX.sample(1, np.random.default_rng(3)), np.ones(1))
    store.close()
    again = kept(file)
    assert len(again.points) == 20 and again.values[-1] == 1.0
    again.close()
    file.write_bytes(whole[:-90] + b"\x00" + whole[-89:])
    with pytest.raises(ma.BadInput, match=r"is damaged at evaluation 1[78]"):
        kept(file)
    for foreign in (b"x,y\n1,2\n", b"\x80\x04cos\nsystem\n", b"[" * 100_000 + b"\n", b'{"maxaffine evaluations": 2}\n'):
        file.write_bytes(foreign)
        with pytest.raises(ma.BadInput, match="holds no evaluations"):
            ma.compile(smooth, BOX, error=1e-3, run=ma.Run(cache=file))
        assert file.read_bytes() == foreign


def test_a_file_belongs_to_its_function(file, monkeypatch):
    def other(x):
        return np.sin(3 * x[:, 0]) * np.cos(1.5 * x[:, 1])

    with pytest.raises(ma.BadInput, match="was made with another function"):
        ma.compile(other, BOX, error=1e-3, run=ma.Run(cache=file))
    with pytest.raises(ma.BadInput, match="has other variables"):
        ma.compile(smooth, ma.Box(a=(0, 1), b=(0, 1)), error=1e-3, run=ma.Run(cache=file))
    first = kept(file)
    if os.name == "posix":
        with pytest.raises(ma.BadInput, match="is in use by another run"):
            ma.compile(smooth, BOX, error=1e-3, run=ma.Run(cache=file))
    first.close()
    monkeypatch.setattr(sys, "version_info", (3, 99, 0))  # another Python, whose code looks different: values are compared
    calls = []

    def watched(x):
        calls.append(len(x))
        return smooth(x)

    ma.compile(watched, BOX, error=1e-3, run=ma.Run(cache=file))
    assert calls[0] == 5
    monkeypatch.undo()
    ma.compile(smooth, BOX, error=1e-3, run=ma.Run(cache=file))  # a refusal lets go of the file


def test_a_function_that_was_given_other_numbers_is_compared(tmp_path):
    run = ma.Run(cache=tmp_path / "f.cache")
    first = ma.compile(closure(1.0), ma.Box(x=(-1, 1)), error=1e-3, run=run)
    with pytest.raises(ma.BadInput, match="has other values than the function has now"):
        ma.compile(closure(2.0), ma.Box(x=(-1, 1)), error=1e-3, run=run)
    unused = closure(1.0, hint=time.time())  # what has no say in the values
    assert ma.compile(unused, ma.Box(x=(-1, 1)), error=1e-3, run=run).to_bytes() == first.to_bytes()


SCALE = 2.0
COUNT = 0


def with_global(x):
    return SCALE * x


def counting(x):
    global COUNT
    COUNT += 1
    return SCALE * x


class Object:
    def __init__(self, scale):
        self.scale, self.calls = scale, 0

    def __call__(self, x):
        self.calls += 1
        return self.scale * x


def closure(scale, hint=None):
    return lambda x: scale * x.reshape(len(x)) + 0.0 * (hint or 0.0)


def test_a_fingerprint_sees_what_a_function_was_given_and_not_what_it_counts(monkeypatch):
    assert fingerprint(closure(1.0)) != fingerprint(closure(2.0)) and fingerprint(closure(1.0)) == fingerprint(closure(1.0))
    assert fingerprint(closure(np.arange(3.0))) != fingerprint(closure(np.arange(4.0)))
    assert fingerprint(partial(with_global, y=1)) != fingerprint(partial(with_global, y=2))
    assert fingerprint(Object(1.0)) != fingerprint(Object(2.0))
    one = Object(1.0)
    before = fingerprint(one), fingerprint(with_global), fingerprint(counting)
    one(3)
    counting(3)
    assert (fingerprint(one), fingerprint(with_global), fingerprint(counting)) == before
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert fingerprint(with_global) != before[1] and fingerprint(counting) != before[2]
    assert fingerprint(with_global)[0] == before[1][0]  # the code is the same


def test_executors_evaluate_the_function_and_the_calls_are_counted():
    plain = ma.compile(smooth, BOX, error=1e-6, run=ma.Run(max_calls=900))
    for kind in (ThreadPoolExecutor, ProcessPoolExecutor):
        with kind(2) as executor:
            layer = ma.compile(smooth, BOX, error=1e-6, run=ma.Run(max_calls=900, executor=executor))
        assert layer.to_bytes() == plain.to_bytes() and layer.calls == plain.calls
    with ProcessPoolExecutor(1) as executor, pytest.raises(ma.BadInput, match="`executor` cannot send the function"):
        ma.compile(lambda x: smooth(x), BOX, error=1e-6, run=ma.Run(executor=executor), trace=False)
    with ThreadPoolExecutor(1) as executor, pytest.raises(ma.BadInput, match="the target raised ZeroDivisionError"):
        ma.compile(lambda x: smooth(x) if len(x) == 3 else 1 // 0, BOX, error=1e-6, run=ma.Run(executor=executor), trace=False)


def test_progress_goes_by_calls_and_a_break_keeps_what_was_done(tmp_path):
    told = []

    def tell(stage, done, total):
        if stage == "points of the function":
            told.append(done)
            if len(told) == 12:
                raise KeyboardInterrupt

    run = ma.Run(progress=tell, cache=tmp_path / "f.cache")
    with pytest.raises(KeyboardInterrupt):
        ma.compile(slow, BOX, error=1e-9, run=run)
    assert told == sorted(told) and told[0] < 100
    store = kept(tmp_path / "f.cache", slow)
    assert len(store.points) >= told[-1] - 3
    store.close()
