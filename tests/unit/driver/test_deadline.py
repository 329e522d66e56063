"""A budget of seconds: the best layer proved so far, or a refusal that says how close the search came."""

import re
import threading
import time

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.cli.app import main
from maxaffine.core.deadline import OutOfTime, check, deadline, extended
from maxaffine.core.errors import rounded_up
from maxaffine.core.threads import one_blas_thread
from maxaffine.heads import HEADS

RING = ("atan(30*(x**2+y**2-.5))", {"x": (-1, 1), "y": (-1, 1)})


def test_work_inside_a_deadline_ends_with_it_and_work_outside_goes_on():
    with deadline(0.01):
        check()
        time.sleep(0.02)
        with pytest.raises(OutOfTime):
            check()
    check()


def test_a_search_without_a_layer_is_refused_when_its_time_is_over_and_says_how_close_it_came():
    begun = time.monotonic()
    with pytest.raises(ma.Refused, match=r"`max_seconds` \(=0.3\) was over while .* heads were looked for") as refused:
        ma.compile(*RING, error=1e-6, run=ma.Run(max_seconds=0.3))
    assert time.monotonic() - begun < 20.0  # what is under way between two looks at the clock is finished
    assert re.search(r"the closest fit, a spectral head of [\d,]+ tokens, is off by .* and not proved", refused.value.reason)
    assert "only for" not in refused.value.reason


def test_what_a_refusal_for_time_names_is_met_in_the_same_time():
    run = ma.Run(max_seconds=0.3)
    with pytest.raises(ma.Refused) as refused:
        ma.compile(*RING, error=1e-6, run=run)
    wanted = rounded_up(refused.value.nearest_error)
    met = ma.compile(*RING, error=wanted, run=run)
    assert met.certificate.kind == "proved" and met.bound <= wanted


def test_the_best_layer_so_far_is_returned_and_says_that_time_ended(monkeypatch):
    def over(*_):
        raise OutOfTime

    monkeypatch.setattr(HEADS["products"], "find", over)
    told: list[str] = []
    run = ma.Run(max_seconds=600, progress=lambda stage, *_: told.append(stage))
    layer = ma.compile("sin(x*y)", {"x": (-3, 3), "y": (-3, 3)}, error=1e-4, run=run)
    said = "`max_seconds` (=600) was over while products heads were looked for"
    assert layer.certificate.kind == "proved" and layer.method == "spectral"
    assert f"time       {said}: a smaller layer may exist" in layer.explain()
    assert said in told and layer.to_json()["ended"] == said


def test_time_that_is_over_while_a_proof_is_looked_for_is_told_with_the_layer(monkeypatch):
    def over(*_):
        raise OutOfTime

    monkeypatch.setattr(HEADS["spectral"], "prove", over)
    with pytest.raises(ma.Refused, match=r"the proof of a spectral head of \d+ tokens was under way"):
        ma.compile("sin(x*y)", {"x": (-3, 3), "y": (-3, 3)}, error=1e-4, run=ma.Run(max_seconds=600))


def test_a_deadline_inside_another_one_does_not_outlast_it():
    with deadline(0.01), deadline(10.0):
        time.sleep(0.02)
        with pytest.raises(OutOfTime):
            check()
        with extended(10.0):
            check()


def test_a_stack_for_which_time_is_over_is_refused_with_what_was_made_of_it():
    run = ma.Run(max_seconds=1e-4)
    with pytest.raises(ma.Refused, match=r"`max_seconds` \(=0.0001\) was over, and no stack is proved to 1e-06 yet"):
        ma.compile(*RING, error=1e-6, layers=3, run=run)


def test_a_table_is_refused_when_its_time_is_over():
    x = np.linspace(-1, 1, 40)
    with pytest.raises(ma.Refused, match=r"`max_seconds` \(=1e-05\) was over while table heads were looked for"):
        ma.compile(ma.Table([x, x], np.exp(-30 * np.subtract.outer(x, x) ** 2)), error=1e-5, run=ma.Run(max_seconds=1e-5))


def test_a_layer_that_is_proved_in_time_is_returned():
    full = ma.compile("sin(x*y)", {"x": (-3, 3), "y": (-3, 3)}, error=1e-4)
    again = ma.compile("sin(x*y)", {"x": (-3, 3), "y": (-3, 3)}, error=1e-4, run=ma.Run(max_seconds=600))
    assert again.certificate.kind == "proved" and again.tokens == full.tokens


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "soon"])
def test_a_time_that_is_none_is_refused_in_a_sentence(seconds):
    with pytest.raises(ma.BadInput, match=r"`max_seconds` .* must be a positive number of seconds"):
        ma.Run(max_seconds=seconds)


def test_the_command_line_takes_a_timeout(capsys):
    assert main(["compile", RING[0], "--box", "x=-1:1,y=-1:1", "--error", "1e-6", "--timeout", "0.3", "--quiet"]) == 2
    assert "max_seconds" in capsys.readouterr().err


def test_progress_names_the_head_its_tokens_and_how_far_it_is():
    told: list[str] = []
    run = ma.Run(progress=lambda stage, *_: told.append(stage))
    ma.compile("sin(x)*cos(y)", {"x": (-3, 3), "y": (-3, 3)}, error=1e-6, run=run)
    assert any(re.match(r"spectral head of \d+ tokens: fitted to", stage) for stage in told)
    assert any(re.match(r"spectral head of \d+ tokens: proved to", stage) for stage in told)


def test_linear_algebra_has_one_thread_inside_and_as_many_as_before_afterwards():
    from threadpoolctl import threadpool_info, threadpool_limits

    def threads() -> set[int]:
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with one_blas_thread(), one_blas_thread():
            assert threads() == {1}
        assert threads() == before
        other = threading.Thread(target=lambda: ma.compile("sin(x)", {"x": (-1, 1)}, error=1e-3))
        with one_blas_thread():
            other.start()
        other.join()  # it ends last, and nothing is left behind
        assert threads() == before
