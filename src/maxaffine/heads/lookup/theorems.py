"""The theorems of the lookup in closed form, with logit errors inside.

One coordinate in cell units: centres at distance 1, weights proportional to exp(-rho (z - c)^2 / 2 + delta_c) with any
|delta_c| <= eta.  The perturbation delta stands for everything that finite precision does to a logit (rounded queries,
keys, products, exponentials); q = e^{-rho/2}, kappa = e^{2 eta}.  With t the distance to the nearest centre and K a centre
drawn from the weights, for every z inside the grid's hull (faces and edges included):

    (mean distance)  E|z - c_K|   <= 1/2 + eta^2/(2 rho) + kappa 2q/(1-q)
    (mean square)    E(z - c_K)^2 <= 1/4 + (2/rho) W0(kappa/e) + kappa tau2
    (tail)           P(K not one of the two nearest) <= kappa q/(1-q)
    (enlarged)       P(|z - c_K| > 1/2 + g)          <= kappa (e^{-rho g} + q/(1-q))
    (cell average)   mean over a cell of P(K not nearest) <= (2/rho) log(2/(1+q)) + q/(1-q)          (eta = 0)

Proof of the first (the others are alike).  Relative to the nearest centre the next one weighs at most kappa e^{-s},
s = rho(1/2 - t), the others kappa q^{m(m-1)} (m >= 2) and kappa q^{m^2} (m >= 1, other side).  The two nearest contribute
(w0+w1)/2 + (1/2-t)(w1-w0), and (1/2-t)(w1-w0) <= (s/rho) tanh((2 eta - s)/2) <= s(2 eta - s)/(2 rho) <= eta^2/(2 rho);
the rest contributes at most kappa times sum m q^{m(m-1)} + sum (m+1/2) q^{m^2} <= 2q/(1-q) by Abel summation.
In several coordinates the weights of dense attention are perturbed jointly, yet the ratio of two marginal
weights moves by a factor in [1/kappa, kappa] only, so the same bounds hold for every coordinate.  QED
"""

import math

from maxaffine.core.errors import BadInput
from maxaffine.proofs.soft_gap import soft_gap

# The default sharpness of the paper's construction, q = 1/41: the mean distance is then at most 0.55.
RHO0 = 2.0 * math.log(41.0)


def q_of(rho: float) -> float:
    """q = e^{-rho/2}."""
    return math.exp(-rho / 2.0)


def kappa_of(eta: float) -> float:
    """kappa = e^{2 eta}, the factor by which logit errors may change a ratio of weights."""
    return math.exp(2.0 * eta) if eta < 300.0 else math.inf


def tail(rho: float, eta: float = 0.0) -> float:
    """kappa q/(1-q): weight on centres other than the two nearest."""
    q = q_of(rho)
    return kappa_of(eta) * q / (1.0 - q)


def mean_distance(rho: float, eta: float = 0.0) -> float:
    """E|z - c_K| <= 1/2 + eta^2/(2 rho) + kappa 2q/(1-q), in cells."""
    return 0.5 + eta * eta / (2.0 * rho) + 2.0 * tail(rho, eta)


def tau2(rho: float) -> float:
    """sum_{m>=2} m^2 q^{m(m-1)} + sum_{m>=1} (m+1/2)^2 q^{m^2}, summed until terms vanish."""
    q = q_of(rho)
    total, m = 0.0, 1
    while True:
        near = m * m * q ** (m * (m - 1)) if m >= 2 else 0.0
        far = (m + 0.5) ** 2 * q ** (m * m)
        total += near + far
        if m >= 2 and near + far <= 1e-18 * max(total, 1e-300):
            return total * (1.0 + 1e-15) + 4.0 * (near + far)  # what is left is below a geometric series of ratio 1/2
        m += 1


def mean_square(rho: float, eta: float = 0.0) -> float:
    """E(z - c_K)^2 <= 1/4 + (2/rho) W0(kappa/e) + kappa tau2, in squared cells."""
    kappa = kappa_of(eta)
    if math.isinf(kappa):
        return math.inf
    return 0.25 + 2.0 / rho * soft_gap(2, 2.0 * eta) + kappa * tau2(rho)


def outside_enlarged(rho: float, margin: float, eta: float = 0.0) -> float:
    """P(|z - c_K| > 1/2 + margin) <= kappa (e^{-rho margin} + q/(1-q)) per coordinate."""
    return kappa_of(eta) * math.exp(-rho * margin) + tail(rho, eta)


def cell_average(rho: float) -> float:
    """Mean over a cell of the weight that is not on the nearest centre, (2/rho) log(2/(1+q)) + q/(1-q)."""
    q = q_of(rho)
    return 2.0 / rho * math.log(2.0 / (1.0 + q)) + q / (1.0 - q)


def steps_average(rho: float, p: float) -> float:
    """mu_p = (2/rho) log(2/(1+q)) + q + sum_{m>=2} m^p (q^{m(m-1)} + q^{m^2}): mean of (steps to the drawn centre)^p."""
    q = q_of(rho)
    total = 2.0 / rho * math.log(2.0 / (1.0 + q)) + q
    m = 2
    while True:
        term = math.pow(m, p) * (q ** (m * (m - 1)) + q ** (m * m))
        total += term
        if term <= 1e-18 * total and m > p:
            return total * (1.0 + 1e-14)
        m += 1
        if m > 100_000:
            raise BadInput(f"sharpness (={rho:g}) is too small for an L_p bound with p = {p:g}; raise it above 0.01.")


def soft_constant(rho: float, p: float, dimension: int) -> float:
    """C^{(D-1)/p} mu_p^{1/p}, C = 1 + cell average: the factor of sum_i delta_i in the sharp L_p bound."""
    return math.pow(1.0 + cell_average(rho), (dimension - 1) / p) * math.pow(steps_average(rho, p), 1.0 / p)


def covering(radius: float, count: int, multiplier: float, eta: float = 0.0) -> float:
    """sqrt(r^2 + 2 (log N + 2 eta)/R): root mean square distance to the drawn centre when one lies within r.

    Gibbs' variational principle: softmax weights at inverse temperature R have mean energy at most the least energy plus
    (log N)/R; logit errors add at most 2 eta / R.
    """
    return math.sqrt(radius * radius + 2.0 * (math.log(count) + 2.0 * eta) / multiplier)
