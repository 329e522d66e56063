"""Figures in the plane: descent over tokens, basins, walls of a partition."""

from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.margin.basins import basins, grid_of_starts
from maxaffine.margin.descent import ngd
from maxaffine.margin.examples import multi, single
from maxaffine.margin.local import Optimality
from maxaffine.margin.problem import Tokens
from maxaffine.margin.svm import AttSvm, att_svm
from maxaffine.margin.walls import walls
from maxaffine.report import style

HEIGHTS = (1.0, 0.5, 0.0, -0.5, -1.0, -1.5)  # of the paper's six starts
COLOURS = {
    Optimality.GLOBAL: style.BLUE, Optimality.LOCAL: style.ORANGE, Optimality.TIED: style.GREEN,
    Optimality.NOT: style.RED, Optimality.INFEASIBLE: style.INK,
}  # fmt: skip


def ray(ax: Any, svm: AttSvm, colour: str, label: str, length: float) -> None:
    """The half line of p_mm."""
    end = svm.p / svm.length * length
    ax.plot([0, end[0]], [0, end[1]], color=colour, lw=1.2, ls="--", label=label)


def paths(path: Path) -> None:
    """The paper's data: six starts of normalised descent each, 120 steps."""
    panels = (
        ("one input, global", single(), [(0.0, y) for y in HEIGHTS]),
        ("one input, with a local optimum", single("local"), [(0.0, y) for y in HEIGHTS]),
        ("three inputs of seven tokens", multi(), [(x, 0.0) for x in HEIGHTS]),
    )
    with style.sheet(path, (12.0, 4.6), 1, 3) as (figure, grid):
        for ax, (title, problem, starts) in zip(grid[0], panels, strict=True):
            _paths_panel(ax, problem, starts)
            ax.set(title=title, xlabel="first coordinate")
        grid[0][0].set_ylabel("second coordinate")
        style.headline(figure, "Descent on the query p goes to a ray of the largest margin")


def _paths_panel(ax: Any, problem: Tokens, starts: list[tuple[float, float]]) -> None:
    ends: dict[tuple[int, ...], AttSvm] = {}
    for start in starts:
        run = ngd(problem, start=start, steps=120)
        ends.setdefault(tuple(run.selected.tolist()), att_svm(problem.keys, run.selected))
        colour = style.BLUE if (run.selected == problem.best).all() else style.ORANGE
        ax.plot(run.p[:, 0], run.p[:, 1], color=colour, lw=1.4)
        ax.plot(*start, "o", ms=3.5, color=colour)
    for tokens, svm in ends.items():
        best = tokens == tuple(problem.best.tolist())
        ray(ax, svm, style.INK, f"p_mm of the {'best' if best else 'locally best'} tokens", 12.0)
    for i, keys in enumerate(problem.keys):
        top = int(problem.best[i])
        ax.scatter(*np.delete(keys, top, axis=0).T, s=26, color=style.QUIET, marker="x", label="tokens" if i == 0 else None)
        ax.scatter(*keys[top], s=34, color=style.GREEN, marker="s", zorder=4, label="best token" if i == 0 else None)
    ax.legend(fontsize=7, loc="best")


def basin_map(path: Path) -> None:
    """Starts coloured by what their end is."""
    panels = (("one input with a local optimum", single("local"), 3.0), ("three inputs of seven tokens", multi(), 3.0))
    with style.sheet(path, (9.6, 4.9), 1, 2) as (figure, grid):
        for ax, (title, problem, side) in zip(grid[0], panels, strict=True):
            found = basins(problem, grid_of_starts(side, 41), steps=600)
            status = [found.localities[k].status for k in found.label]
            ax.scatter(*found.starts.T, s=9, marker="s", color=[COLOURS[one] for one in status])
            shares = ", ".join(f"{one.name.lower()} {found.share(one):.0%}" for one in Optimality if found.share(one) > 0)
            ax.set(title=f"{title}\n{shares}", xlabel="first coordinate of the start", aspect="equal")
            for svm in {one.svm.p.tobytes(): one.svm for one in found.localities if one.svm is not None}.values():
                ray(ax, svm, style.INK, "", side)
        grid[0][0].set_ylabel("second coordinate of the start")
        style.headline(figure, "Where the start decides: blue ends at the best tokens, orange at locally optimal ones")


def walls_before_and_after(path: Path) -> None:
    """Six cells of the plane: the construction's walls, those of ATT-SVM, those of training, and the points that fix them."""
    sites, points = plane_example()
    found = walls(sites, points, steps=3000)
    line = np.linspace(-1.25, 1.25, 400)
    first, second = np.meshgrid(line, line)
    mesh = np.stack([first.ravel(), second.ravel()], axis=1)
    touched = sorted({i for i, _ in found.machine.supports})
    with style.sheet(path, (12.4, 4.6), 1, 3) as (figure, grid):
        panels = (
            ("built (W = 1)", np.eye(3), found.built_margin), ("ATT-SVM", found.best, found.machine.margin),
            ("trained, 3000 steps", found.trained, found.trained_margin),
        )  # fmt: skip
        for ax, (title, W, margin) in zip(grid[0], panels, strict=True):
            cell = found.logits(W, mesh).argmax(axis=1).reshape(first.shape)
            for j in range(len(sites)):
                ax.contour(line, line, cell == j, levels=[0.5], colors=[style.INK], linewidths=0.9)
            ax.scatter(*points.T, s=14, color=[style.CURVES[c] for c in found.cells])
            if title != "built (W = 1)":
                ax.scatter(*points[touched].T, s=70, facecolors="none", edgecolors=style.WORST, label="support points")
                ax.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.06))
            ax.scatter(*sites.T, marker="+", s=60, color=style.INK)
            ax.set(title=f"{title}: margin / |W| = {margin:.4f}", aspect="equal", xlim=(-1.25, 1.25), ylim=(-1.25, 1.25))
            ax.grid(False)
        style.headline(figure, "The same points, the same norm of W: training moves the walls to the widest gaps")


def plane_example(seed: int = 3) -> tuple[Array, Array]:
    """Six sites, and 60 points of the square that keep a distance from the walls."""
    rng = np.random.default_rng(seed)
    sites = np.array([(-0.75, -0.6), (0.1, -0.7), (0.8, -0.35), (-0.6, 0.5), (0.15, 0.15), (0.6, 0.75)])
    points = rng.uniform(-1.2, 1.2, (400, 2))
    squares = np.sort(((points[:, None] - sites) ** 2).sum(axis=2), axis=1)
    return sites, points[squares[:, 1] - squares[:, 0] > 0.12][:60]
