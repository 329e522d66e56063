"""What else can be done on the task, or with the layer at its limits. All risks are without label noise."""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import erf, ive, log_ndtr, ndtr, owens_t

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput, Refused
from maxaffine.meanfield.problem import Overlaps, Problem, positive
from maxaffine.meanfield.quadrature import kernel
from maxaffine.meanfield.risk import SoftmaxRisk, assemble

DEPTHS = (60.0, 120.0, 240.0)  # log of the smallest probability kept, deepened until the Bayes risk is well above it
DELTA = 0.25


def null_risk(problem: Problem) -> float:
    """The risk of predicting zero: Var(x_J . v*) = gamma^2."""
    return problem.gamma**2


def best_linear_risk(problem: Problem) -> float:
    """The best linear function of all tokens: gamma^2 - gamma^4/(L - 1 + gamma^2).

    By symmetry it puts one coefficient, gamma^2/(L - 1 + gamma^2), on x_l . v* for every token l.
    """
    g2 = problem.gamma**2
    return g2 - g2 * g2 / (problem.distractors + g2)


def uniform_risk(problem: Problem, o: Overlaps) -> float:
    """The layer at lam -> 0, where every weight is 1/L."""
    o.check()
    g2, n, share = problem.gamma**2, problem.distractors, 1 / problem.L
    second = (problem.C * o.zeta) ** 2 + g2 + n
    return share * share * second - 2 * share * g2 * o.nu + g2


def _trapezoid(low: float, high: float, count: int) -> tuple[Array, float]:
    return np.linspace(low, high, count), (high - low) / (count - 1)


def hardmax_moments(problem: Problem, mu: float) -> dict[str, float]:
    """The coefficients of the exact risk at lam -> infinity, where the largest logit takes all.

    P = E[Phi(s_J)^n] is the probability that the secret token wins; S_j = K_j; the largest distractor t has density
    n phi(t) Phi(t)^(n-1) and wins with probability Phi((t - m)/gamma).
    """
    n, gamma, m = problem.distractors, problem.gamma, problem.C * mu
    g, step = _trapezoid(-13, 13, 1041)
    weights = step / math.sqrt(2 * math.pi) * np.exp(-g * g / 2)
    wins = weights * np.exp(n * log_ndtr(m + gamma * g))
    top = math.sqrt(2 * math.log(n) + 90) + 1
    t, step = _trapezoid(-13, top, 4001)
    density = step * np.exp(math.log(n) - t * t / 2 - math.log(2 * math.pi) / 2 + (n - 1) * log_ndtr(t))
    lost = density * ndtr((t - m) / gamma)
    bell = density * np.exp(-(((t - m) / gamma) ** 2) / 2) / math.sqrt(2 * math.pi)
    return {
        "P1": float(wins.sum()),
        "K1": float(wins @ g),
        "K2": float(wins @ (g * g)),
        "D": float(lost.sum()),
        "V": float(lost @ (t * t)),
        "T1": -float(bell @ t),  # E[g 1(m + gamma g < t)] = -phi((t - m)/gamma)
    }


def hardmax_risk(problem: Problem, o: Overlaps) -> float:
    """The exact risk of hard attention (lam -> infinity), for all five overlaps and any L."""
    o.check()
    gamma, e = problem.gamma, hardmax_moments(problem, o.mu)
    p1, k1, k2, d = e["P1"], e["K1"], e["K2"], e["D"]
    values = np.array([p1, d, d, p1, gamma * k1, k1, gamma**2 * (k2 - p1) + e["V"] - d, gamma * (k2 - p1) + e["T1"]])
    return assemble(values, np.zeros(8), o, problem.C, gamma)[0]


def log_minimum(f: Callable[[float], float], low: float, high: float, count: int, tolerance: float) -> tuple[float, float]:
    """The lam in [low, high] at which f(log lam) is least, from a grid of so many points refined, and the least value."""
    grid = np.linspace(math.log(low), math.log(high), count)
    best = int(np.argmin([f(x) for x in grid.tolist()]))
    ends = grid[max(best - 1, 0)], grid[min(best + 1, count - 1)]
    found = minimize_scalar(f, bounds=ends, method="bounded", options={"xatol": tolerance})
    return math.exp(float(found.x)), float(found.fun)


def best_lambda(problem: Problem, o: Overlaps | None = None) -> tuple[float, float]:
    """The inverse temperature lam that minimises the risk at overlaps o (the oracle by default), and that risk."""
    where = Overlaps(1.0, 1.0) if o is None else o.check()

    def log_risk(log_lam: float) -> float:
        return math.log(SoftmaxRisk(problem, lam=math.exp(log_lam)).value_and_gradient(where)[0])

    # Bayes on one projection has lam = C/gamma^2; beyond a few times that the layer is a hard maximum
    lam, value = log_minimum(log_risk, 0.05, min(max(20.0, 3 * problem.C / problem.gamma**2), 150.0), 25, 1e-9)
    return lam, math.exp(value)


# -- the Bayes predictor -----------------------------------------------------------------------------------------------


def _log_bessel_scaled(order: float, z: Array) -> Array:
    """log(I_order(z) e^-z): scipy's function, or an expansion where that one underflows or loses its argument."""
    scaled = ive(order, np.minimum(z, 1e8))
    with np.errstate(divide="ignore"):
        value = np.log(scaled)
    small = scaled < 1e-290
    if order > 0 and np.any(small):  # Debye's uniform expansion for large order
        t = z[small] / order
        root = np.sqrt(1 + t * t)
        p = 1 / root
        eta = root + np.log(t / (1 + root))
        terms = (
            1
            + (3 * p - 5 * p**3) / (24 * order)
            + (81 * p**2 - 462 * p**4 + 385 * p**6) / (1152 * order**2)
            + (30375 * p**3 - 369603 * p**5 + 765765 * p**7 - 425425 * p**9) / (414720 * order**3)
        )
        value[small] = order * eta - 0.5 * np.log(2 * math.pi * order) - 0.5 * np.log(root) + np.log(terms) - z[small]
    large = z > max(1e8, 1e4 * order * order)
    if np.any(large):  # Hankel's expansion for large argument
        q = (4 * order * order - 1) / (8 * z[large])
        value[large] = -0.5 * np.log(2 * math.pi * z[large]) + np.log1p(-q)
    return np.asarray(value)


def log_noncentral_chi2(w: Array, dof: float, shift: float) -> Array:
    """Log density of the noncentral chi-square with ``dof`` degrees of freedom and noncentrality ``shift`` > 0."""
    order = dof / 2 - 1
    apart = np.sqrt(w) - math.sqrt(shift)  # -(w + shift)/2 + sqrt(w shift) without cancellation
    scaled = _log_bessel_scaled(order, np.sqrt(shift * w))
    return np.asarray(-math.log(2) - apart * apart / 2 + order / 2 * np.log(w / shift) + scaled)


def _law(dof: float, shift: float, scale: float, slope: float, depth: float, ceiling: float) -> tuple[Array, Array]:
    """Nodes W <= ceiling and weights of scale * ncx2(dof, shift): Gauss-Legendre panels in r = sqrt(W/scale).

    The density is not smooth at W = 0, so a lattice will not do. Panels span at most three units of the logit slope * W
    and half a standard deviation. Empty when the law has nothing below the ceiling.
    """
    mean, deviation = math.sqrt(shift + dof), math.sqrt(2 * (dof + 2 * shift)) / (2 * math.sqrt(shift + dof))
    reach = math.sqrt(2 * depth) * max(deviation, 1.0) + 2
    low, high = max(0.0, mean - reach), mean + reach
    probe = np.linspace(low, high, 4000)[1:]
    density = log_noncentral_chi2(probe**2, dof, shift) + np.log(2 * probe)
    kept = probe[density > density.max() - depth]
    low, high = max(0.0, float(kept[0]) - (high - low) / 2000), float(kept[-1]) + (high - low) / 2000
    high = min(high, math.sqrt(ceiling / scale)) if ceiling > 0 else low
    if high <= low:
        return np.empty(0), np.empty(0)
    # the logit slope * scale * r^2 changes by 2 slope scale r per unit of r
    width = min(3 / (2 * slope * scale * high), 0.5)
    edges = np.linspace(low, high, max(4, math.ceil((high - low) / width)) + 1)
    nodes, node_weights = np.polynomial.legendre.leggauss(14)
    half = (edges[1] - edges[0]) / 2
    r = ((edges[:-1] + half)[:, None] + half * nodes).reshape(-1)
    weights = np.tile(half * node_weights, edges.size - 1)
    weights = weights * np.exp(log_noncentral_chi2(r * r, dof, shift) + np.log(2 * r))
    return scale * r * r, np.asarray(weights)


def bayes_risk(problem: Problem, coordinates: Literal["full", "projected"] = "full") -> float:
    """The excess risk of the Bayes predictor from all coordinates, or from the two projections x.u*, x.v* only.

    The posterior of the secret index has logits C s_l/gamma^2 - (kappa/2)|x_l|^2, kappa = 1/gamma^2 - 1: the *norm* of a token
    is informative, because the secret one has smaller covariance. Completing the square, logit_l = const - (kappa/2) W_l with
    W_l = |x_l - s0 u*|^2, s0 = C/(1 - gamma^2), a noncentral chi-square for every token. The predictor is sum_l pi_l x_l.v* and

        R = E[a_J^2 (1 - pi_J)] = gamma^2 n int E_J[F_0(tau + x_J)] E_0[F_1(tau + x_0)] M^(n-1) dtau,

    where weighting by a_J^2 adds two degrees of freedom to W_J.
    """
    if coordinates not in ("full", "projected"):
        raise BadInput(f"`coordinates` (={coordinates!r}) must be 'full' or 'projected'.")
    if 1 - problem.gamma**2 < 1e-9:
        # equal covariances: the posterior logit is C s_l, a softmax layer at lam = C
        return SoftmaxRisk(problem, lam=problem.C).risk(Overlaps(1.0, 1.0))
    for depth in DEPTHS:
        risk = _bayes_risk(problem, coordinates, depth)
        if risk > math.exp(30 - depth):  # else the tails that were cut may matter
            break
    return risk


def _bayes_risk(problem: Problem, coordinates: str, depth: float) -> float:
    n, g2 = problem.distractors, problem.gamma**2
    dof = problem.d if coordinates == "full" else 2
    slope = (1 / g2 - 1) / 2
    s0 = problem.C / (1 - g2)
    w_secret, p_secret = _law(dof + 2, (problem.C - s0) ** 2 / g2, g2, slope, depth, math.inf)
    if abs(p_secret.sum() - 1) > 1e-9:
        raise Refused(f"the law of the secret token's logit integrates to {p_secret.sum():.12g}, not 1; report this problem.")
    # distractors whose logit is 45 + log n below the lowest secret one never matter: F_0 = 1 for them
    ceiling = float(w_secret.max()) + (45 + math.log(n)) / slope
    w_other, p_other = _law(dof, s0 * s0, 1.0, slope, depth + math.log(n), ceiling)
    if w_other.size == 0:
        return 0.0  # the two laws are apart at this depth
    rest = max(0.0, 1 - float(p_other.sum()))
    middle = float(p_secret @ w_secret)  # a common shift of all logits, so that tau stays near zero
    x_secret, x_other = -slope * (w_secret - middle), -slope * (w_other - middle)
    top = max(float(x_secret.max()), float(x_other.max()) + 1)
    bottom = max(float(x_secret.min()), float(x_other.min()))
    # log Z is at most top + log n; to the left of it the integrand falls like e^tau
    tau = DELTA * np.arange(math.floor((-top - math.log(n) - 60) / DELTA), math.ceil((5 - bottom) / DELTA) + 1)
    total = 0.0
    for part in np.array_split(tau, max(1, tau.size * x_other.size // 2_000_000)):
        size = np.exp(np.minimum(part[:, None] + x_other, 7.0))
        none = np.exp(-size)
        gone, left = -np.expm1(-size) @ p_other, none @ p_other + rest
        with np.errstate(divide="ignore"):
            log_m = np.where(gone < 0.5, np.log1p(-np.minimum(gone, 0.5)), np.log(np.minimum(left, 1.0)))
        survive = np.exp(np.maximum((n - 1) * log_m, -745.0)) if n > 1 else np.ones_like(part)
        chosen = n * ((size * none) @ p_other)
        secret = kernel(0, part[:, None] + x_secret) @ p_secret
        total += float(np.sum(secret * chosen * survive))
    return g2 * DELTA * total


# -- pointwise attention -----------------------------------------------------------------------------------------------


def _nodes(sharpness: float) -> tuple[Array, Array]:
    """Trapezoid nodes for a Gaussian times functions of sharpness * x.

    |erf(z)| grows like exp(Im(z)^2), so the rule errs by about exp(-pi^2/(2 h^2 sharpness^2)) and needs steps
    h <= 0.3/sharpness; the Gaussian itself needs h <= 0.4. Gauss-Hermite fails for sharp theta.
    """
    step = min(0.4, 0.3 / sharpness)
    x = step * np.arange(-math.ceil(9.5 / step), math.ceil(9.5 / step) + 1, dtype=np.float64)
    return x, step / math.sqrt(2 * math.pi) * np.exp(-x * x / 2)


def pointwise_risk(problem: Problem, o: Overlaps, lam: float, theta: Callable[[Array], Array] | None = None) -> float:
    """The exact risk of pointwise attention (Marion et al.), f = sum_l theta(lam x_l.u) x_l.v, with theta = erf by default.

    With g, s standard normal, th_J = theta(lam (m + gamma g)), th = theta(lam s), n1 = C zeta + gamma rho g:

        R = gamma^2 - 2 E[th_J (n1 gamma eta g + gamma^2 (nu - rho eta))] + E[th_J^2 (n1^2 + gamma^2 (1 - rho^2))]
            + 2 n E[th_J n1] rho E[th s] + n E[th^2 (rho^2 s^2 + 1 - rho^2)] + n (n-1) rho^2 E[th s]^2.
    """
    o.check()
    lam = positive("lam", lam, "give an inverse temperature such as 0.5")
    activation = erf if theta is None else theta
    gamma, C, n = problem.gamma, problem.C, problem.distractors
    mu, nu, eta, zeta, rho = o
    g, pg = _nodes(lam * gamma)
    s, ps = _nodes(lam)
    secret = np.asarray(activation(lam * (C * mu + gamma * g)), dtype=float)
    other = np.asarray(activation(lam * s), dtype=float)
    if secret.shape != g.shape or not (np.all(np.isfinite(secret)) and np.all(np.isfinite(other))):
        raise BadInput("`theta` must act elementwise on arrays and stay finite; give for example scipy.special.erf.")
    n1 = C * zeta + gamma * rho * g
    pull = float(pg @ (secret * (n1 * gamma * eta * g + gamma**2 * (nu - rho * eta))))
    own = float(pg @ (secret**2 * (n1**2 + gamma**2 * (1 - rho**2))))
    lean = rho * float(ps @ (other * s))
    noise = float(ps @ (other**2 * (rho**2 * s**2 + 1 - rho**2)))
    return gamma**2 - 2 * pull + own + 2 * n * float(pg @ (secret * n1)) * lean + n * noise + n * (n - 1) * lean**2


def erf_risk_closed(problem: Problem, mu: float, nu: float, lam: float) -> float:
    """The closed form on eta = zeta = rho = 0 for theta = erf, with Owen's T function.

    E erf(lam (m + gamma g)) = erf(lam m/sqrt(1 + 2 lam^2 gamma^2));  E erf(lam s)^2 = (2/pi) asin(2 lam^2/(1 + 2 lam^2));
    E erf(lam (m + gamma g))^2 = 1 - 8 T(h, 1/sqrt(1 + 2 b^2)),  b = sqrt(2) lam gamma,  h = sqrt(2) lam m/sqrt(1 + b^2).
    """
    Overlaps(mu, nu).check()
    lam = positive("lam", lam, "give an inverse temperature such as 0.5")
    g2, m = problem.gamma**2, problem.C * mu
    b2 = 2 * lam * lam * g2
    first = float(erf(lam * m / math.sqrt(1 + b2)))
    second = 1 - 8 * float(owens_t(math.sqrt(2) * lam * m / math.sqrt(1 + b2), 1 / math.sqrt(1 + 2 * b2)))
    other = 2 / math.pi * math.asin(2 * lam * lam / (1 + 2 * lam * lam))
    return g2 * (1 - 2 * nu * first + second) + problem.distractors * other


def best_pointwise_lambda(problem: Problem) -> tuple[float, float]:
    """The lam that minimises erf attention's risk at the oracle, and that risk (closed form)."""

    def risk(log_lam: float) -> float:
        return erf_risk_closed(problem, 1.0, 1.0, math.exp(log_lam))

    return log_minimum(risk, 1e-30, 1e3, 300, 1e-10)
