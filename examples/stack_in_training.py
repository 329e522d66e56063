"""A stack in training: a formula with one wrong constant is corrected by data, and a formula is a frozen block of a transformer.

The pressure of a gas by van der Waals, p = n R T/(V - n b) - a n^2/V^2, here of nitrogen, with litres, bars and moles.

1. Somebody took the wrong b, that of another gas.  The formula becomes a stack of attention layers with a proved error,
   `stack.to_torch(trainable=True)` makes the linear maps between the layers trainable, and eighty noisy measurements do the rest.
   b is then read off the first map: that layer computes 1/(V - n b).  Compiled with it, the formula has a proved error again.
2. A gauge of unknown offset reads nine states of the gas; a small transformer that sees eight readings predicts the
   ninth.  It is trained with the stack as a frozen block, which adds the pressure of every state to its stream, and without.

    python examples/stack_in_training.py [--out FOLDER] [--seeds N]
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

import maxaffine as ma
from maxaffine.stack.torch_stack import StackModule

BOX = ma.Box(n=(0.5, 2), T=(280, 400), V=(0.2, 1.05))
GAS = "n*0.083145*T/(V - n*{b}) - 1.370*n**2/V**2"
RIGHT, WRONG = 0.0387, 0.0600
MEASURED, NOISE = 80, 0.01
STATES, BATCH, STEPS, RATE, WIDTH = 9, 64, 250, 1e-2, 32


def pressure(x: torch.Tensor) -> torch.Tensor:
    """The right formula; x holds n, T, V."""
    n, T, V = x.unbind(-1)
    return n * 0.083145 * T / (V - n * RIGHT) - 1.370 * n**2 / V**2


def states(count: int, seed: int) -> torch.Tensor:
    """Random states of the gas, a little inside the box."""
    low, high = BOX.low, np.array([2.0, 400.0, 1.0])
    return torch.from_numpy(np.random.default_rng(seed).uniform(low, high, size=(count, 3)))


def relative(module: nn.Module, x: torch.Tensor) -> float:
    """Root mean square of the relative error."""
    with torch.no_grad():
        return float(((module(x) - pressure(x)) / pressure(x)).square().mean().sqrt())


def constant(module: StackModule, stack: ma.Stack) -> float:
    """b, by the map in front of the head that reads n and V."""
    n, V = (stack.box.names.index(name) for name in ("n", "V"))
    rows = torch.cat([block.before.weight.detach()[:, :3] for block in module.blocks])  # type: ignore[operator,union-attr,index]
    (row,) = (row for row in rows if row[n] != 0 and row[V] != 0)
    return float(-row[n] / row[V])


def corrected(stack: ma.Stack, seed: int) -> StackModule:
    """The stack after training its linear maps on noisy measurements."""
    x = states(MEASURED, seed)
    y = pressure(x) * (1 + NOISE * torch.from_numpy(np.random.default_rng(seed + 1).normal(size=MEASURED)))
    module = stack.to_torch(trainable=True)
    maps = [block.before.weight for block in module.blocks]  # type: ignore[union-attr]
    optimiser = torch.optim.LBFGS(maps, max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        found = ((module(x) - y) / y).square().mean()
        found.backward()
        return found

    optimiser.step(loss)
    return module


class Gauge(nn.Module):
    """A transformer that reads (n, T, V, reading or 0) nine times and says what the last reading is."""

    def __init__(self, block: nn.Module | None) -> None:
        super().__init__()
        self.block = block
        self.embed = nn.Linear(5, WIDTH)
        self.added = nn.Linear(1, WIDTH, bias=False)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.said = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor, readings: torch.Tensor) -> torch.Tensor:
        """The last reading (B,) from states (B, 9, 3) and readings (B, 9), whose last is not looked at."""
        scaled = (x - torch.from_numpy(BOX.centre)) / torch.from_numpy(BOX.high - BOX.low)
        known = torch.cat([readings[:, :-1], torch.zeros_like(readings[:, :1])], dim=1) / 100
        asked = torch.zeros_like(known)
        asked[:, -1] = 1.0
        stream = self.embed(torch.cat([scaled, known[..., None], asked[..., None]], dim=-1).float())
        if self.block is not None:
            p = self.block(x.reshape(-1, 3)).reshape(x.shape[:-1])
            stream = stream + self.added((p[..., None] / 100).float())
        return 100 * self.said(self.layers(stream)[:, -1])[:, 0].double()


def day(seed: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """States, and readings of gauges of random offset."""
    x = states(count * STATES, seed).reshape(count, STATES, 3)
    return x, pressure(x) + torch.from_numpy(np.random.default_rng(seed + 7).uniform(-50.0, 50.0, size=(count, 1)))


def trained(block: nn.Module | None, seed: int) -> float:
    """Root mean square error in bars on new days, after training."""
    torch.manual_seed(seed)
    model = Gauge(block)
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=STEPS)
    for step in range(STEPS):
        x, y = day(1000 * seed + 10 * step, BATCH)
        loss = (model(x, y) - y[:, -1]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    x, y = day(10**8 + seed, 1000)
    with torch.no_grad():
        return float((model(x, y) - y[:, -1]).square().mean().sqrt())


def main(out: Path, seeds: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    wrong = ma.compile(GAS.format(b=WRONG), BOX, error=1e-3, relative=True, layers="auto")
    assert isinstance(wrong, ma.Stack) and wrong.bound is not None
    x = states(2000, 99)
    before = relative(wrong.to_torch(), x)
    print(f"stack      {wrong.layers} layers, {wrong.tokens} tokens, b = {WRONG}; error <= {wrong.bound:.2g} bar, proved")
    modules = [corrected(wrong, seed) for seed in range(seeds)]
    found, after = [constant(one, wrong) for one in modules], [relative(one, x) for one in modules]
    numbers = sum(int((block.before.weight != 0).sum()) for block in modules[0].blocks)
    print(f"training   {MEASURED} measurements with {NOISE:.0%} noise, {numbers} numbers of the linear maps")
    print(f"against the right formula: {before:.2%} before, " + ", ".join(f"{one:.2%}" for one in after) + " after")
    print(f"b          {', '.join(f'{one:.4f}' for one in found)}; the right one is {RIGHT}")
    print(f"statement  {modules[0].statement}")
    again = ma.compile(GAS.format(b=f"{found[0]:.4f}"), BOX, error=1e-3, relative=True, layers="auto")
    assert again.bound is not None
    close = relative(again.to_torch(), x)
    print(f"again      compiled with b = {found[0]:.4f}: error <= {again.bound:.2g} bar, proved; {close:.2%} from the right one")

    right = ma.compile(GAS.format(b=RIGHT), BOX, error=1e-4, relative=True, layers="auto")
    block = right.to_torch()
    bits = [p.clone() for p in block.parameters()]
    gauges = np.array([[trained(block, seed), trained(None, seed)] for seed in range(seeds)])
    same = all(torch.equal(a, b) for a, b in zip(bits, block.parameters(), strict=True))
    print(f"gauge      after {STEPS} steps, bars: " + ", ".join(f"{a:.2f}" for a in gauges[:, 0]) + " with the block, ", end="")
    print(", ".join(f"{a:.2f}" for a in gauges[:, 1]) + f" without; the block's numbers are the same: {same}")
    draw(wrong, modules[0], gauges, out / "stack_in_training.png")
    print(f"figure     {out / 'stack_in_training.png'}")

    nearer = [abs(one - RIGHT) < abs(WRONG - RIGHT) / 5 for one in found]
    assert max(after) < before / 3 and all(nearer), "data correct the constant"
    assert modules[0].statement is not None and not modules[0].statement.covered, "a trained module states nothing"
    assert (gauges[:, 0] < gauges[:, 1]).all() and same, "the block helps, and stays as it was"


def draw(wrong: ma.Stack, tuned: nn.Module, gauges: np.ndarray, path: Path) -> None:
    """A slice before and after, the relative errors, and the gauges."""
    from matplotlib.figure import Figure

    from maxaffine.report.style import INK, LAYER, TARGET, look

    V = torch.linspace(0.2, 1.0, 200, dtype=torch.float64)
    line = torch.stack([torch.full_like(V, 1.8), torch.full_like(V, 320.0), V], dim=1)
    with torch.no_grad():
        sides = {"as compiled, wrong b": (wrong(line.numpy()), LAYER), "after training": (tuned(line).numpy(), TARGET)}
    exact = pressure(line).numpy()
    with look():
        figure = Figure(figsize=(13.0, 3.8), layout="constrained")
        panels = figure.subplots(1, 3)
        panels[0].plot(V, exact, color=INK, lw=3, alpha=0.3, label="the gas")
        for name, (values, colour) in sides.items():
            panels[0].plot(V, values, color=colour, lw=1.4, label=name)
            panels[1].plot(V, 100 * (values / exact - 1), color=colour, lw=1.4)
        panels[0].legend()
        panels[0].set(title="1.8 moles at 320 K", xlabel="litres", ylabel="bar", ylim=(0, None))
        panels[1].set(title="The same, error in percent", xlabel="litres")
        for place, (name, colour) in enumerate((("with the block", TARGET), ("without", LAYER))):
            panels[2].bar(np.arange(len(gauges)) + 0.38 * place, gauges[:, place], 0.36, color=colour, label=name)
        panels[2].set(title="Gauge: error on new days, bar", xticks=[], xlabel="one pair of bars per seed")
        panels[2].legend()
        figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the figure")
    parser.add_argument("--seeds", type=int, default=3, help="how many sets of measurements, and of gauges")
    arguments = parser.parse_args()
    main(arguments.out, arguments.seeds)
