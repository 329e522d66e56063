"""The six figures of docs/ramp.md. Needs matplotlib, imported when something is drawn."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.core.progress import Progress, silent
from maxaffine.ramp.compare import compare_per_token
from maxaffine.ramp.constants import BEST, joint, kappa
from maxaffine.ramp.head import ramp_head, ramp_heads
from maxaffine.ramp.ridge import ridge_fit
from maxaffine.report import style

HARD = 400.0


def _wave(x: Array) -> Array:
    return np.asarray(np.sin(2 * np.pi * x) + 0.3 * np.cos(7 * x))


def _sum(x: Array, y: Array) -> Array:
    return np.asarray(np.sin(x) + np.cos(y))


def error_of_a_ramp(path: Path) -> None:
    """A ramp of eight steps and its error for three sharpnesses."""
    s = np.linspace(-0.4, 1.4, 4001)
    with style.sheet(path, (10.0, 4.2), 1, 2) as (figure, ((left, right),)):
        for colour, (rho, name) in zip(style.CURVES, ((3.0, "ρ = 3"), (BEST, "ρ = 5.44"), (HARD, "hard")), strict=False):
            head = ramp_head(0, 1, 8, rho)
            left.plot(s, head(s), color=colour, lw=1.5, label=name)
            right.plot(s, (head(s) - head.ramp(s)) / head.step, color=colour, lw=1.3)
        sites = ramp_head(0, 1, 8).sites
        left.plot(sites, sites, "o", ms=4, color=style.INK, label="sites = values")
        left.set(xlabel="s = w·x + t", title="A head of nine tokens")
        right.set(xlabel="s = w·x + t", title="its error, in steps")
        left.legend()
        style.headline(figure, "A softmax head that says min(max(s, 0), 1)")


def best_sharpness(path: Path) -> None:
    """kappa against rho."""
    rhos = np.sort(np.append(np.geomspace(0.6, 100, 120), [BEST]))
    with style.sheet(path, (7.6, 4.4)) as (figure, ((axes,),)):
        axes.plot(rhos, [kappa(float(rho)) for rho in rhos], color=style.BLUE, lw=1.8, label="κ(ρ), one head, proved")
        axes.plot(rhos, [joint(float(rho)) for rho in rhos], color=style.GREEN, lw=1.2, ls="--", label="where two meet, proved")
        axes.axhline(0.5, color=style.QUIET, lw=0.8, label="a hard head: 1/2")
        axes.plot([BEST], [kappa()], "o", color=style.RED, label=f"ρ = {BEST}: {kappa():.4f}")
        axes.set(xlabel="sharpness ρ", ylabel="sup error in steps", ylim=(0.005, 1))
        style.logarithmic(axes)
        axes.legend()
        style.headline(figure, "An eighth of the error of a hard head, at the right sharpness")


def rates(path: Path) -> None:
    """Sup errors against p, and against n H."""
    counts = 2 ** np.arange(2, 11)
    with style.sheet(path, (10.0, 4.4), 1, 2) as (figure, ((left, right),)):
        for colour, rho in zip(style.CURVES, (3.0, BEST, HARD), strict=False):
            name = "hard" if rho == HARD else f"ρ = {rho:g}"
            errors = []
            for p in counts:
                head = ramp_head(0, 1, int(p), rho)
                s = np.linspace(-2, 4, 6145) / p
                errors.append(np.abs(head(s) - head.ramp(s)).max())
            left.plot(counts, errors, "o", ms=4, color=colour, label=name)
            left.plot(counts, kappa(rho) / counts, color=colour, lw=0.9)
            sizes, found = [], []
            for n, H in ((4, 1), (4, 4), (8, 4), (16, 4), (16, 16), (50, 16)):
                heads = ramp_heads(0, 1, n, H, rho)
                s = heads.step * np.linspace(-2, 3 * n, 6145)
                sizes.append(H * (n - 1))
                found.append(np.abs(heads(s) - heads.ramp(s)).max())
            right.plot(sizes, found, "s", ms=4, color=colour)
            right.plot(sizes, max(kappa(rho), joint(rho)) / np.array(sizes), color=colour, lw=0.9)
        left.set(xlabel="steps p of one head", ylabel="sup error / (b - a)", title="one head of p + 1 tokens")
        right.set(xlabel="H (n - 1)", title="H heads of n tokens")
        left.legend()
        for axes in (left, right):
            style.logarithmic(axes)
        style.headline(figure, "Measured (dots) and proved (lines): both errors fall like one over the steps in all")


def error_per_token(path: Path) -> None:
    """All heads of the same number of tokens, in one and in two variables."""
    line = [compare_per_token(_wave, (0, 1), m) for m in (8, 16, 32, 64)]
    square = [compare_per_token(_sum, ((-np.pi, np.pi),) * 2, m) for m in (64, 100, 144, 256)]
    with style.sheet(path, (12.0, 5.2), 1, 2) as (figure, grid):
        for axes, rows, title in zip(grid[0], (line, square), ("sin 2πx + .3 cos 7x", "sin x + cos y"), strict=True):
            for k, name in enumerate(rows[0].errors):
                look = {"color": style.CURVES[k % 8], "lw": 1.3, "ms": 4, "marker": "o" if k < 4 else "s"}
                axes.plot([row.m for row in rows], [max(row.errors[name], 1e-15) for row in rows], label=name, **look)
            axes.set(xlabel="tokens", ylabel="sup error", title=title)
            style.logarithmic(axes)
            axes.legend(fontsize=7)
        style.headline(figure, "What a token is worth: ramps beside lookups and spectral heads (observed)")


def slabs(path: Path) -> None:
    """Where ridge heads and a grid change their mind."""
    with style.sheet(path, (9.6, 4.6), 1, 2) as (figure, ((left, right),)):
        rng = np.random.default_rng(0)
        X = rng.uniform(-np.pi, np.pi, (400, 2))
        net = ridge_fit(X, _sum(X[:, 0], X[:, 1]), 8, p=8)
        x = np.linspace(-np.pi, np.pi, 400)
        grid = np.stack(np.meshgrid(x, x), axis=-1).reshape(-1, 2)
        for k in range(8):
            t = (grid @ net.w[k] + net.t[k]).reshape(400, 400) * net.p
            left.contour(x, x, t, levels=np.arange(net.p) + 0.5, colors=style.CURVES[k], linewidths=0.9)
        left.set(title="8 ridge heads: slabs that add", aspect="equal")
        for edge in np.linspace(-np.pi, np.pi, 9):
            right.axhline(edge, color=style.INK, lw=0.9)
            right.axvline(edge, color=style.INK, lw=0.9)
        right.set(title="a lookup of 64 tokens: cells that multiply", aspect="equal", xlim=(-np.pi, np.pi), ylim=(-np.pi, np.pi))
        style.headline(figure, "Slabs of ridge heads against cells of a grid")


def heat_map(path: Path) -> None:
    """Attention of a ramp head: which site answers to which s."""
    s = np.linspace(-0.3, 1.3, 400)
    with style.sheet(path, (10.0, 4.4), 1, 2) as (figure, grid):
        for axes, rho in zip(grid[0], (BEST, 60.0), strict=True):
            head = ramp_head(0, 1, 16, rho)
            image = axes.pcolormesh(s, np.arange(17), head.weights(s).T, cmap=style.VALUES, vmin=0, vmax=1, rasterized=True)
            axes.set(xlabel="s = w·x + t", ylabel="site k", title=f"ρ = {rho:g}, β = {head.beta:.0f}")
            axes.grid(False)
            figure.colorbar(image, ax=axes, shrink=0.85)
        style.headline(figure, "Attention of a ramp head: all arguments beyond an end look at its last site")


# name: what it shows, and who draws it to a path
FIGURES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "ramp-1-error": ("a ramp and its error for three sharpnesses", error_of_a_ramp),
    "ramp-2-kappa": ("the error in steps against the sharpness", best_sharpness),
    "ramp-3-rates": ("sup error against p and n H", rates),
    "ramp-4-tokens": ("error per token of all heads, in one and two variables", error_per_token),
    "ramp-5-slabs": ("slabs of ridge heads against cells of a grid", slabs),
    "ramp-6-attention": ("attention of a ramp head", heat_map),
}


def draw_all(folder: Path | str, names: Sequence[str] | None = None, progress: Progress = silent) -> list[Path]:
    """Draw figures into a folder as PNG; all six unless named."""
    wanted = list(FIGURES) if names is None else list(names)
    for name in wanted:
        if name not in FIGURES:
            raise BadInput(f"`names` has {name!r}; the figures are {', '.join(FIGURES)}.")
    place, written = Path(folder), []
    place.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(wanted):
        written.append(place / f"{name}.png")
        FIGURES[name][1](written[-1])
        progress("figures", i + 1, len(wanted))
    return written
