"""A budget of seconds: the best layer proved so far, or a refusal that says how close the search came."""

import threading
import time

import pytest

import maxaffine as ma
from maxaffine.cli.app import main
from maxaffine.core.deadline import OutOfTime, check, deadline
from maxaffine.core.threads import one_blas_thread

RING = ("atan(30*(x**2+y**2-.5))", {"x": (-1, 1), "y": (-1, 1)})


def test_work_inside_a_deadline_ends_with_it_and_work_outside_goes_on():
    with deadline(0.01):
        check()
        time.sleep(0.02)
        with pytest.raises(OutOfTime):
            check()
    check()


def test_a_search_without_a_layer_is_refused_when_its_time_is_over():
    begun = time.monotonic()
    with pytest.raises(ma.Refused, match=r"`max_seconds` \(=0.3\) was over while .* heads were looked for"):
        ma.compile(*RING, error=1e-6, run=ma.Run(max_seconds=0.3))
    assert time.monotonic() - begun < 20.0  # what is under way between two looks at the clock is finished


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
    assert any(stage.startswith("spectral head of ") and "tokens" in stage for stage in told)


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
