"""What was declared about a callable is used: `auto` prefers what it proves to a smaller layer of which nothing is proved."""

import numpy as np
import pytest

import maxaffine as ma

BOX = ma.Box(x=(-1, 1))


def kinked(x):
    return np.abs(np.sin(3 * x[:, 0]))


def root(x):
    return np.sqrt(np.abs(x[:, 0]))


def step(x):
    return (x[:, 0] > 0.3) * 1.0


@pytest.mark.parametrize(
    ("f", "asked"),
    [
        (kinked, {"error": 0.05, "lipschitz": [3]}),
        (root, {"error": 0.2, "modulus": np.sqrt}),
        (step, {"error": 0.1, "norm": 2, "modulus": ma.TotalVariation(1)}),
        (lambda x: np.sin(3 * x[:, 0]), {"error": 1e-6, "derivatives": ma.Derivatives(12, 3.0**12)}),
    ],
    ids=["lipschitz", "modulus", "variation", "derivatives"],
)
def test_what_was_declared_is_proved_in_one_variable(f, asked):
    layer = ma.compile(f, BOX, trace=False, **asked)
    assert layer.certificate.kind == "proved" and layer.observed.error <= layer.bound <= asked["error"]


def test_the_smaller_layer_without_a_proof_is_offered_in_one_line():
    layer = ma.compile(kinked, BOX, error=0.05, trace=False, lipschitz=[3])
    assert layer.method == "lookup" and layer.tokens == 61
    (line,) = [line for line in layer.explain().splitlines() if line.startswith("smaller")]
    assert line.startswith('smaller    method="axis" gives 4 tokens, error 0.00') and line.endswith("observed, nothing proved")
    offered = ma.compile(kinked, BOX, error=0.05, trace=False, lipschitz=[3], method="axis")
    assert (offered.tokens, offered.certificate.kind) == (4, "none")


def test_facts_that_prove_nothing_are_named():
    layer = ma.compile(kinked, BOX, error=1e-8, trace=False, lipschitz=[3])
    assert layer.certificate.kind == "none" and layer.observed.error <= 1e-8
    assert "what was declared about it proves nothing here (lookup: `error` (=1e-08) would take" in layer.certificate.theorem


def test_a_limit_of_calls_covers_the_look_at_what_was_declared():
    layer = ma.compile(kinked, BOX, error=0.01, trace=False, lipschitz=[3], run=ma.Run(max_calls=2_000))
    assert layer.certificate.kind == "proved" and layer.calls <= 2_000
    with pytest.raises(ma.BadInput, match=r"`lipschitz` is contradicted"):
        ma.compile(kinked, BOX, error=0.01, trace=False, lipschitz=[2], run=ma.Run(max_calls=2_000))
