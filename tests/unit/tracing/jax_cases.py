"""Functions of JAX become expressions by their jaxpr; run by test_jax.py in an interpreter of its own."""

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.expression.expression import Expression
from maxaffine.tracing.source import target_of

jax = pytest.importorskip("jax")
jnp = jax.numpy
PLANE = ma.Box(x=(-2, 2), y=(-2, 2))
W = np.array([[0.5, -1.25], [1.5, 0.25]])

READ = [
    (lambda x, y: jnp.sin(x) * jnp.cos(y), "sin(x)*cos(y)"),
    (lambda X: jnp.where(X[:, 0] > 0, X[:, 0], 0.1 * X[..., 1]), "where(x > 0, x, float(0.1)*y)"),
    (lambda X: jnp.tanh(X @ W).sum(axis=1) + jnp.linalg.norm(X - 3.0, axis=1),
     "tanh(0.5*x + 1.5*y) + tanh(-1.25*x + 0.25*y) + sqrt((x - 3)**2 + (y - 3)**2)"),
    (lambda X: jax.nn.relu(X[:, 0]) + jax.nn.softplus(X[:, 1]) + jax.nn.sigmoid(X[:, 0]) ** 3,
     "max(x, 0) + softplus(y) + sigmoid(x)**3"),
    (lambda X: jnp.stack([X.max(axis=1), jnp.exp(X[:, 1]).T, jnp.clip(X[:, 0], -1, 1)], axis=-1),
     "max(x, y), exp(y), min(max(x, -1), 1)"),
    (jax.jit(lambda X: jax.scipy.special.erf(X[:, 0]) + jnp.mod(X[:, 1], 3.0)), "erf(x) + y - 3*floor(y/3)"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "text"), READ, ids=[text[:20] for _, text in READ])
def test_a_function_of_jax_is_read(function, text):
    target = target_of(function, PLANE)
    assert target.expression is not None, target.traced
    x = PLANE.sample(300, np.random.default_rng(0))
    wanted = Expression.parse(text, PLANE.names).evaluate(x)
    assert np.allclose(target.values(x).reshape(300, -1), wanted, rtol=1e-12, atol=1e-12)


def test_layers_of_jax_functions_are_those_of_their_text():
    layer = ma.compile(lambda x, y: jnp.sin(x) * jnp.cos(y), PLANE, error=1e-4)
    assert layer.certificate.kind == "proved" and layer.tokens == ma.compile("sin(x)*cos(y)", PLANE, error=1e-4).tokens


def test_conditions_are_counted_and_integers_are_not_read():
    counted = target_of(lambda X: (X > 0).sum(axis=1) / 2 + ((X[:, 0] > 0) + (X[:, 0] > 1)) * 1.0, PLANE)
    assert counted.text == "(where(x > 0, 1, 0) + where(y > 0, 1, 0))/2 + where(x > 0 or x > 1, 1, 0)"
    for cut in (jnp.int32, jnp.float16):
        assert "which changes them" in str(
            target_of(lambda X, cut=cut: jax.lax.convert_element_type(X[:, 0], cut) * 1.0, PLANE).traced
        )


def test_what_has_no_program_is_said():
    target = target_of(lambda X: jnp.sort(X, axis=1)[:, 0], PLANE)
    assert target.expression is None and "`sort`" in str(target.traced)
