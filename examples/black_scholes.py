"""A Black-Scholes price as a frozen block inside a transformer that is trained around it.

The price of a call, in units of sqrt(forward * strike), depends on two numbers alone: x = log(forward / strike) and the total
volatility v = sigma sqrt(T),

    c(x, v) = exp(x/2) N(x/v + v/2) - exp(-x/2) N(x/v - v/2).

`ma.compile` turns this formula into one softmax attention head with a proved error.  A small transformer then reads eight quotes
of one day (log-moneyness, maturity, noisy implied volatility) and a ninth option without a quote, which it has to price.  It is
trained on prices.  Twice, from the same start, on the same days, for the same number of steps:

    with the block      the transformer's output is read as sigma, and the frozen block makes a price of it
    without             the transformer's output is the price

The transformers are the same, parameter by parameter; the block has nothing that could be trained.

    python examples/black_scholes.py [--out FOLDER] [--seeds N]
"""

import argparse
import hashlib
from pathlib import Path

import numpy as np
import torch
from scipy.special import ndtr

import maxaffine as ma

N = "(1 + erf(({}) / sqrt(2))) / 2"
CALL = f"exp(x/2) * {N.format('x/v + v/2')} - exp(-x/2) * {N.format('x/v - v/2')}"
BOX = ma.Box(x=(-0.5, 0.5), v=(0.1, 0.6))
ERROR = 1e-6
QUOTES, WIDTH, STEPS, DAYS = 8, 16, 400, 64
RATE = 0.04  # of Adam; of 0.003, 0.01, 0.03 and 0.05 the last two serve best without the block
LOW, HIGH = 0.2, 0.6  # sigma; with T from 1/4 to 1, v = sigma sqrt(T) stays in the box


def call(x: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The closed form by SciPy's normal distribution: what markets and certificates are judged by."""
    return np.exp(x / 2) * ndtr(x / v + v / 2) - np.exp(-x / 2) * ndtr(x / v - v / 2)


def market(days: int, rng: np.random.Generator) -> tuple[torch.Tensor, ...]:
    """x, T, sigma of nine options a day, sigma as quoted (the ninth is hidden later), and the ninth option's price."""
    level, skew, term = rng.uniform([0.3, -0.1, -0.1], [0.5, 0.1, 0.1], size=(days, 3)).T[:, :, None]
    x, T = rng.uniform(-0.5, 0.5, (days, QUOTES + 1)), rng.uniform(0.25, 1.0, (days, QUOTES + 1))
    sigma = level + skew * x + term * (T - 0.6)
    quoted = sigma + 0.005 * rng.normal(size=sigma.shape)
    price = call(x[:, -1], (sigma * np.sqrt(T))[:, -1])
    return tuple(torch.from_numpy(array) for array in (x, T, sigma, quoted, price))


class Pricer(torch.nn.Module):
    """A transformer over quotes; its one output is a volatility for the block, or the price itself."""

    def __init__(self, block: torch.nn.Module | None) -> None:
        super().__init__()
        self.embed = torch.nn.Linear(4, WIDTH)
        self.encode = torch.nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.read = torch.nn.Linear(WIDTH, 1)
        self.block = block  # float64 inside a float32 network; do not cast it, its certificate speaks of float64

    def forward(self, x: torch.Tensor, T: torch.Tensor, quoted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        known = torch.ones_like(x)
        known[:, -1] = 0.0  # the ninth option has no quote
        tokens = torch.stack([3.4 * x, 5 * (T.sqrt() - 0.75), 10 * (quoted - 0.4) * known, known], dim=2)
        out = self.read(self.encode(self.embed(tokens.float()))[:, -1])[:, 0].double()
        if self.block is None:
            return 0.15 + 0.15 * out, None  # prices have mean and spread of about 0.15
        sigma = LOW + (HIGH - LOW) * torch.sigmoid(out)
        return self.block(torch.stack([x[:, -1], sigma * T[:, -1].sqrt()], dim=1)), sigma


def train(block: torch.nn.Module | None, seed: int) -> tuple[Pricer, list[float]]:
    """The same start, days and steps for the same seed, with and without the block."""
    torch.manual_seed(seed)
    pricer, rng = Pricer(block), np.random.default_rng(seed)
    optimiser = torch.optim.Adam(pricer.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=STEPS)
    errors = []
    for _ in range(STEPS):
        x, T, _, quoted, price = market(DAYS, rng)
        loss = (pricer(x, T, quoted)[0] - price).square().mean()
        optimiser.zero_grad()
        (100 * loss).backward()
        optimiser.step()
        schedule.step()
        errors.append(float(loss.detach().sqrt()))
    return pricer, errors


def bits(module: torch.nn.Module) -> str:
    """A hash of every number of a module."""
    state = module.state_dict()
    return hashlib.sha256(b"".join(state[name].numpy().tobytes() for name in sorted(state))).hexdigest()


def main(out: Path, seeds: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    layer = ma.compile(CALL, BOX, error=ERROR)
    layer.save(out / "black_scholes.safetensors")  # proved a second time, by the checker, before it is written
    print(f"block      one softmax head of {layer.tokens} tokens; {layer.certificate.kind}: its error is <= {layer.bound:.2e}")
    block = layer.to_torch()
    before = bits(block)

    held = market(4000, np.random.default_rng(10**6))
    x, T, sigma, quoted, price = held
    intrinsic = (torch.exp(x[:, -1] / 2) - torch.exp(-x[:, -1] / 2)).clamp(min=0)
    print(f"task       price an option from {QUOTES} quotes; {DAYS * STEPS:,} days of training, {len(x):,} held out")
    print("seed  error with  error without  ratio  below intrinsic: with  without  sigma error (never shown)")
    rows, curves, asked = [], {True: [], False: []}, []
    for seed in range(seeds):
        row = {}
        for inside in (True, False):
            pricer, curve = train(block if inside else None, seed)
            curves[inside].append(curve)
            with torch.no_grad():
                answer, inner = pricer(x, T, quoted)
            row[inside] = float((answer - price).square().mean().sqrt())
            row["arbitrage", inside] = float((answer < intrinsic - ERROR).double().mean())
            row["parameters", inside] = sum(parameter.numel() for parameter in pricer.parameters())
            if inner is not None:
                row["sigma"] = float((inner - sigma[:, -1]).square().mean().sqrt())
                asked.append(torch.stack([x[:, -1], inner * T[:, -1].sqrt(), inner, sigma[:, -1], answer], dim=1).numpy())
        rows.append(row)
        print(
            f"{seed:4d}  {row[True]:10.5f}  {row[False]:13.5f}  {row[False] / row[True]:5.2f}  "
            f"{100 * row['arbitrage', True]:20.2f}%  {100 * row['arbitrage', False]:6.2f}%  {row['sigma']:.4f}"
        )

    # What the proof is worth after training: the same bits, and the same bound wherever the transformers looked.
    points = np.concatenate(asked)
    worst = float(np.abs(points[:, 4] - call(points[:, 0], points[:, 1])).max())
    parameters = {row["parameters", inside] for row in rows for inside in (True, False)}
    print(f"trained    {parameters.pop():,} parameters in either transformer, none in the block")
    print(f"block      same bits as before: {bits(block) == before}; worst error at {len(points):,} points asked: {worst:.2e}")
    print(f"""so         a call is worth its intrinsic value at least, and the block is within {layer.bound:.0e} of a call:
           no price of the block is lower by more, whatever the transformer says. That is proved, the table is measured.""")
    draw(layer, curves, points, out / "black_scholes.png")
    print(f"figure     {out / 'black_scholes.png'}")

    assert bits(block) == before and worst <= layer.bound <= ERROR, "the block has lost its certificate"
    assert not parameters, "the transformers differ in size"
    assert all(row[True] < 0.75 * row[False] for row in rows), "the block does not help"
    assert all(row["arbitrage", True] == 0 < row["arbitrage", False] for row in rows)


def draw(layer: ma.Compiled, curves: dict[bool, list[list[float]]], points: np.ndarray, path: Path) -> None:
    """Learning, what the transformer says to the block, and the block's error."""
    from matplotlib.figure import Figure

    from maxaffine.report.style import INK, LAYER, QUIET, TARGET, look

    with look():
        figure = Figure(figsize=(13.0, 4.0), layout="constrained")
        learning, inner, error = figure.subplots(1, 3, width_ratios=(1.1, 0.9, 1.15))
        for inside, colour, label in ((True, TARGET, "with the block"), (False, LAYER, "without")):
            smooth = np.array([np.convolve(curve, np.ones(15) / 15, mode="valid") for curve in curves[inside]])
            steps = np.arange(smooth.shape[1]) + 8
            learning.fill_between(steps, smooth.min(axis=0), smooth.max(axis=0), color=colour, alpha=0.2, lw=0)
            learning.plot(steps, smooth.mean(axis=0), color=colour, label=label)
        learning.set(title="Error of the price in training", xlabel="step", ylabel="root mean square", yscale="log")
        learning.set_yticks([0.003, 0.01, 0.03, 0.1], ["0.003", "0.01", "0.03", "0.1"], minor=False)
        learning.legend()
        inner.plot([LOW, HIGH], [LOW, HIGH], color=QUIET, lw=0.8)
        inner.plot(points[:1500, 3], points[:1500, 2], ".", ms=2, color=TARGET, alpha=0.5)
        inner.set(title="Never shown: sigma", xlabel="true sigma of the option", ylabel="what the block is asked", aspect="equal")
        x, v = np.meshgrid(np.linspace(-0.5, 0.5, 201), np.linspace(0.1, 0.6, 201))
        wrong = np.abs(layer(np.column_stack([x.ravel(), v.ravel()])) - call(x, v).ravel()).reshape(x.shape)
        image = error.pcolormesh(x, v, wrong, cmap="magma", vmin=0, vmax=layer.bound, rasterized=True)
        error.plot(points[:600, 0], points[:600, 1], ".", ms=1.5, color="white", alpha=0.6)
        error.set(title=f"|block - c|, proved <= {layer.bound:.1e}; dots: asked", xlabel="x = log(forward / strike)", ylabel="v")
        error.title.set_color(INK)
        figure.colorbar(image, ax=error, shrink=0.9)
        figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the layer and the figure")
    parser.add_argument("--seeds", type=int, default=3, help="how many starts")
    arguments = parser.parse_args()
    main(arguments.out, arguments.seeds)
