"""The Lambert lemma: never exceeded by random clusters, attained, false for the leader in place of a, and rounded up."""

import math

import flint
import numpy as np
import pytest

from maxaffine.core import balls
from maxaffine.proofs.soft_gap import lambert_of_exp, soft_gap


def mixed(S, a, U, kappa):
    """sum_k Omega_k u_k for the largest u that the lemma allows; a (n,) is the cluster that is right."""
    rows = np.arange(len(S))
    u = kappa[:, None] * np.maximum(S[rows, a][:, None] - S + U[:, None], 0.0)
    u[rows, a] = 0.0
    weight = np.exp(S - S.max(axis=1, keepdims=True))
    return (weight * u).sum(axis=1) / weight.sum(axis=1)


@pytest.mark.parametrize("count", [2, 3, 5, 20, 100])
def test_two_hundred_thousand_random_cases_never_exceed_the_lemma(count):
    rng = np.random.default_rng(count)
    most = 0.0
    for _ in range(4):
        n = 10_000
        U = rng.choice([-5.0, -1.0, 0.0, 0.01, 1.0, 4.0], n) * rng.random(n)
        w = lambert_of_exp(math.log(count - 1) + U - 1.0)
        S = rng.normal(size=(n, count)) * 10.0 ** rng.uniform(-2, 1.5, (n, 1))
        half = rng.random(n) < 0.5
        S[half] = -(w[half] + 1.0 - U[half])[:, None] * (1.0 + 0.1 * rng.normal(size=(half.sum(), 1)))  # near the worst
        S[half, 0] = 0.0
        a = np.where(half, 0, rng.integers(0, count, n))  # need not lead
        kappa = 10.0 ** rng.uniform(-3, 3, n)
        ratio = mixed(S, a, U, kappa) / (kappa * w)
        assert ratio.max() <= 1.0
        most = max(most, float(ratio.max()))
    assert most > 0.9999


def test_with_the_leader_in_place_of_a_it_is_false():
    """C = 2, U = 1: the wrong cluster leads by 1 and is off by (max S - S_k + U)_+ = 1; S_a - S_k + U would be 0."""
    S, u = np.array([0.0, 1.0]), np.array([0.0, 1.0])
    seen = float((np.exp(S) / np.exp(S).sum() * u).sum())
    assert seen == pytest.approx(0.731, abs=1e-3) and seen > 1.28 * soft_gap(2, 1.0)


@pytest.mark.parametrize("y", [-1e9, -699.0, -30.0, -1.0, 0.0, 1.0, 3.0, 700.0, 1e12, 1e300])
def test_the_root_is_rounded_up_and_by_little(y):
    w = float(lambert_of_exp(y))
    with balls.precision(200):
        exact = flint.arb(max(y, -700.0))
        assert flint.arb(w) + flint.arb(w).log() >= exact
        less = flint.arb(w) * (1 - flint.arb(2) ** -38)
        assert less + less.log() < exact or y < -700.0


def test_one_cluster_mixes_nothing_and_slack_costs_less_than_itself():
    assert soft_gap(1) == soft_gap(1, 3.0) == 0.0
    assert soft_gap(2) == pytest.approx(0.2784645427610738, rel=1e-13)
    assert soft_gap(7, 0.5) - soft_gap(7) < 0.5
