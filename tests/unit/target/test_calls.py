"""Evaluations of a callable: counted, kept, limited."""

import copy

import numpy as np
import pytest

from maxaffine.core.deadline import OutOfCalls
from maxaffine.target.calls import Calls


def double(asked):
    """A function that notes how many points it was asked at."""

    def evaluate(x):
        asked.append(len(x))
        return (2.0 * x.sum(axis=1)).reshape(-1, 1, 1)

    return evaluate


def test_a_point_is_asked_for_once_and_answered_as_often_as_one_likes():
    asked, calls, x = [], Calls(), np.random.default_rng(0).random((50, 3))
    first = calls.ask(x, double(asked))
    again = calls.ask(np.concatenate([x[::-1], x[:5] + 1.0, x[:5] + 1.0]), double(asked))
    assert asked == [50, 5] and calls.count == 55
    assert np.array_equal(first.ravel(), 2.0 * x.sum(axis=1))
    assert np.array_equal(again[:50], first[::-1]) and np.array_equal(again[50:55], again[55:])


def test_neighbouring_numbers_are_other_points():
    asked, calls = [], Calls()
    calls.ask(np.array([[1.0], [np.nextafter(1.0, 2.0)]]), double(asked))
    assert asked == [2]


def test_a_batch_beyond_the_limit_is_not_begun():
    asked, calls, x = [], Calls(most=10), np.arange(8.0)[:, None]
    calls.ask(x, double(asked))
    with pytest.raises(OutOfCalls, match="3 more points of the function are wanted, and `max_calls` leaves 2"):
        calls.ask(np.arange(6.0, 11.0)[:, None], double(asked))
    assert calls.count == 8 and calls.denied and asked == [8]
    calls.ask(np.arange(10.0)[:, None], double(asked))  # two new ones
    assert calls.count == 10 and calls.left == 0


def test_what_is_kept_back_is_not_handed_out():
    calls = Calls(most=10)
    calls.held = 4
    with pytest.raises(OutOfCalls):
        calls.ask(np.arange(7.0)[:, None], double([]))
    calls.held = 0
    assert len(calls.ask(np.arange(7.0)[:, None], double([]))) == 7


def test_memory_ends_where_it_is_told_and_values_stay_right():
    asked, calls, x = [], Calls(max_bytes=3_000), np.random.default_rng(1).random((40, 2))
    first = calls.ask(x, double(asked))
    assert np.array_equal(calls.ask(x, double(asked)), first)
    assert 20 <= asked[1] <= 35 and calls.count == sum(asked)


def test_after_its_end_everything_passes_and_nothing_counts():
    calls = Calls(most=5)
    calls.close()
    assert len(calls.ask(np.zeros((9, 1)), double([]))) == 9 and calls.count == 0 and calls.left is None
    assert copy.copy(Calls(most=5)).left is None  # and so in another process
