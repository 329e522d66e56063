"""The formulas of benchmarks/formulas.py: the hundred of AI Feynman, and classical functions of 4 to 100 variables."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).with_name("formulas.toml")
ERRORS = (1e-2, 1e-4, 1e-6)
COARSE = (0.3, 0.1, 0.03)  # asked as well of the formulas that are not analytic
Ranges = dict[str, tuple[float, float]]

SINGULAR = {
    "I.8.14": "a cone point where `x1 = x2` and `y1 = y2`, inside the box",
    "I.29.16": "a cone point where `x1 = x2` and `theta1 = theta2`, inside the box",
    "I.26.2": "`arcsin` reaches its end, where its slope is infinite, at `n = 1`, `sin(theta2) = -1` and `1`",
    "I.30.5": "`arcsin` reaches its end, where its slope is infinite, in the corner `lambd = d = 2`, `n = 1`",
    "III.9.52": "0/0 where `omega = omega_0`; `sin(u)**2/u**2` has an analytic extension there",
}
"""The formulas of the hundred that are not analytic on their closed box, and where."""


@dataclass(frozen=True)
class Formula:
    """A formula with its box, and the relative errors that it is asked for."""

    name: str
    text: str
    box: Ranges
    errors: tuple[float, ...] = ERRORS
    numbers: tuple[int, ...] | None = None  # stored numbers of the prototype at `errors` (the design's table), to compare with
    source: str = ""

    @property
    def dimension(self) -> int:
        """The number of variables."""
        return len(self.box)


def feynman() -> list[Formula]:
    """The hundred, in the order of their table."""
    rows = tomllib.loads(DATA.read_text())["feynman"]
    found = []
    for row in rows:
        errors = (*COARSE, *ERRORS) if row["name"] in SINGULAR else ERRORS
        found.append(Formula(row["name"], row["text"], {name: (low, high) for name, (low, high) in row["box"].items()}, errors))
    return found


def cube(dimension: int, half: float = 1.0) -> Ranges:
    """[-half, half] in x1, x2, .."""
    return {f"x{i}": (-half, half) for i in range(1, dimension + 1)}


def squares(dimension: int) -> str:
    """|x|^2 as text."""
    return " + ".join(f"x{i}**2" for i in range(1, dimension + 1))


def exponentials(dimension: int) -> str:
    """The sum of exp(x_i) as text."""
    return " + ".join(f"exp(x{i})" for i in range(1, dimension + 1))


def quadratic(dimension: int) -> str:
    """x'Ax with A_ij = 1/(3 (1 + |i - j|)), full, and positive definite because 1/(1 + t) is convex and falls (Polya)."""
    terms = [f"x{i}**2/3" for i in range(1, dimension + 1)]
    pairs = [(i, j) for i in range(1, dimension + 1) for j in range(i + 1, dimension + 1)]
    return " + ".join([*terms, *(f"2*x{i}*x{j}/{3 * (1 + j - i)}" for i, j in pairs)])


def griewank(dimension: int) -> str:
    """1 + |x|^2/4000 - prod cos(x_i/sqrt(i))."""
    waves = "*".join(f"cos(x{i}/sqrt({i}))" for i in range(1, dimension + 1))
    return f"1 + ({squares(dimension)})/4000 - {waves}"


def rosenbrock(dimension: int) -> str:
    """The sum of 100 (x_{i+1} - x_i^2)^2 + (1 - x_i)^2."""
    return " + ".join(f"100*(x{i + 1} - x{i}**2)**2 + (1 - x{i})**2" for i in range(1, dimension))


def sobol_g(weights: Sequence[float]) -> str:
    """The product of (|4 x_i - 2| + a_i)/(1 + a_i)."""
    return "*".join(f"(abs(4*x{i} - 2) + {a:g})/{1 + a:g}" for i, a in enumerate(weights, 1))


OTL = (
    "(12*Rb2/(Rb1 + Rb2) + 0.74)*beta*(Rc2 + 9)/(beta*(Rc2 + 9) + Rf) + 11.35*Rf/(beta*(Rc2 + 9) + Rf)"
    " + 0.74*Rf*beta*(Rc2 + 9)/((beta*(Rc2 + 9) + Rf)*Rc1)"
)
# The literature's V = S/(2k) (sqrt(A^2 + B) - A) cancels where A is large, and no enclosure of it stays above 0; it is
# S/(2k) sqrt(B) exp(-asinh(A/sqrt(B))), and the cycle time becomes the following.
PISTON = "2*pi*sqrt(M/(k*(1 + exp(2*asinh((P0*S + 19.62*M - k*V0/S)/sqrt(4*k*P0*V0*Ta/T0))))))"
BOREHOLE = "2*pi*Tu*(Hu - Hl)/(log(r/rw)*(1 + 2*L*Tu/(log(r/rw)*rw**2*Kw) + Tu/Tl))"
WING = (
    "0.036*Sw**0.758*Wfw**0.0035*(A/cos(pi*Lambda/180)**2)**0.6*q**0.006*lambd**0.04"
    "*(100*tc/cos(pi*Lambda/180))**-0.3*(Nz*Wdg)**0.49 + Sw*Wp"
)
_D1 = "(log(S/K) + (r + sigma**2/2)*T)/(sigma*sqrt(T))"
_D2 = "(log(S/K) + (r - sigma**2/2)*T)/(sigma*sqrt(T))"
CALL = f"S*(1 + erf({_D1}/sqrt(2)))/2 - K*exp(-r*T)*(1 + erf({_D2}/sqrt(2)))/2"
GAS = "n*8.314462618*T/(V - n*3.87e-5) - 0.1370*n**2/V**2"  # of nitrogen, SI

OTL_BOX = {"Rb1": (50, 150), "Rb2": (25, 70), "Rf": (0.5, 3), "Rc1": (1.2, 2.5), "Rc2": (0.25, 1.2), "beta": (50, 300)}
PISTON_BOX = {
    "M": (30, 60), "S": (0.005, 0.02), "V0": (0.002, 0.01), "k": (1000, 5000), "P0": (90000, 110000), "Ta": (290, 296),
    "T0": (340, 360),
}  # fmt: skip
BOREHOLE_BOX = {
    "rw": (0.05, 0.15), "r": (100, 50000), "Tu": (63070, 115600), "Hu": (990, 1110), "Tl": (63.1, 116), "Hl": (700, 820),
    "L": (1120, 1680), "Kw": (9855, 12045),
}  # fmt: skip
WING_BOX = {
    "Sw": (150, 200), "Wfw": (220, 300), "A": (6, 10), "Lambda": (-10, 10), "q": (16, 45), "lambd": (0.5, 1), "tc": (0.08, 0.18),
    "Nz": (2.5, 6), "Wdg": (1700, 2500), "Wp": (0.025, 0.08),
}  # fmt: skip
CALL_BOX = {"S": (80, 120), "K": (80, 120), "r": (0, 0.1), "sigma": (0.1, 0.5), "T": (0.25, 2)}
GAS_BOX = {"n": (0.5, 2), "T": (280, 400), "V": (0.01, 0.05)}
PAIR_BOX = {"q1": (-1, 1), "q2": (-1, 1), "k1": (-1, 1), "k2": (-1, 1)}


def classical() -> list[Formula]:
    """Functions of uncertainty quantification, physics, finance and optimisation, and radial ones of up to 100 variables."""
    counts = {5: (128, 334, 686), 10: (353, 915, 1537), 50: (2253, 5857, 10459), 100: (5404, 13507, 23109)}
    unit = {f"x{i}": (0.0, 1.0) for i in range(1, 9)}
    bells = [Formula(f"1/(1+|x|^2), {d}", f"1/(1 + {squares(d)})", cube(d), ERRORS, counts[d]) for d in counts]
    return [
        Formula("OTL circuit", OTL, OTL_BOX, ERRORS, (122, 338, 600), "Ben-Ari, Steinberg 2007"),
        Formula("piston", PISTON, PISTON_BOX, ERRORS, None, "Kenett, Zacks 1998"),
        Formula("borehole", BOREHOLE, BOREHOLE_BOX, ERRORS, None, "Harper, Gupta 1983"),
        Formula("wing weight", WING, WING_BOX, ERRORS, None, "Forrester, Sobester, Keane 2008"),
        *bells,
        Formula("sqrt(1+|x|^2), 20", f"sqrt(1 + {squares(20)})", cube(20), ERRORS, (402, 1084, 2086)),
        Formula("log(1+sum exp), 10", f"log(1 + {exponentials(10)})", cube(10), ERRORS, (202, 403, 724)),
        Formula("softmax entry, 8", f"exp(x1)/({exponentials(8)})", cube(8), ERRORS, (203, 436, 774)),
        Formula("exp(sin |x|^2), 10", f"exp(sin({squares(10)}))", cube(10), ERRORS, (1108, 2252, 3976)),
        Formula("tanh(q.k), 4", "tanh(q1*k1 + q2*k2)", PAIR_BOX, ERRORS, (220, 568, 1114)),
        Formula("exp(-x'Ax), 6", f"exp(-({quadratic(6)}))", cube(6)),
        Formula("Griewank, 20", griewank(20), cube(20, 5.0), ERRORS, None, "Griewank 1981"),
        Formula("Rosenbrock, 20", rosenbrock(20), cube(20, 2.0), ERRORS, None, "Rosenbrock 1960"),
        Formula("Black-Scholes call", CALL, CALL_BOX, (1e-2, 1e-4), None, "Black, Scholes 1973"),
        Formula("van der Waals", GAS, GAS_BOX, ERRORS, None, "van der Waals 1873"),
        Formula("Sobol g, 8", sobol_g((0, 1, 4.5, 9, 99, 99, 99, 99)), unit, (1e-2, 1e-4), None, "Saltelli, Sobol 1995"),
    ]


SETS = {"feynman": feynman, "classical": classical}
