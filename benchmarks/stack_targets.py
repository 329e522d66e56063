"""The targets of benchmarks/stacks.py: formulas, networks, what one layer refuses, ten literal stacks, three at nine errors."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from formula_targets import SETS

ERRORS = (1e-2, 1e-4, 1e-6)
NINE = tuple(10.0**-k for k in range(1, 10))
MANY = 10**6  # tokens of one layer, from which on they are implied more than stored
FORMULAS = Path(__file__).resolve().parent / "results" / "formulas.json"
TEN, TWENTY = range(1, 11), range(1, 21)
Ranges = dict[str, tuple[float, float]]
Case = tuple[str, Ranges]


def _ackley(low: float, high: float) -> Case:
    squares = "+".join(f"x{i}**2" for i in TEN)
    waves = "+".join(f"cos(2*pi*x{i})" for i in TEN)
    text = f"-20*exp(-0.2*sqrt(0.1*({squares})))-exp(0.1*({waves}))+20+e"
    return text, {f"x{i}": (low, high) for i in TEN}


CASES: dict[str, Case] = {
    "borehole": (
        "2*pi*Tu*(Hu-Hl)/(log(r/rw)*(1+2*L*Tu/(log(r/rw)*rw**2*Kw)+Tu/Tl))",
        {"rw": (0.05, 0.15), "r": (100, 50000), "Tu": (63070, 115600), "Hu": (990, 1110), "Tl": (63.1, 116), "Hl": (700, 820),
         "L": (1120, 1680), "Kw": (9855, 12045)},
    ),
    "OTL circuit": (
        "(12*Rb2/(Rb1+Rb2)+0.74)*B*(Rc2+9)/(B*(Rc2+9)+Rf)+11.35*Rf/(B*(Rc2+9)+Rf)+0.74*Rf*B*(Rc2+9)/((B*(Rc2+9)+Rf)*Rc1)",
        {"Rb1": (50, 150), "Rb2": (25, 70), "Rf": (0.5, 3), "Rc1": (1.2, 2.5), "Rc2": (0.25, 1.2), "B": (50, 300)},
    ),
    "piston": (
        "2*pi*sqrt(M/(k+S**2*P0*V0*Ta/(T0*((S/(2*k))*(sqrt((P0*S+19.62*M-k*V0/S)**2+4*k*P0*V0*Ta/T0)"
        "-(P0*S+19.62*M-k*V0/S)))**2)))",
        {"M": (30, 60), "S": (0.005, 0.02), "V0": (0.002, 0.01), "k": (1000, 5000), "P0": (90000, 110000), "Ta": (290, 296),
         "T0": (340, 360)},
    ),
    "wing weight": (
        "0.036*Sw**0.758*Wfw**0.0035*(A/cos(Lam)**2)**0.6*q**0.006*lam**0.04*(100*tc/cos(Lam))**(-0.3)*(Nz*Wdg)**0.49+Sw*Wp",
        {"Sw": (150, 200), "Wfw": (220, 300), "A": (6, 10), "Lam": (-0.174532925, 0.174532925), "q": (16, 45), "lam": (0.5, 1),
         "tc": (0.08, 0.18), "Nz": (2.5, 6), "Wdg": (1700, 2500), "Wp": (0.025, 0.08)},
    ),
    "Ackley, 10, [-5, 5]": _ackley(-5, 5),
    "Ackley, 10, [1, 5]": _ackley(1, 5),
    "robot arm": (
        "hypot(L1*cos(t1)+L2*cos(t1+t2)+L3*cos(t1+t2+t3)+L4*cos(t1+t2+t3+t4),"
        "L1*sin(t1)+L2*sin(t1+t2)+L3*sin(t1+t2+t3)+L4*sin(t1+t2+t3+t4))",
        {**dict.fromkeys(("t1", "t2", "t3", "t4"), (0, 2 * math.pi)), **dict.fromkeys(("L1", "L2", "L3", "L4"), (0, 1))},
    ),
    "Feynman I.8.14": ("sqrt((x2-x1)**2+(y2-y1)**2)", dict.fromkeys(("x1", "x2", "y1", "y2"), (1, 5))),
    "Black-Scholes call": (
        "S*(0.5+0.5*erf((log(S/K)+(r+s**2/2)*T)/(s*sqrt(2*T))))-K*exp(-r*T)*(0.5+0.5*erf((log(S/K)+(r-s**2/2)*T)/(s*sqrt(2*T))))",
        {"S": (80, 120), "K": (80, 120), "r": (0.01, 0.05), "s": (0.1, 0.4), "T": (0.25, 2)},
    ),
    "gravity": (
        "G*m1*m2/((x2-x1)**2+(y2-y1)**2+(z2-z1)**2)",
        {"G": (1, 2), "m1": (1, 2), "m2": (1, 2), "x1": (3, 4), "x2": (1, 2), "y1": (3, 4), "y2": (1, 2), "z1": (3, 4),
         "z2": (1, 2)},
    ),
    "softmax attention, 4 keys in 3 dimensions": (
        "(y1*exp(a1)+y2*exp(a2)+y3*exp(a3)+y4*exp(a4))/(exp(a1)+exp(a2)+exp(a3)+exp(a4))"
        .replace("a1", "(q1*0.5-q2*0.25+q3*0.1)").replace("a2", "(0.3*q1+q2*0.7-q3*0.2)")
        .replace("a3", "(-0.4*q1+0.2*q2+q3*0.6)").replace("a4", "(0.1*q1-0.6*q2-q3*0.5)"),
        {"q1": (-1, 1), "q2": (-1, 1), "q3": (-1, 1), "y1": (-1, 1), "y2": (-1, 1), "y3": (-1, 1), "y4": (-1, 1)},
    ),
    "softmax mean, 6": (
        "(y1*exp(x1)+y2*exp(x2)+y3*exp(x3))/(exp(x1)+exp(x2)+exp(x3))",
        {**{f"x{i}": (-1, 1) for i in (1, 2, 3)}, **{f"y{i}": (-1, 1) for i in (1, 2, 3)}},
    ),
    "Sobol g, 8": (
        "*".join(f"(abs(4*x{i + 1}-2)+{a})/{1 + a}" for i, a in enumerate((0, 1, 4.5, 9, 99, 99, 99, 99))),
        {f"x{i}": (0, 1) for i in range(1, 9)},
    ),
    "Feynman I.32.17": (
        "(1/2*epsilon*c*Ef**2)*(8*pi*r**2/3)*(omega**4/(omega**2-omega_0**2)**2)",
        {"epsilon": (1, 2), "c": (1, 2), "Ef": (1, 2), "r": (1, 2), "omega": (1, 2), "omega_0": (3, 5)},
    ),
    "Feynman I.40.1": ("n_0*exp(-m*g*x/(kb*T))", dict.fromkeys(("n_0", "m", "g", "x", "kb", "T"), (1, 5))),
    "Feynman I.41.16": (
        "h/(2*pi)*omega**3/(pi**2*c**2*(exp((h/(2*pi))*omega/(kb*T))-1))",
        dict.fromkeys(("omega", "T", "h", "kb", "c"), (1, 5)),
    ),
    "log-sum-exp, 20": ("log(" + "+".join(f"exp(x{i})" for i in TWENTY) + ")", {f"x{i}": (-1, 1) for i in TWENTY}),
}  # fmt: skip

PLANNED: dict[str, tuple[int, int, int]] = {
    "borehole": (26, 44, 67), "OTL circuit": (28, 47, 67), "piston": (48, 80, 113), "wing weight": (20, 27, 39),
    "robot arm": (84, 136, 183), "Ackley, 10, [-5, 5]": (327, 443, 517), "Ackley, 10, [1, 5]": (116, 180, 216),
    "Black-Scholes call": (47, 73, 105), "gravity": (16, 25, 31), "tanh network 4-16-16-1": (64, 64, 64),
    "softmax mean, 6": (39, 48, 73), "log-sum-exp, 20": (43, 65, 89),
}  # fmt: skip
"""Tokens at `ERRORS` of a prototype whose cuts were made by hand."""


@dataclass(frozen=True)
class Asked:
    """A cell: a section of the record, the name of the target, its box, its error, and how its target is made."""

    section: str
    name: str
    box: Ranges
    error: float
    target: Callable[[], Any]
    alone: str = ""  # what one layer does


def network(inner: str, *sizes: int) -> Any:
    """A random network of torch, in float64."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    parts = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), getattr(nn, inner)())]
    return nn.Sequential(*parts[:-1]).double()


NETWORKS = {
    "tanh network 4-16-16-1": ("Tanh", 4, 16, 16, 1),
    "tanh network 8-32-32-1": ("Tanh", 8, 32, 32, 1),
    "ReLU network 4-16-16-1": ("ReLU", 4, 16, 16, 1),
    "GELU network 4-8-8-1": ("GELU", 4, 8, 8, 1),
}


def known() -> list[Asked]:
    """The formulas and networks of the page's first table."""
    found = [Asked("known", name, box, error, lambda text=text: text) for name, (text, box) in CASES.items() for error in ERRORS]
    for name, sizes in NETWORKS.items():
        box = {f"x{i + 1}": (-1.0, 1.0) for i in range(int(sizes[1]))}
        found += [Asked("known", name, box, error, lambda sizes=sizes: network(*sizes)) for error in ERRORS]
    return found


def beyond() -> list[Asked]:
    """Of AI Feynman's hundred and the classical functions: what one layer refuses, or takes more than a million tokens for."""
    record, found = json.loads(FORMULAS.read_text()), []
    for group, formulas in SETS.items():
        for formula in formulas():
            for error in ERRORS:
                row = record.get(group, {}).get(formula.name, {}).get(f"{error:g}")
                served = row is not None and row["kind"] == "proved" and row.get("confirmed")
                if row is not None and served and row["tokens"] <= MANY:
                    continue
                alone = "not asked" if row is None else f"{row['tokens']:.1e}" if served else "refused"
                found.append(Asked("beyond", formula.name, formula.box, error, lambda text=formula.text: text, alone))
    return found


def decay() -> list[Asked]:
    """Three formulas from 1e-1 to 1e-9."""
    names = ("borehole", "gravity", "log-sum-exp, 20")
    return [Asked("decay", name, CASES[name][1], error, lambda text=CASES[name][0]: text) for name in names for error in NINE]


TEN_LITERAL = (
    "borehole", "OTL circuit", "gravity", "Black-Scholes call", "softmax attention, 4 keys in 3 dimensions", "Sobol g, 8",
    "log-sum-exp, 20", "tanh network 4-16-16-1", "ReLU network 4-16-16-1", "GELU network 4-8-8-1",
)  # fmt: skip


def literal() -> list[Asked]:
    """Ten stacks whose literal blocks are run in every way."""
    found = {(asked.name, asked.error): asked for asked in known()}
    return [replace(found[name, 1e-4], section="literal") for name in TEN_LITERAL]


RUN = ("gravity", "borehole", "Black-Scholes call", "robot arm", "log-sum-exp, 20", "tanh network 8-32-32-1")


def speed() -> list[Asked]:
    """Stacks whose queries are counted."""
    found = {(asked.name, asked.error): asked for asked in known()}
    return [replace(found[name, 1e-4], section="speed") for name in RUN]


SECTIONS = {"known": known, "beyond": beyond, "literal": literal, "decay": decay, "speed": speed}
