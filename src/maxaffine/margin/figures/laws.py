"""Figures of the laws: length, loss gap, the common line, the joint problem, and the picture of one run."""

from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.margin.asymptote import asymptote
from maxaffine.margin.certificate import certificate
from maxaffine.margin.examples import joint as joint_example
from maxaffine.margin.examples import multi, random_tokens
from maxaffine.margin.flow import gradient_flow
from maxaffine.margin.joint import joint_flow, joint_path, joint_svm, limit_direction
from maxaffine.margin.local import is_locally_optimal
from maxaffine.margin.path import regularisation_path
from maxaffine.margin.report import Report
from maxaffine.margin.svm import AttSvm, att_svm
from maxaffine.margin.trajectory import Trajectory
from maxaffine.report import style

END = 1e24


def _runs() -> list[tuple[str, Trajectory, AttSvm]]:
    problems = [("the paper's three inputs", multi()), *((f"random, seed {s}", random_tokens(s)) for s in (0, 2, 3, 5))]
    found = []
    for name, problem in problems:
        run = gradient_flow(problem, end=END)
        svm = is_locally_optimal(problem, run.selected).svm
        assert svm is not None
        found.append((f"{name} (least slack {svm.room:.2g})", run, svm))
    return found


def length(path: Path) -> None:
    """|p| against T, with the slope of the law through the last point."""
    with style.sheet(path, (7.6, 4.6)) as (figure, ((ax,),)):
        for colour, (name, run, svm) in zip(style.CURVES, _runs(), strict=False):
            ax.plot(run.time, run.length, color=colour, lw=1.8, label=name)
            ax.plot(run.time, run.length[-1] + svm.length * np.log(run.time / END), color=style.INK, lw=0.8, ls="--")
        ax.set(xlabel="time T of gradient flow", ylabel="|p|", xlim=(1, END), ylim=(0, None))
        style.logarithmic(ax, y=False)
        ax.legend(fontsize=7)
        style.headline(figure, "|p| grows like |p_mm| log T (dashed: slope 1/margin)")


def gap(path: Path) -> None:
    """T (L - L_alpha) over |p_mm|^2."""
    with style.sheet(path, (7.6, 4.6)) as (figure, ((ax,),)):
        for colour, (name, run, svm) in zip(style.CURVES, _runs(), strict=False):
            ax.plot(run.time, run.time * run.gap / svm.length**2, color=colour, lw=1.8, label=name)
        ax.axhline(1.0, color=style.INK, lw=0.8, ls="--")
        ax.set(xlabel="time T of gradient flow", ylabel="T · (loss gap) / |p_mm|²", xlim=(1, END), ylim=(0, 2))
        style.logarithmic(ax, y=False)
        ax.legend(fontsize=7)
        style.headline(figure, "The loss gap is |p_mm|² / T in the end, whatever loss, labels and scores")


def line(path: Path) -> None:
    """Across and along p_mm: flow and regularisation path on the paper's three inputs."""
    problem = multi()
    svm = att_svm(problem.keys, problem.best)
    unit = svm.p / svm.length
    across = np.array([-unit[1], unit[0]])
    run = gradient_flow(problem, end=1e300, points=600)
    found = regularisation_path(problem, list(np.geomspace(2.0, 2000.0, 60)))
    law = float(asymptote(problem, svm).offset @ across)
    with style.sheet(path, (7.6, 4.6)) as (figure, ((ax,),)):
        ax.plot(run.p @ unit, run.p @ across, color=style.BLUE, lw=2.0, label="gradient flow to T = 1e300")
        ax.plot(found.p @ unit, found.p @ across, color=style.ORANGE, lw=1.6, label="regularisation path to R = 2000")
        ax.axhline(law, color=style.INK, lw=0.9, ls="--", label="law: offset of the common line")
        style.logarithmic(ax, y=False)
        ax.set(xlabel="along p_mm", ylabel="across p_mm", xlim=(1, 2000))
        ax.legend(fontsize=8)
        style.headline(figure, "Path and flow end on one line beside the ray of p_mm (late: least slack 0.0071)")


def joint(path: Path) -> None:
    """Left and middle: the flow of (p, v) on tight and loose data; right: the direction of p against kappa."""
    with style.sheet(path, (12.4, 4.6), 1, 3) as (figure, grid):
        for ax, kind in zip(grid[0], ("tight", "loose"), strict=False):
            _joint_panel(ax, kind)
        ax, problem = grid[0][2], joint_example("loose")
        machines = joint_svm(problem)
        kappas = np.concatenate([np.linspace(0.02, 1.5, 60)])
        law = [_angle(limit_direction(problem, float(k), machines), machines.relaxed.p) for k in kappas]
        ax.plot(kappas, law, color=style.INK, lw=1.2, ls="--", label="law, R → ∞")
        some = (0.1, 0.4, 0.7, 1.0, 1.3)
        reached = [_angle(joint_path(problem, k, 160.0)[1], machines.relaxed.p) for k in some]
        ax.plot(some, reached, "o", color=style.RED, label="path at R = 160")
        ax.axhline(_angle(machines.p.p, machines.relaxed.p), color=style.BLUE, lw=0.9, ls=":", label="p_mm")
        ax.set(title="loose: angle of p to p_relax", xlabel="κ = |v| / |p| of the path", ylabel="angle")
        ax.legend(fontsize=7)
        style.headline(figure, "Query and value together: p_mm where every input supports v (tight), else by the ratio κ")


def _angle(a: Any, b: Any) -> float:
    return float(np.arccos(np.clip(a @ b / np.linalg.norm(a) / np.linalg.norm(b), -1, 1)))


def _joint_panel(ax: Any, kind: str) -> None:
    problem = joint_example(kind)
    machines = joint_svm(problem)
    run = joint_flow(problem, 1e60, points=400)
    late = run.time > 1
    for vector, target, colour, name in (
        (run.p, machines.p.p, style.BLUE, "p to p_mm"), (run.p, machines.relaxed.p, style.ORANGE, "p to p_relax"),
        (run.v, machines.v.p, style.GREEN, "v to v_mm"),
    ):  # fmt: skip
        if kind == "tight" and name == "p to p_relax":
            continue
        angles = [max(_angle(one, target), 1e-7) for one in vector[late]]
        ax.plot(run.time[late], angles, color=colour, lw=1.7, label=name)
    ax.set(title=f"{kind}: angles under gradient flow", xlabel="time T", ylabel="angle")
    style.logarithmic(ax)
    ax.set_xticks([1, 1e20, 1e40, 1e60])
    ax.legend(fontsize=7)


def run_figure(report: Report, path: str | Path) -> None:
    """One run in four panels: the query in the plane of p_mm, |p|, the gap, and what the margin certifies."""
    run, svm = report.run, report.svm
    unit = svm.p / svm.length
    rest = run.p - np.outer(run.p @ unit, unit)
    side = rest[np.linalg.norm(rest, axis=1).argmax()]
    side = side / max(float(np.linalg.norm(side)), 1e-300)
    with style.sheet(path, (10.4, 7.6), 2, 2) as (figure, grid):
        plane, growth, loss, proof = grid.ravel()
        plane.plot(run.p @ unit, run.p @ side, color=style.BLUE, lw=1.8)
        plane.axhline(0.0, color=style.INK, lw=0.8, ls="--")
        plane.set(title="the query: along and across p_mm", xlabel="along p_mm", ylabel="across")
        growth.plot(run.time, run.length, color=style.BLUE, lw=1.8)
        law = run.length[-1] + svm.length * np.log(run.time / run.time[-1])
        growth.plot(run.time, law, color=style.INK, lw=0.8, ls="--")
        growth.set(title=f"|p| (dashed: slope |p_mm| = {svm.length:.4g})", xlabel="T", xlim=(1, run.time[-1]), ylim=(0, None))
        style.logarithmic(growth, y=False)
        loss.plot(run.time, run.time * run.gap, color=style.BLUE, lw=1.8)
        loss.axhline(svm.length**2, color=style.INK, lw=0.8, ls="--")
        loss.set(title=f"T · loss gap (dashed: |p_mm|² = {svm.length**2:.4g})", xlabel="T")
        loss.set(xlim=(1, run.time[-1]), ylim=(0, 2.5 * svm.length**2))
        style.logarithmic(loss, y=False)
        whole = np.concatenate([run.p[run.length > 0.1], report.descent.p[1:]])
        proofs = [certificate(p, svm) for p in whole]
        sizes = np.linalg.norm(whole, axis=1)
        good = np.array([one.least_cosine > 0 for one in proofs])
        if good.any():
            proved = [max(1 - one.least_cosine, 1e-12) for one in np.array(proofs)[good]]
            proof.plot(sizes[good], proved, color=style.GREEN, lw=1.8, label="certified by the margin")
        proof.plot(sizes, [max(1 - one.cosine, 1e-12) for one in proofs], color=style.BLUE, lw=1.2, label="computed")
        style.logarithmic(proof)
        proof.set(title="1 − cos(p, p_mm), flow and then normalised descent", xlabel="|p|")
        proof.legend(fontsize=8)
        style.headline(figure, f"{report.locality.status.name.lower()} choice, {report.run.loss} loss, T = {run.time[-1]:.0e}")
