"""A formula as a starting point: a compiled layer is fine-tuned on noisy measurements of something the formula only resembles.

Textbooks say that an enzyme with a competitive inhibitor works at the rate  s / (s + 1 + i)  (Michaelis and Menten; amounts of
substrate s and inhibitor i in units of their constants).  `ma.compile` makes a softmax attention head of that.  The enzyme on the
bench is another: it cooperates (Hill exponent 1.4), is 5% faster, and minds the inhibitor less,

    1.05 s^1.4 / (s^1.4 + 1 + i / 1.5).

Sixty noisy measurements of it are at hand, all of them with little inhibitor, i < 1.  `layer.to_torch(trainable=True)` turns keys
and values into parameters, and Adam does the rest.  The same head is also trained from a random start, on the same measurements,
for the same number of steps; each of the two picks its learning rate and the step to stop at by the same held-back measurements.

A certificate speaks of the numbers it was made for: after one step of training it is gone, and all errors below are observed.

    python examples/fine_tune.py [--out FOLDER] [--seeds N]
"""

import argparse
import copy
from pathlib import Path

import numpy as np
import torch

import maxaffine as ma

BOX = ma.Box(s=(0.1, 4), i=(0, 3))
MEASURED, HELD_BACK, NOISE = 45, 15, 0.03
STEPS, RATES = 100, (0.01, 0.03, 0.1, 0.3)


def enzyme(x: torch.Tensor) -> torch.Tensor:
    """The rate of the enzyme on the bench; x holds s and i."""
    s, i = x[:, 0] ** 1.4, x[:, 1]
    return 1.05 * s / (s + 1 + i / 1.5)


def measurements(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points with i < 1, and noisy rates there."""
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.uniform([0.1, 0.0], [4.0, 1.0], size=(MEASURED + HELD_BACK, 2)))
    return x, enzyme(x) + NOISE * torch.from_numpy(rng.normal(size=len(x)))


def train(module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, rate: float) -> float:
    """Adam; the module is left as it was when it did best on the measurements held back. Returns how well."""
    optimiser = torch.optim.Adam(module.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    best, kept = np.inf, module.state_dict()
    for step in range(STEPS + 1):
        if step % 5 == 0:
            with torch.no_grad():
                score = float((module(x[MEASURED:]) - y[MEASURED:]).square().mean())
            if score < best:
                best, kept = score, copy.deepcopy(module.state_dict())
        loss = (module(x[:MEASURED]) - y[:MEASURED]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    module.load_state_dict(kept)
    return best


def scramble(module: torch.nn.Module, seed: int) -> None:
    """A random start for the same head."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.normal_(std=0.3 if "value" in name else 1.0)


def trained(layer: ma.Compiled, seed: int, random: bool) -> torch.nn.Module:
    """The head after training, with the learning rate that did best on what was held back."""
    x, y = measurements(seed)
    tries = []
    for rate in RATES:
        module = layer.to_torch(trainable=True)
        if random:
            scramble(module, seed)
        tries.append((train(module, x, y, rate), rate, module))
    return min(tries, key=lambda one: one[:2])[2]


def errors(module: torch.nn.Module) -> tuple[float, float]:
    """Root mean square error against the noiseless enzyme: where it was measured (i < 1), and where it never was."""
    x = torch.from_numpy(np.random.default_rng(10**6).uniform(BOX.low, BOX.high, size=(4000, 2)))
    with torch.no_grad():
        wrong = (module(x) - enzyme(x)).square()
    seen = x[:, 1] < 1
    return float(wrong[seen].mean().sqrt()), float(wrong[~seen].mean().sqrt())


def main(out: Path, seeds: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    layer = ma.compile("s / (s + 1 + i)", BOX, error=1e-2)
    module = layer.to_torch(trainable=True)
    count = sum(parameter.numel() for parameter in module.parameters())
    print(f"layer      the textbook's rate in {layer.tokens} tokens, {count} numbers; error <= {layer.bound:.1e}, proved")
    assert layer.certificate.kind == "proved"
    before = errors(module)
    heads = [{name: trained(layer, seed, name == "random") for name in ("compiled", "random")} for seed in range(seeds)]
    after = {name: np.array([errors(pair[name]) for pair in heads]) for name in ("compiled", "random")}
    print(f"error against the enzyme, {seeds} sets of measurements (noise {NOISE}): mean and standard deviation")
    print("                                   where measured (i < 1)   elsewhere (i > 1)")
    print(f"as compiled                        {before[0]:.4f}                   {before[1]:.4f}")
    for name in ("compiled", "random"):
        mean, spread = after[name].mean(axis=0), after[name].std(axis=0, ddof=1)
        words = f"trained from the {name} start"
        print(f"{words:<34} {mean[0]:.4f} +- {spread[0]:.4f}         {mean[1]:.4f} +- {spread[1]:.4f}")
    gain = before / after["compiled"]
    wins = (after["compiled"] < after["random"]).sum(axis=0)
    here, there = (f"{g.mean():.1f} ({g.min():.1f} to {g.max():.1f})" for g in gain.T)
    print(f"so         fine-tuning divides the layer's own error by {here} where it was measured and by {there} elsewhere;")
    print(f"           it beats the random start {wins[0]} times of {seeds} where it was measured and {wins[1]} times elsewhere")
    draw(layer, heads[0], before, after, out / "fine_tune.png")
    print(f"figure     {out / 'fine_tune.png'}")

    assert (gain[:, 0] > 2).all() and gain[:, 1].mean() > 1.5, "fine-tuning must improve on the layer's own initialisation"
    assert (after["compiled"].mean(axis=0) < after["random"].mean(axis=0)).all(), "the compiled start must be the better one"


def draw(
    layer: ma.Compiled, pair: dict[str, torch.nn.Module], before: tuple[float, float], after: dict[str, np.ndarray], path: Path
) -> None:
    """Two slices, and the errors of all seeds."""
    from matplotlib.figure import Figure

    from maxaffine.report.style import INK, LAYER, QUIET, TARGET, look

    x, y = measurements(0)
    s = torch.linspace(0.1, 4, 200, dtype=torch.float64)
    with look():
        figure = Figure(figsize=(13.0, 4.0), layout="constrained")
        panels = figure.subplots(1, 3)
        for axes, i, title in ((panels[0], 0.5, "Measured here: i = 0.5"), (panels[1], 2.5, "Never measured: i = 2.5")):
            line = torch.stack([s, torch.full_like(s, i)], dim=1)
            if i < 1:
                near = (x[:, 1] - i).abs() < 0.25
                axes.plot(x[near, 0], y[near], "o", ms=3, color=QUIET, label="measurements, i from 0.25 to 0.75")
            axes.plot(s, enzyme(line), color=INK, lw=2.5, alpha=0.35, label="the enzyme")
            axes.plot(s, layer(line.numpy()), color=TARGET, ls="--", lw=1.2, label="as compiled: the textbook")
            with torch.no_grad():
                axes.plot(s, pair["compiled"](line), color=TARGET, lw=1.6, label="fine-tuned")
                axes.plot(s, pair["random"](line), color=LAYER, lw=1.2, label="from a random start")
            axes.set(title=title, xlabel="s", ylabel="rate", ylim=(0, 1))
        panels[0].legend(loc="lower right")
        for place, (column, region) in enumerate(((0, "i < 1"), (1, "i > 1"))):
            panels[2].hlines(before[column], place - 0.3, place + 0.3, color=TARGET, ls="--")
            for shift, name, colour in ((-0.12, "compiled", TARGET), (0.12, "random", LAYER)):
                where = np.full(len(after[name]), place + shift)
                panels[2].plot(where, after[name][:, column], "o", ms=5, color=colour, alpha=0.6)
            panels[2].text(place, -0.02, region, transform=panels[2].get_xaxis_transform(), ha="center", va="top")
        panels[2].set(title="All sets of measurements; dashed: as compiled", ylabel="root mean square")
        panels[2].set(xticks=[], xlim=(-0.6, 1.6), ylim=(0, None))
        figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the figure")
    parser.add_argument("--seeds", type=int, default=8, help="how many sets of measurements")
    arguments = parser.parse_args()
    main(arguments.out, arguments.seeds)
