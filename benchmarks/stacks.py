"""Known formulas as stacks at three errors: layers, tokens, what is proved, confirmed and observed; a table for docs/stacks.md.

    python benchmarks/stacks.py [--only NAME] [--write]

With --only the other rows of the page stay.  Errors are in units of the formula's largest value.  Seconds are of this process,
for the compile alone.
"""

import argparse
import math
import re
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import maxaffine as ma

PAGE = Path(__file__).resolve().parent.parent / "docs" / "stacks.md"
ERRORS = (1e-2, 1e-4, 1e-6)
TEN, TWENTY = range(1, 11), range(1, 21)
Case = tuple[str, dict[str, tuple[float, float]]]


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


def row(name: str, target: Any, box: dict[str, tuple[float, float]], error: float) -> str:
    """One line of the table."""
    begun = time.process_time()
    try:
        stack = ma.compile(target, ma.Box(**box), error=error, relative=True, layers="auto")
    except ma.Refused as refusal:
        took = f"{time.process_time() - begun:.1f}"
        return f"| {name} | {len(box)} | {error:g} | | | | | | {took} | refused: {refusal.reason[:110]} |"
    seconds = time.process_time() - begun
    passed, unit, layers = stack.check().passed, error / stack.error, getattr(stack, "layers", 1)
    longest = max((node.tokens for node in getattr(stack, "nodes", ())), default=stack.tokens)
    assert stack.bound is not None
    return (
        f"| {name} | {len(box)} | {error:g} | {layers} | {stack.tokens:,} | {longest:,} | {stack.bound * unit:.1e} | "
        f"{stack.observed.error * unit:.1e} | {seconds:.1f} | {'yes' if passed else 'no'} |"
    )


def networks() -> dict[str, tuple[Any, int]]:
    """Random networks of torch, and their inputs."""
    import torch
    from torch import nn

    torch.manual_seed(0)

    def made(inner: Any, *sizes: int) -> Any:
        parts = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), inner())]
        return nn.Sequential(*parts[:-1]).double()

    return {
        "tanh network 4-16-16-1": (made(nn.Tanh, 4, 16, 16, 1), 4),
        "tanh network 8-32-32-1": (made(nn.Tanh, 8, 32, 32, 1), 8),
        "ReLU network 4-16-16-1": (made(nn.ReLU, 4, 16, 16, 1), 4),
    }


def key_of(line: str) -> tuple[str, ...]:
    """Formula, variables and error of a line of the table."""
    return tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:4])


def main() -> None:
    """The table, printed; with --write put between the marks of the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    head = "| formula | variables | error | layers | tokens | longest head | proved | observed | s | confirmed |"
    before = PAGE.read_text().split("<!-- stacks -->")[1].split("<!-- /stacks -->")[0].strip().splitlines()[2:]
    known = {key_of(line): line for line in before}
    lines = [head, "|" + "---|" * 10]
    cases: dict[str, tuple[Any, dict[str, tuple[float, float]]]] = dict(CASES)
    cases |= {name: (net, {f"x{i + 1}": (-1, 1) for i in range(D)}) for name, (net, D) in networks().items()}
    for name, (target, box) in cases.items():
        for error in ERRORS:
            if given.only not in (None, name):
                lines += [known[key] for key in [(name, str(len(box)), f"{error:g}")] if key in known]
                continue
            lines.append(row(name, target, box, error))
            print(lines[-1], flush=True)
    if given.write:
        table = "<!-- stacks -->\n" + "\n".join(lines) + "\n<!-- /stacks -->"
        PAGE.write_text(re.sub(r"<!-- stacks -->.*?<!-- /stacks -->", lambda _: table, PAGE.read_text(), flags=re.DOTALL))


if __name__ == "__main__":
    main()
