"""The tabs about training: the phase diagram of mean field, max-margin selection with tokens to drag, the lab's report."""

from __future__ import annotations

import math
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from nicegui import run, ui

from maxaffine.core.errors import MaxaffineError
from maxaffine.report import style
from maxaffine.studio import charts, keys
from maxaffine.studio.views import picture

SIZE = 360  # pixels of a picture
ALPHA, GAMMA = (0.0, 0.6), (0.02, 0.98)  # of the phase diagram
D, START, STEP, STEPS, SAMPLES = 30, 0.3, 0.02, 400, 2000
MOST_TOKENS = 2000
SQUARE = f"width: {SIZE}px; max-width: 100%; aspect-ratio: 1"
SHADES = {"retrieval": 1.0, "uncondensed": 0.45, "condensed": 0.1}  # the phases at mu = 1
REACH = 2.0  # tokens may be dragged within [-REACH, REACH]
RESULTS = Path("results")  # what `maxaffine lab keep` fills, in the folder where the studio was started


# -- mean field


def mean_field() -> None:
    """Click a point (alpha, gamma): theory and simulation of training there."""
    ui.label("Single-location regression: alpha = log(L-1)/d, gamma the token noise. Retrieval is possible in the bright region. "
             "Click a point to train a softmax layer there: the theory's recursion, and a simulation over it. "
             "By keyboard: arrows move the ring, Enter trains.")  # fmt: skip
    with ui.row().classes("w-full items-start"):
        with ui.column().classes("gap-1 max-w-full"):
            beta = (
                ui.slider(min=0.2, max=3.0, step=0.1, value=1.0).props('label-always aria-label="beta"').classes("w-72 mt-6 mx-3")
            )
            ui.label("beta, the inverse temperature").classes("text-xs")
            chart = ui.interactive_image(_phases(1.0), size=(SIZE, SIZE)).props('data-name="phases"').style(SQUARE)
            ui.label(f"alpha {ALPHA[0]:g} to {ALPHA[1]:g} to the right, gamma {GAMMA[0]:g} to {GAMMA[1]:g} upwards").classes(
                "text-xs"
            )
            _phase_names()
        shown = ui.column().classes("grow min-w-72")
    under_way: list[int] = []
    at = [0.2, 0.5]

    def ring() -> None:
        x, y = SIZE * (at[0] - ALPHA[0]) / (ALPHA[1] - ALPHA[0]), SIZE * (GAMMA[1] - at[1]) / (GAMMA[1] - GAMMA[0])
        chart.content = charts.ring(x, y)

    async def train() -> None:
        if under_way:
            return
        under_way.append(1)
        shown.clear()
        try:
            with shown:
                ui.spinner()
            found = await run.io_bound(_trained, at[0], at[1], float(beta.value)) or {}
            shown.clear()
            with shown:
                _show_training(found)
        except MaxaffineError as why:
            shown.clear()
            with shown:
                ui.label(str(why)).classes("text-negative")
        finally:
            under_way.clear()

    async def clicked(event: Any) -> None:
        at[0] = ALPHA[0] + (ALPHA[1] - ALPHA[0]) * event.image_x / SIZE
        at[1] = GAMMA[1] - (GAMMA[1] - GAMMA[0]) * event.image_y / SIZE
        ring()
        await train()

    def stepped(right: int, up: int) -> None:
        for k, (steps, (low, high)) in enumerate(zip((right, up), (ALPHA, GAMMA), strict=True)):
            at[k] = min(max(at[k] + steps * (high - low) / 30, low), high)
        ring()

    ring()
    chart.on_mouse(clicked)
    keys.moves(chart, "phases: arrow keys move the point, Enter trains there", stepped, "Enter", lambda _: train())
    beta.on("change", lambda: chart.set_source(_phases(float(beta.value))))


@lru_cache(maxsize=32)
def _phases(beta: float) -> str:
    """The phases at mu = 1: retrieval bright, uncondensed dark, condensed darkest."""
    from maxaffine.meanfield.limit import MeanField

    side = 90
    alphas, gammas = np.linspace(*ALPHA, side), np.linspace(*GAMMA, side)
    values = np.array([[SHADES[MeanField(float(a), beta, float(g), D).phase(1.0)] for a in alphas] for g in gammas])
    return picture(values, 0.0, 1.0, style.ENTROPY)


def _phase_names() -> None:
    """What the colours are."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    with ui.row().classes("gap-x-4 gap-y-0 text-xs"):
        for name, shade in SHADES.items():
            with ui.row().classes("items-center gap-1 no-wrap"):
                ui.element("span").style(f"width: 10px; height: 10px; background: {to_hex(colormaps[style.ENTROPY](shade))}")
                ui.label(name)


def _trained(alpha: float, gamma: float, beta: float) -> dict[str, Any]:
    from maxaffine import meanfield as mf

    tokens = min(MOST_TOKENS, 1 + max(1, round(math.exp(alpha * D))))
    problem, start = mf.Problem(d=D, L=tokens, gamma=gamma), mf.Overlaps(START, START)
    theory = mf.gd(mf.tabulate(mf.SoftmaxRisk(problem, beta=beta)), start, step=STEP, steps=STEPS)
    samples = max(50, min(SAMPLES, 60_000 // tokens))
    seen = mf.train(mf.Settings(problem, beta, n=samples, step=STEP, steps=STEPS, starts=(start,), every=20, test=0, seed=1))
    limit = mf.MeanField.of(problem, beta)
    return {
        "alpha": problem.alpha, "gamma": gamma, "beta": beta, "L": tokens, "phase": limit.phase(1.0), "samples": samples,
        "time": theory.time.tolist(), "mu": theory.overlaps[:, 0].tolist(), "nu": theory.overlaps[:, 1].tolist(),
        "risk": theory.risk.tolist(), "steps": seen.steps.tolist(), "seen_mu": seen.overlaps[:, 0, 0].tolist(),
        "seen_nu": seen.overlaps[:, 0, 1].tolist(),
    }  # fmt: skip


def _show_training(found: dict[str, Any]) -> None:
    where = f"alpha = {found['alpha']:.3f}, gamma = {found['gamma']:.3f}, beta = {found['beta']:g}"
    ui.label(
        f"{where}: d = {D}, L = {found['L']:,} tokens, {found['phase']} at mu = 1; "
        f"dots: a simulation with {found['samples']:,} samples"
    ).props('data-name="phase"')
    lines = [("mu, theory", "time", "mu", style.BLUE, 2), ("nu, theory", "time", "nu", style.ORANGE, 2)]
    dots = [("mu, seen", "seen_mu", style.BLUE), ("nu, seen", "seen_nu", style.ORANGE)]
    series: list[dict[str, Any]] = [charts.line(name, found[x], found[y], colour, width) for name, x, y, colour, width in lines]
    for name, key, colour in dots:
        seen = [list(pair) for pair in zip(found["steps"], found[key], strict=True)]
        series.append({"name": name, "type": "scatter", "symbolSize": 6, "itemStyle": {"color": colour}, "data": seen})
    ui.echart(charts.plot(series, "steps of gradient descent", "overlap")).classes("w-full h-64")
    risk = [charts.line("risk, theory", found["time"], found["risk"], charts.GREY, 2)]
    ui.echart(charts.plot(risk, "steps of gradient descent", "risk")).classes("w-full h-48")


# -- max-margin


def max_margin() -> None:
    """Three tokens to drag, and where gradient descent takes the query."""
    ui.label("One input with three tokens; the number is a token's score. Drag a token: the arrow is the query of gradient flow, "
             "the ray the max-margin query of the tokens it selects (ATT-SVM). "
             "By keyboard: 1, 2 and 3 choose a token, arrows move it.")  # fmt: skip
    tokens = [[-0.1, 1.0], [1.0, 0.0], [0.0, 0.0]]
    scores = [1.0, 0.9, 0.9]
    held: list[int] = []
    chosen = [0]  # what the arrow keys move
    with ui.row().classes("w-full items-start"):
        board = ui.interactive_image(
            picture(np.zeros((2, 2)), 0.0, 1.0, "Greys"), size=(SIZE, SIZE), events=["mousedown", "mousemove", "mouseup"]
        )
        board.props('data-name="tokens"').style(f"{SQUARE}; border: 1px solid {charts.GREY}")
        words = ui.label().classes("font-mono text-sm whitespace-pre-wrap").props('data-name="margin" role=status')

    def redraw() -> None:
        board.content, words.text = _board(tokens, scores)

    def moused(event: Any) -> None:
        at = [REACH * (2 * event.image_x / SIZE - 1), REACH * (1 - 2 * event.image_y / SIZE)]
        if event.type == "mousedown":
            near = min(range(3), key=lambda k: math.dist(tokens[k], at))
            held[:] = [near] if math.dist(tokens[near], at) < 0.3 else []
        elif event.type == "mouseup" or not event.buttons:
            held.clear()
        if held:
            tokens[held[0]] = [max(-REACH, min(REACH, one)) for one in at]
            redraw()

    def stepped(right: int, up: int) -> None:
        x, y = tokens[chosen[0]]
        tokens[chosen[0]] = [max(-REACH, min(REACH, one)) for one in (x + 0.1 * right, y + 0.1 * up)]
        redraw()

    def choose(key: str) -> None:
        chosen[0] = int(key) - 1

    board.on_mouse(moused)
    keys.moves(board, "tokens: 1, 2 and 3 choose one, arrow keys move it", stepped, "1 2 3", choose)
    redraw()


def _board(tokens: list[list[float]], scores: list[float]) -> tuple[str, str]:
    """Tokens, query and ray as SVG, and what they are in words."""
    from maxaffine import margin

    def place(x: float, y: float) -> tuple[float, float]:
        return SIZE * (x + REACH) / (2 * REACH), SIZE * (REACH - y) / (2 * REACH)

    problem = margin.Tokens(np.array([tokens]), np.array([scores]))
    drawn, said = [], ""
    try:
        flow = margin.gradient_flow(problem, end=1e8)
        svm = margin.att_svm(problem.keys, flow.selected)
        p, ray = flow.p[-1], svm.p
        arrow = p / max(float(np.linalg.norm(p)), 1e-12) * 0.8 * REACH
        direction = ray / float(np.linalg.norm(ray)) * 1.4 * REACH
        (x0, y0), (x1, y1), (x2, y2) = place(0.0, 0.0), place(*direction), place(*arrow)
        ray_line = f'<line x1="{x0}" y1="{y0}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{style.GREEN}"'
        query_line = f'<line x1="{x0}" y1="{y0}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{style.RED}"'
        drawn += [f'{ray_line} stroke-width="2" stroke-dasharray="5 4"/>']
        drawn += [f'{query_line} stroke-width="3"/>', _head(x0, y0, x2, y2)]
        found = margin.certificate(p, svm)
        said = (
            f"selected token  {int(flow.selected[0]) + 1}\n|p_mm|          {svm.length:.4f}\nmargin          {svm.margin:.4f}\n"
            f"|p| at T = 1e8  {float(np.linalg.norm(p)):.3f}  (|p_mm| log T = {svm.length * math.log(1e8):.3f})\n"
            f"cosine          {found.cosine:.6f}, certified at least {found.least_cosine:.6f}"
        )
    except MaxaffineError as why:
        said = str(why)
    for k, (token, score) in enumerate(zip(tokens, scores, strict=True)):
        x, y = place(*token)
        drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9" fill="{style.CURVES[k]}"/>'
                     f'<text x="{x + 12:.1f}" y="{y - 8:.1f}" font-size="13" fill="#333">{k + 1}: {score:g}</text>')  # fmt: skip
    return "".join(drawn), said


def _head(x0: float, y0: float, x1: float, y1: float) -> str:
    """The head of an arrow."""
    long = math.hypot(x1 - x0, y1 - y0) or 1.0
    u, v = (x1 - x0) / long, (y1 - y0) / long
    corners = ((x1 + 6 * u, y1 + 6 * v), (x1 - 8 * u - 6 * v, y1 - 8 * v + 6 * u), (x1 - 8 * u + 6 * v, y1 - 8 * v - 6 * u))
    return f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)}" fill="{style.RED}"/>'


# -- the lab


def report() -> None:
    """The report of the results in this folder; what there is to run where there are none."""
    from maxaffine.lab.registry import EXPERIMENTS

    if not RESULTS.is_dir():
        ui.label(
            "The folder where the studio was started has no results. Run an experiment there, keep its run, and start again:"
        )
        ui.code("maxaffine lab run NAME --out RUN\nmaxaffine lab keep RUN", language="bash").classes("w-full max-w-prose")
        ui.label(f"NAME is one of {', '.join(EXPERIMENTS)}.").classes("text-sm max-w-prose")
        return
    from maxaffine.lab import report as lab

    try:
        with tempfile.TemporaryDirectory(prefix="maxaffine-studio-") as folder:
            made = Path(folder) / "report.html"
            lab.write(RESULTS, made, None)
            text = made.read_text()
    except MaxaffineError as why:
        ui.label(str(why))
        return
    frame = (
        ui.element("iframe")
        .classes("w-full")
        .style("height: 80vh; border: 0")
        .props('sandbox="allow-scripts" data-name="report"')
    )
    frame._props["srcdoc"] = text
