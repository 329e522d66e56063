"""Experiment 17, ramp universality: nets of ramps refined until a proved bound meets the error asked for, in three forms."""

from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.lab.experiment import (
    REPRODUCED,
    Context,
    Experiment,
    Parameters,
    Result,
    Rows,
    Table,
    Unit,
    Verdict,
    select,
    sweep,
)
from maxaffine.lab.figures import figure
from maxaffine.ramp.compare import compare_per_token
from maxaffine.ramp.net import piecewise_linear
from maxaffine.report.style import CURVES, logarithmic

# a function of the line with a bound of its second derivative, and as an expression
TARGETS = {
    "wave": (lambda x: np.sin(2 * np.pi * x) + 0.3 * np.cos(7 * x), 4 * np.pi**2 + 14.7, "sin(2*pi*x) + 0.3*cos(7*x)"),
    "bell": (lambda x: np.exp(-8 * (x - 0.4) ** 2), 16.0, "exp(-8*(x - 0.4)**2)"),
}


def units(parameters: Parameters) -> list[dict[str, Any]]:
    """Nets by target, error and form; compiled layers; and the comparison per token."""
    made = sweep(
        "net-{target}-{error:g}-{layers}", way=["net"], target=TARGETS, error=parameters["errors"], layers=[1, 2, "softmax"]
    )
    made += sweep("compiled-{target}-{error:g}", way=["compiled"], target=TARGETS, error=parameters["compiled"])
    made += sweep("tokens-line-{m}", way=["line"], m=parameters["tokens"])
    return made + sweep("tokens-square-{m}", way=["square"], m=parameters["squares"])


def run(unit: Unit, parameters: Parameters, context: Context) -> Result:
    """One net with its bound, its error and its matrices; or one layer proved twice; or one comparison."""
    if unit["way"] == "line":
        return Result({"errors": compare_per_token(TARGETS["wave"][0], (0, 1), unit["m"]).errors})
    if unit["way"] == "square":
        box = ((-np.pi, np.pi), (-np.pi, np.pi))
        return Result({"errors": compare_per_token(lambda x, y: np.sin(x) + np.cos(y), box, unit["m"]).errors})
    f, bend, text = TARGETS[unit["target"]]
    x = np.linspace(0, 1, 20_001)
    if unit["way"] == "compiled":
        import maxaffine as ma
        from maxaffine.checker import check

        layer = ma.compile(text, ma.Box(x=(0, 1)), error=unit["error"], method="ramp")
        tensors, record = layer._record()
        said = check(tensors, record)
        return Result({"tokens": layer.tokens, "bound": layer.bound, "checked": said.bound, "passed": said.passed,
                       "measured": float(np.abs(layer(x[:, None]).ravel() - f(x)).max())})  # fmt: skip
    for m in range(4, 4096):
        net = piecewise_linear(f, (0, 1), m, layers=unit["layers"], readout=max(200, 8 * m))
        bound = net.bound(bend / 8 / m**2)
        if bound <= unit["error"]:
            break
    literal = net.as_matrices()
    some = np.random.default_rng(0).uniform(0, 1, 20)
    apart = max(abs(literal(v) - float(net(v)[0])) for v in some)
    return Result({"tokens": net.tokens, "bound": bound, "measured": float(np.abs(net(x) - f(x)).max()), "literal": apart})


def verdict(results: Rows, parameters: Parameters) -> Verdict:
    """The rule of the experiment, applied."""
    nets, compiled = select(results, way="net"), select(results, way="compiled")
    errors = [row["unit"]["error"] for row in results if row["unit"]["way"] in ("net", "compiled")]
    met = all(v["measured"] <= v["bound"] <= error for v, error in zip(nets + compiled, errors, strict=True))
    confirmed = all(v["passed"] and v["measured"] <= v["checked"] for v in compiled)
    literal = max(v["literal"] for v in nets)
    numbers = {
        "nets": len(nets), "compiled layers": len(compiled), "literal against factorised": literal,
        "largest measured / proved": max(v["measured"] / v["bound"] for v in nets + compiled),
        "confirmed by the checker": confirmed,
    }  # fmt: skip
    told = (
        f"All {len(nets)} nets and {len(compiled)} compiled layers are proved to their error and measured below their bound"
        if met else "Some net misses its error or lies above its bound"
    )  # fmt: skip
    said = "confirms" if confirmed else "does not confirm"
    told += f"; literal matrices differ by {literal:.1e}, and the checker {said} every compiled layer."
    return Verdict(REPRODUCED if met and confirmed and literal < 1e-12 else "not reproduced", told, numbers)


def table(results: Rows, parameters: Parameters) -> Table:
    """Nets and layers, then errors per token."""
    header = ("run", "tokens", "proved", "measured", "literal - factorised or checked")
    rows: list[Any] = []
    for row in results:
        v = row["values"]
        if "bound" in v:
            rows.append((row["unit"]["id"], v["tokens"], v["bound"], v["measured"], v.get("literal", v.get("checked"))))
        else:
            rows += [(f"{row['unit']['id']}: {name}", row["unit"]["m"], "-", error, "-") for name, error in v["errors"].items()]
    return Table(header, tuple(rows))


def draw(results: Rows, parameters: Parameters, path: Path) -> None:
    """Tokens against error, and errors per token on the line and on the square."""
    with figure(path, "Universality with constants", verdict(results, parameters), 1, 3, (13.0, 5.0)) as (_, grid):
        axes = grid[0][0]
        for k, (target, way) in enumerate((target, way) for target in TARGETS for way in ("net", "compiled")):
            mine = [row for row in results if row["unit"].get("target") == target and row["unit"]["way"] == way]
            mine = [row for row in mine if row["unit"].get("layers", 1) == 1]
            errors, tokens = ([row["unit"]["error"] for row in mine], [row["values"]["tokens"] for row in mine])
            axes.plot(errors, tokens, "o-", ms=4, lw=1, color=CURVES[k],
                      label=f"{target}, {'one layer' if way == 'net' else 'compiled'}")  # fmt: skip
        axes.set(xlabel="error, proved", title="tokens")
        logarithmic(axes)
        axes.legend(fontsize=7)
        for axes, way in zip(grid[0][1:], ("line", "square"), strict=True):
            mine = [row for row in results if row["unit"]["way"] == way]
            for k, name in enumerate(mine[0]["values"]["errors"] if mine else ()):
                said = [max(row["values"]["errors"][name], 1e-15) for row in mine]
                axes.plot([row["unit"]["m"] for row in mine], said, "o-", ms=3, lw=1,
                          color=CURVES[k % 8], label=name)  # fmt: skip
            axes.set(xlabel="tokens", title=f"sup error on the {way}, observed")
            logarithmic(axes)
            axes.legend(fontsize=6)


EXPERIMENT = Experiment.described(__file__, units, run, verdict, draw, table)
