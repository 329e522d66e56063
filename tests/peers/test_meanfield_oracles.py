"""Independent oracles for the exact theory: brute-force quadrature, Monte Carlo in full dimension, real vectors.

Nothing here uses the t-integral, the expanded risk formula or the package's own sampler.
"""

import math

import numpy as np
import pytest

from maxaffine import meanfield as mf

GENERIC = mf.Overlaps(0.3, 0.2, 0.1, -0.05, 0.15)


def brute_force_two_tokens(problem, lam, o):
    """E over both logits of E[(w_J a_J + w_1 a_1 - y)^2 | logits], from the covariance matrix of (a_J, a_1, y)."""
    h = 0.3 / max(lam, 1.0)
    x = h * np.arange(-math.ceil(9.5 / h), math.ceil(9.5 / h) + 1)
    weight = h / math.sqrt(2 * math.pi) * np.exp(-x * x / 2)
    g, s = x[:, None], x[None, :]
    gamma, C = problem.gamma, problem.C
    w_secret = 1 / (1 + np.exp(np.clip(lam * (s - C * o.mu - gamma * g), -700, 700)))
    c = [w_secret, 1 - w_secret, -np.ones_like(w_secret)]
    mean = [C * o.zeta + gamma * o.rho * g, o.rho * s, gamma * o.eta * g]
    cov = np.zeros((3, 3))
    cov[0, 0], cov[1, 1], cov[2, 2] = gamma**2 * (1 - o.rho**2), 1 - o.rho**2, gamma**2 * (1 - o.eta**2)
    cov[0, 2] = cov[2, 0] = gamma**2 * (o.nu - o.rho * o.eta)
    average = sum(c[i] * mean[i] for i in range(3)) ** 2
    spread = sum(c[i] * c[j] * cov[i, j] for i in range(3) for j in range(3))
    return float(weight @ (average + spread) @ weight)


@pytest.mark.parametrize(
    ("d", "gamma", "lam", "o"),
    [
        (100, 0.7, 10.0, GENERIC),
        (100, 0.5, 1.0, mf.Overlaps(0.6, -0.3, 0.2, 0.1, -0.25)),
        (16, 0.9, 4.0, mf.Overlaps(-0.4, 0.5, -0.3, 0.2, 0.4)),
        (4, 0.2, 0.05, mf.Overlaps(0.9, 0.8, 0.1, 0.05, 0.2)),
        (49, 0.95, 20.0, mf.Overlaps(0.05, 0.9, 0.3, -0.1, 0.2)),
        (400, 0.3, 3.0, mf.Overlaps(0.2, 0.1, -0.5, 0.01, 0.6)),
    ],
)
def test_the_risk_of_two_tokens_equals_brute_force_quadrature_to_1e_12(d, gamma, lam, o):
    problem = mf.Problem(d, 2, gamma)
    exact, brute = mf.SoftmaxRisk(problem, lam=lam).risk(o), brute_force_two_tokens(problem, lam, o)
    assert abs(exact - brute) <= 1e-12 * max(1.0, abs(brute))


def draw(problem, o, count, rng, values):
    """Squared losses of ``values(tokens, u, v, v*, secret) -> (f, y)`` on full-dimensional tokens, in blocks."""
    u_star, v_star, u, v = o.to_vectors(problem.d, seed=int(rng.integers(1 << 30)))
    length, losses = int(problem.L), []
    block = max(1, 2_000_000 // (length * problem.d))
    for start in range(0, count, block):
        size = min(block, count - start)
        tokens = rng.standard_normal((size, length, problem.d))
        secret = rng.integers(0, length, size)
        chosen = problem.C * u_star + problem.gamma * tokens[np.arange(size), secret]
        tokens[np.arange(size), secret] = chosen
        f, y = values(tokens, u, v, v_star, u_star, secret)
        losses.append((f - y) ** 2)
    return np.concatenate(losses)


def softmax_layer(lam, link=lambda a: a):
    def values(tokens, u, v, v_star, u_star, secret):
        logits = lam * (tokens @ u)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        return (weights * link(tokens @ v)).sum(axis=1), link(tokens[np.arange(len(tokens)), secret] @ v_star)

    return values


def z_score(losses, exact):
    return float((losses.mean() - exact) / (losses.std(ddof=1) / math.sqrt(losses.size)))


FULL = [
    (100, 20, 0.7, 10.0, GENERIC),
    (100, 20, 0.5, 10.0, mf.Overlaps(0.5, 0.3, -0.1, 0.05, 0.1)),
    (100, 20, 0.5, 1.0, mf.Overlaps(-0.2, 0.6, 0.3, 0.1, -0.2)),
    (30, 50, 0.9, 5.0, mf.Overlaps(0.7, 0.6, 0.2, -0.1, 0.3)),
    (30, 3, 0.8, 0.3, mf.Overlaps(0.1, -0.4, 0.5, 0.2, 0.4)),
    (10, 200, 0.6, 3.0, mf.Overlaps(0.8, 0.7, -0.2, 0.15, -0.1)),
    (10, 7, 0.95, 12.0, mf.Overlaps(0.0, 0.2, 0.6, -0.3, 0.5)),
    (4, 5, 0.4, 2.0, mf.Overlaps(0.4, 0.4, 0.4, 0.1, -0.3)),
    (200, 10, 0.3, 20.0, mf.Overlaps(0.15, 0.1, 0.02, 0.01, 0.6)),
]


@pytest.mark.parametrize(("d", "L", "gamma", "lam", "o"), FULL)
def test_the_risk_is_within_four_standard_errors_of_monte_carlo_in_full_dimension(d, L, gamma, lam, o):
    problem = mf.Problem(d, L, gamma)
    count = int(min(60_000, 60_000_000 // (L * d)))
    losses = draw(problem, o, count, np.random.default_rng(d + L), softmax_layer(lam))
    assert abs(z_score(losses, mf.SoftmaxRisk(problem, lam=lam).risk(o))) < 4


@pytest.mark.parametrize(
    ("d", "L", "gamma", "lam", "o"),
    [
        (100, 1_000, 0.7, 10.0, GENERIC),
        (100, 10_000, 0.8, 6.0, mf.Overlaps(0.8, 0.5, 0.1, 0.05, 0.2)),
        (200, 100_000, 0.6, 14.0, mf.Overlaps(0.5, 0.9, -0.1, 0.02, 0.1)),
        (400, 100_000, 0.9, 4.0, mf.Overlaps(0.3, -0.2, 0.3, 0.1, -0.4)),
        (50, 3_000, 0.5, 9.0, mf.Overlaps(0.9, 0.95, 0.05, 0.02, 0.0)),
    ],
)
def test_the_risk_of_long_sequences_is_within_four_standard_errors_of_monte_carlo(d, L, gamma, lam, o):
    """Only the projections on u and v matter for distractors, so long sequences are drawn in two dimensions."""
    problem, rng = mf.Problem(d, L, gamma), np.random.default_rng(L)
    count, losses = int(min(20_000, 2e7 // L)), []
    factor = np.linalg.cholesky(np.array([[1, o.rho, o.eta], [o.rho, 1, o.nu], [o.eta, o.nu, 1]]))
    for _ in range(count):
        s = rng.standard_normal(L - 1)
        a = o.rho * s + math.sqrt(1 - o.rho**2) * rng.standard_normal(L - 1)
        g = factor @ rng.standard_normal(3)
        logits = lam * np.append(s, problem.C * o.mu + gamma * g[0])
        weights = np.exp(logits - logits.max())
        f = weights @ np.append(a, problem.C * o.zeta + gamma * g[1]) / weights.sum()
        losses.append((f - gamma * g[2]) ** 2)
    assert abs(z_score(np.array(losses), mf.SoftmaxRisk(problem, lam=lam).risk(o))) < 4


LINKS = {
    "quadratic": lambda a: a * a,
    "relu": lambda a: np.maximum(a, 0),
    "sign": np.sign,
    "tanh": np.tanh,
}


@pytest.mark.parametrize("name", list(LINKS))
@pytest.mark.parametrize("o", [GENERIC, mf.Overlaps(0.7, 0.8, 0.2, 0.05, 0.25), mf.Overlaps(-0.1, -0.5, 0.4, 0.1, -0.3)])
def test_the_risk_of_other_links_is_within_four_standard_errors_of_monte_carlo(name, o):
    problem = mf.Problem(20, 12, 0.7)
    link = name if name != "tanh" else mf.CustomLink(np.tanh)
    losses = draw(problem, o, 40_000, np.random.default_rng(len(name)), softmax_layer(4.0, LINKS[name]))
    assert abs(z_score(losses, mf.LinkRisk(problem, link, lam=4.0).risk(o))) < 4


@pytest.mark.parametrize(("d", "L", "gamma"), [(20, 20, 0.8), (20, 100, 0.9), (50, 10, 0.9), (8, 5, 0.5)])
@pytest.mark.parametrize("coordinates", ["full", "projected"])
def test_the_bayes_risk_is_within_four_standard_errors_of_monte_carlo(d, L, gamma, coordinates):
    problem = mf.Problem(d, L, gamma)

    def posterior_mean(tokens, u, v, v_star, u_star, secret):
        seen = tokens if coordinates == "full" else np.stack([tokens @ u_star, tokens @ v_star], axis=2)
        mean = problem.C * u_star if coordinates == "full" else np.array([problem.C, 0.0])
        size = seen.shape[2]
        log_ratio = ((seen**2).sum(2) - ((seen - mean) ** 2).sum(2) / gamma**2) / 2 - size * math.log(gamma)
        weights = np.exp(log_ratio - log_ratio.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        values = tokens @ v_star
        return (weights * values).sum(1), values[np.arange(len(tokens)), secret]

    losses = draw(problem, mf.Overlaps(1, 1), 40_000, np.random.default_rng(d * L), posterior_mean)
    assert abs(z_score(losses, mf.bayes_risk(problem, coordinates))) < 4


@pytest.mark.parametrize(("L", "gamma"), [(2, 0.5), (20, 0.7), (100, 0.9)])
def test_the_best_linear_risk_is_within_four_standard_errors_of_monte_carlo(L, gamma):
    problem = mf.Problem(10, L, gamma)
    share = gamma**2 / (L - 1 + gamma**2)

    def linear(tokens, u, v, v_star, u_star, secret):
        values = tokens @ v_star
        return share * values.sum(1), values[np.arange(len(tokens)), secret]

    losses = draw(problem, mf.Overlaps(1, 1), 50_000, np.random.default_rng(L), linear)
    assert abs(z_score(losses, mf.best_linear_risk(problem))) < 4


@pytest.mark.parametrize("o", [GENERIC, mf.Overlaps(0.7, 0.8, 0.2, 0.05, 0.25)])
@pytest.mark.parametrize("kind", ["hardmax", "erf"])
def test_hard_and_pointwise_attention_are_within_four_standard_errors_of_monte_carlo(kind, o):
    from scipy.special import erf

    problem = mf.Problem(20, 12, 0.7)

    def values(tokens, u, v, v_star, u_star, secret):
        logits, a = tokens @ u, tokens @ v
        rows = np.arange(len(tokens))
        f = a[rows, logits.argmax(1)] if kind == "hardmax" else (erf(0.4 * logits) * a).sum(1)
        return f, (tokens @ v_star)[rows, secret]

    exact = mf.hardmax_risk(problem, o) if kind == "hardmax" else mf.pointwise_risk(problem, o, 0.4)
    losses = draw(problem, o, 50_000, np.random.default_rng(3), values)
    assert abs(z_score(losses, exact)) < 4


@pytest.mark.parametrize("gamma", [math.sqrt(0.5), 0.5])
def test_the_recursion_equals_riemannian_descent_on_real_vectors_after_400_steps_to_1e_13(gamma):
    risk = mf.SoftmaxRisk(mf.Problem(100, 20, gamma), beta=1)
    u_star, v_star, u, v = mf.Overlaps(0.12, 0.05, -0.1, 0.08, 0.2).to_vectors(100, seed=1)
    o = mf.Overlaps.from_vectors(u, v, u_star, v_star)
    path = mf.gd(risk, o, 0.01, 400)
    worst = 0.0
    for k in range(401):
        here = mf.Overlaps(u @ u_star, v @ v_star, u @ v_star, v @ u_star, u @ v)
        worst = max(worst, float(np.abs(np.array(here) - path.overlaps[k]).max()))
        g = risk.gradient(here)
        grad_u, grad_v = g.mu * u_star + g.eta * v_star + g.rho * v, g.nu * v_star + g.zeta * u_star + g.rho * u
        u = u - 0.01 * (grad_u - (grad_u @ u) * u)
        v = v - 0.01 * (grad_v - (grad_v @ v) * v)
        u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
    assert worst <= 1e-13


def test_descent_with_fresh_batches_follows_the_recursion():
    problem = mf.Problem(20, 8, 0.6)
    start = mf.Overlaps(0.3, 0.1)
    settings = mf.Settings(problem, beta=1.0, n=4000, step=0.02, steps=120, starts=(start,), method="sgd", every=20, test=0)
    measured = mf.train(settings)
    path = mf.gd(mf.SoftmaxRisk(problem, beta=1.0), start, 0.02, 120, every=20)
    assert np.abs(measured.overlaps[:, 0] - path.overlaps).max() < 0.03


def test_the_gradient_is_within_four_standard_errors_of_the_mean_sample_gradient():
    """Per-sample gradients of the loss in u and v, projected on u*, v* and the other vector, against the chain rule."""
    problem, lam, o = mf.Problem(20, 10, 0.7), 4.0, GENERIC
    u_star, v_star, u, v = o.to_vectors(20, seed=5)
    rng, count = np.random.default_rng(8), 60_000
    tokens = rng.standard_normal((count, 10, 20))
    secret = rng.integers(0, 10, count)
    rows = np.arange(count)
    tokens[rows, secret] = problem.C * u_star + problem.gamma * tokens[rows, secret]
    logits, a = lam * (tokens @ u), tokens @ v
    w = np.exp(logits - logits.max(1, keepdims=True))
    w /= w.sum(1, keepdims=True)
    f = (w * a).sum(1)
    error = 2 * (f - (tokens @ v_star)[rows, secret])
    g = mf.SoftmaxRisk(problem, lam=lam).gradient(o)
    exact_u, exact_v = g.mu * u_star + g.eta * v_star + g.rho * v, g.nu * v_star + g.zeta * u_star + g.rho * u
    for direction in (u_star, v_star, v - (u @ v) * u):
        t = direction - (direction @ u) * u
        each = error * lam * (w * (a - f[:, None]) * (tokens @ t)).sum(1)
        assert abs(each.mean() - exact_u @ t) < 4 * each.std() / math.sqrt(count)
    for direction in (u_star, v_star, u):
        t = direction - (direction @ v) * v
        each = error * (w * (tokens @ t)).sum(1)
        assert abs(each.mean() - exact_v @ t) < 4 * each.std() / math.sqrt(count)
