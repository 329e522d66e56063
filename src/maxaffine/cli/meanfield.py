"""`maxaffine meanfield`: exact risk, phases, training dynamics, simulation, and the paper's claims.

    maxaffine meanfield risk --d 100 --L 20 --beta 1 --gamma 0.5 --mu .3 --nu .2 --eta .1 --zeta -.05 --rho .15 --json
"""

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from maxaffine import meanfield as mf
from maxaffine.cli import arguments, options
from maxaffine.cli.command import Command, single
from maxaffine.cli.streams import answer, progress_bar, say, say_json
from maxaffine.core.errors import BadInput, MaxaffineError
from maxaffine.core.records import canonical_json, write_atomically
from maxaffine.meanfield import MeanField, Overlaps, Problem, RiskTable, SoftmaxRisk
from maxaffine.meanfield.experiment import GAMMAS, full_experiment, paper_runs, paper_settings
from maxaffine.meanfield.links import LINKS
from maxaffine.meanfield.problem import whole
from maxaffine.meanfield.risk import Risk

app = single()


@app.callback()
def _about() -> None:
    """Predict the training of a softmax attention layer on single-location regression, exactly."""


# -- options that several commands share -------------------------------------------------------------------------------

Dimension = Annotated[int, typer.Option("--d", help="Dimension of a token, at least 4.")]
Length = Annotated[float | None, typer.Option("--L", help="Number of tokens, any real number from 2 to 1e280.")]
Alpha = Annotated[float | None, typer.Option("--alpha", help="Instead of --L: log(L-1)/d.")]
Gamma = Annotated[float, typer.Option("--gamma", help="Noise of the secret token, in (0, 1).")]
Beta = Annotated[float | None, typer.Option("--beta", help="Inverse temperature lam/sqrt(d); 1 unless --lam is given.")]
Lam = Annotated[float | None, typer.Option("--lam", help="Instead of --beta: the inverse temperature itself.")]
Signal = Annotated[float | None, typer.Option("--c", help="Signal strength; sqrt(1 - gamma^2) if not given.")]
Eps = Annotated[float, typer.Option("--eps", help="Standard deviation of the label noise.")]
Mu = Annotated[float, typer.Option("--mu", help="u.u*")]
Nu = Annotated[float, typer.Option("--nu", help="v.v*")]
Eta = Annotated[float, typer.Option("--eta", help="u.v*")]
Zeta = Annotated[float, typer.Option("--zeta", help="v.u*")]
Rho = Annotated[float, typer.Option("--rho", help="u.v")]
LinkName = Annotated[str, typer.Option("--link", help="linear, quadratic, relu, sign, or an expression in x such as tanh(x).")]
Breaks = Annotated[str | None, typer.Option("--breaks", help="Points, by commas, where an expression link jumps or bends.")]
Step = Annotated[float, typer.Option(help="Step size.")]
Steps = Annotated[int, typer.Option(help="Number of steps.")]
Picture = Annotated[str | None, typer.Option("--figure", metavar="F.png", help="Draw a figure (png, svg or pdf).")]
Backend = Annotated[str, typer.Option("--backend", metavar="numpy|torch", help="torch needs the extra maxaffine[torch].")]
Device = Annotated[str | None, typer.Option("--device", help="torch device, such as cpu or cuda.")]


def _problem(d: int, length: float | None, alpha: float | None, gamma: float, eps: float, c: float | None) -> Problem:
    if length is not None and alpha is not None:
        raise BadInput("give one of `L` and `alpha`; they are tied by L = 1 + exp(alpha d).")
    if alpha is not None:
        return Problem.from_alpha(d, alpha, gamma, eps, c)
    return Problem(d, 20.0 if length is None else length, gamma, eps, c)


def _risk(
    problem: Problem, link: str, beta: float | None, lam: float | None = None, breaks: str | None = None
) -> SoftmaxRisk | mf.LinkRisk:
    """The exact risk for a link by name, or by an expression in x; beta is 1 where neither it nor lam is given."""
    scale: dict[str, Any] = {"beta": 1.0 if beta is None and lam is None else beta, "lam": lam}
    if link == "linear":
        return SoftmaxRisk(problem, **scale)
    if link in LINKS:
        return mf.LinkRisk(problem, link, **scale)
    from maxaffine.expression.expression import Expression

    try:
        expression = Expression.parse(link, ("x",))
    except MaxaffineError as failure:
        raise BadInput(f"`link` (={link!r}) must be one of {', '.join(LINKS)}, or an expression in x: {failure}") from None

    def function(x: Any) -> Any:
        return expression.evaluate(np.reshape(x, (-1, 1)))[:, 0].reshape(np.shape(x))

    points = [] if breaks is None else arguments.numbers(breaks, "`breaks`")
    return mf.LinkRisk(problem, mf.CustomLink(function, points, name=link), **scale)


def _draw(path: Path | None, name: str, *given: Any, **options: Any) -> str | None:
    """Draw the figure of that name in maxaffine.meanfield.figures; where it was written."""
    if path is None:
        return None
    from maxaffine.meanfield import figures

    with figures.look():
        make = getattr(figures.theory, name, None) or getattr(figures.dynamics, name)
        return str(figures.save(make(*given, **options), path, dots=100))


def _one_of(name: str, value: str | None, known: Iterable[str]) -> None:
    if value is not None and value not in (names := list(known)):
        raise BadInput(f"`{name}` (={value!r}) must be one of {', '.join(names)}.")


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.15g}" if abs(value) < 1e5 else f"{value:.6g}"
    return "-" if value is None else str(value)


def _leaves(record: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The numbers of a record, nested names joined by dots; lists are left out."""
    for key, value in record.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        elif not isinstance(value, list):
            yield f"{prefix}{key}", _number(value)


# -- commands ------------------------------------------------------------------------------------------------------


@app.command("risk", cls=Command)
def risk(
    d: Dimension = 100, length: Length = None, alpha: Alpha = None, gamma: Gamma = 0.5, beta: Beta = None, lam: Lam = None,
    c: Signal = None, eps: Eps = 0.0, mu: Mu = 1.0, nu: Nu = 1.0, eta: Eta = 0.0, zeta: Zeta = 0.0, rho: Rho = 0.0,
    link: LinkName = "linear", breaks: Breaks = None, figure: Picture = None, json: options.Json = False,
) -> None:  # fmt: skip
    """The exact population risk (without eps^2) and its gradient at five overlaps; the oracle unless they are given."""
    picture = arguments.picture(figure)
    problem, o = _problem(d, length, alpha, gamma, eps, c), Overlaps(mu, nu, eta, zeta, rho).check()
    begun = time.perf_counter()
    model = _risk(problem, link, beta, lam, breaks)
    value, gradient = model.value_and_gradient(o)
    seconds = time.perf_counter() - begun
    record: dict[str, Any] = {
        "risk": value, "gradient": gradient.to_json(), "self_check": model.self_check(mu), "overlaps": o.to_json(),
        "problem": problem.to_json(), "link": link, "beta": model.beta, "lam": model.lam, "seconds": seconds,
    }  # fmt: skip
    limit = MeanField.of(problem, model.beta)
    if link == "linear":
        record["limit"] = {"paper": limit.risk_paper(o), "corrected": limit.risk_corrected(o), "phase": limit.phase(mu)}
    record["figure"] = _draw(picture, "risk_figure", model, o, limit)
    answer(json, record, _leaves(record))


@app.command("baselines", cls=Command)
def baselines(
    d: Dimension = 100, length: Length = None, alpha: Alpha = None, gamma: Gamma = 0.5, beta: Beta = None, lam: Lam = None,
    c: Signal = None, json: options.Json = False,
) -> None:  # fmt: skip
    """Excess risks of other predictors: Bayes, best linear, null, hard attention, best temperature, pointwise erf."""
    problem = _problem(d, length, alpha, gamma, 0.0, c)
    oracle = Overlaps(1.0, 1.0)
    model = _risk(problem, "linear", beta, lam)
    best, at_best = mf.best_lambda(problem)
    erf_lam, erf = mf.best_pointwise_lambda(problem)
    record = {
        "softmax_oracle": model.risk(oracle), "lam": model.lam, "softmax_best": at_best, "best_lam": best,
        "hardmax": mf.hardmax_risk(problem, oracle), "bayes": mf.bayes_risk(problem),
        "bayes_projected": mf.bayes_risk(problem, "projected"), "linear": mf.best_linear_risk(problem),
        "null": mf.null_risk(problem), "erf": erf, "erf_lam": erf_lam, "problem": problem.to_json(),
    }  # fmt: skip
    answer(json, record, _leaves(record))


@app.command("phase", cls=Command)
def phase(
    d: Dimension = 200, length: Length = None, alpha: Alpha = None, gamma: Gamma = 0.8, beta: Beta = 1.0, c: Signal = None,
    mu: Mu = 1.0, nu: Nu = 1.0, figure: Picture = None, json: options.Json = False,
) -> None:  # fmt: skip
    """Phase, boundaries, participation ratio and rare-event rate at (alpha, beta); exact, corrected and paper side by side."""
    picture = arguments.picture(figure)
    if length is None and alpha is None:
        alpha = 0.1
    problem = _problem(d, length, alpha, gamma, 0.0, c)
    limit = MeanField.of(problem, 1.0 if beta is None else beta)
    o = Overlaps(mu, nu).check()
    model = SoftmaxRisk(problem, beta=limit.beta)
    moments = model.moments(mu)
    rate = -math.log(moments["P1"]) / d if moments["P1"] > 0 else None
    record: dict[str, Any] = {
        **limit.state(mu),
        "risk": {"exact": model.risk(o), "corrected": limit.risk_corrected(o), "paper": limit.risk_paper(o)},
        "retrieval": {"exact": moments["P1"], "gaussian_step": limit.step(mu), "paper": limit.p(mu)},
        "rates": {"exact": rate, "limit": limit.rate(mu), "paper": limit.rate_paper(mu)},
        "intermediate": limit.alpha_softmax < limit.alpha < limit.alpha_bayes,
        "self_check": moments["defect"],
        "boundaries": {name: values.tolist() for name, values in limit.boundaries(mu, 41).items()},
    }
    if picture is not None:
        with progress_bar(quiet=json) as report:
            record["figure"] = _draw(picture, "phase_figure", report, gamma=gamma, d=min(d, 400))
    answer(json, record, _leaves(record))


@app.command("dynamics", cls=Command)
def dynamics(
    d: Dimension = 100, length: Length = None, alpha: Alpha = None, gamma: Gamma = 0.5, beta: Beta = None, lam: Lam = None,
    c: Signal = None, mu: Mu = 0.1, nu: Nu = 0.0, eta: Eta = 0.0, zeta: Zeta = 0.0, rho: Rho = 0.0, link: LinkName = "linear",
    breaks: Breaks = None, step: Step = 0.01, steps: Steps = 1000,
    every: Annotated[int | None, typer.Option(help="Record every so many steps; about 20 rows if not given.")] = None,
    as_flow: Annotated[bool, typer.Option("--flow", help="Gradient flow up to time steps * step, at logarithmic times.")] = False,
    rule: Annotated[str, typer.Option(metavar="exact|paper", help="Risk that drives the descent.")] = "exact",
    stationary: Annotated[bool, typer.Option("--stationary", help="List the stationary points, with types.")] = False,
    figure: Picture = None, json: options.Json = False,
) -> None:  # fmt: skip
    """Training as a recursion in five overlaps (or as a flow) from a given start; --stationary lists where it can stop."""
    picture = arguments.picture(figure)
    problem, start = _problem(d, length, alpha, gamma, 0.0, c), Overlaps(mu, nu, eta, zeta, rho).check()
    _one_of("rule", rule, ("exact", "paper"))
    exact = _risk(problem, link, beta, lam, breaks)
    driver: Risk = exact
    if isinstance(exact, SoftmaxRisk):
        driver = RiskTable(exact) if rule == "exact" else mf.PaperRisk(MeanField.of(problem, exact.beta), problem)
    elif rule == "paper":
        raise BadInput(f"`rule` (='paper') applies to the linear link only, not to {link!r}; leave one of them out.")
    with progress_bar(quiet=json) as report:
        if as_flow:
            grid = np.concatenate([[0.0], np.geomspace(min(step, step * steps), step * steps, 25)]) if steps > 1 else [0.0, step]
            path = mf.flow(driver, start, np.unique(grid))
        else:
            path = mf.gd(driver, start, step, steps, max(1, steps // 20) if every is None else every, report)
    record: dict[str, Any] = {
        "time": path.time, "overlaps": {name: path.overlaps[:, i] for i, name in enumerate(Overlaps._fields)}, "risk": path.risk,
        "final": {**path.last.to_json(), "risk": path.risk[-1]}, "unit": "time" if as_flow else "step", "rule": rule,
        "problem": problem.to_json(), "beta": exact.beta, "lam": exact.lam, "link": link, "step": step,
        "self_check": exact.self_check(float(path.last.mu)),
    }  # fmt: skip
    if stationary:
        if not isinstance(exact, SoftmaxRisk):
            raise BadInput("`stationary` is for the linear link; leave --link out.")
        points = mf.stationary_points(RiskTable(exact), planar=True)
        record["stationary"] = [{**p.overlaps.to_json(), "risk": p.risk, "kind": p.kind} for p in points]
        record["hessian_oracle"] = asdict(mf.hessian_oracle(exact))
    record["figure"] = _draw(picture, "trajectory_figure", path, record["unit"])
    rows: list[tuple[str, ...]] = [(record["unit"], *Overlaps._fields, "risk")]
    for when, o, value in zip(path.time, path.overlaps, path.risk, strict=True):
        rows.append((f"{when:g}", *(f"{x:+.6f}" for x in o), f"{value:.9g}"))
    answer(json, record, rows)
    for point in [] if json else record.get("stationary", []):
        where = ", ".join(f"{name} {point[name]:+.4f}" for name in Overlaps._fields)
        say(f"{point['kind']:<10} risk {point['risk']:<12.6g} {where}")


@app.command("simulate", cls=Command)
def simulate(
    d: Dimension = 100, length: Length = None, gamma: Gamma = 0.5, beta: Beta = 1.0, eps: Eps = 0.1,
    mu: Mu = 0.3, nu: Nu = 0.0, eta: Eta = 0.0, zeta: Zeta = 0.0, rho: Rho = 0.0,
    uniform: Annotated[bool, typer.Option("--uniform", help="Start uniformly on the spheres, not at the overlaps.")] = False,
    n: Annotated[int, typer.Option("--n", help="Training samples (gd), or samples per fresh batch (sgd).")] = 1000,
    step: Step = 0.01, steps: Steps = 300,
    every: Annotated[int, typer.Option(help="Measure every so many steps.")] = 50,
    test: Annotated[int, typer.Option(help="Test samples; 0 for none.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of data, start and batches.")] = 0,
    method: Annotated[str, typer.Option(metavar="gd|sgd", help="One data set, or fresh batches.")] = "gd",
    link: Annotated[str, typer.Option(metavar="linear|quadratic|relu", help="Link of data and layer.")] = "linear",
    state: Annotated[str | None, typer.Option(metavar="F.npz", help="State file: saved here, and resumed if it exists.")] = None,
    stop_at: Annotated[int | None, typer.Option(help="Stop at this step, with the state saved.")] = None,
    backend: Backend = "numpy", device: Device = None, figure: Picture = None, json: options.Json = False,
) -> None:  # fmt: skip
    """Train a layer on samples, and compare it with the exact risk at its measured overlaps."""
    picture = arguments.picture(figure)
    problem = _problem(d, length, None, gamma, eps, None)
    start: Any = "uniform" if uniform else Overlaps(mu, nu, eta, zeta, rho)
    chosen: Any = method
    settings = mf.Settings(problem, 1.0 if beta is None else beta, n, step, steps, (start,), seed, chosen, every, test, link)
    if state is not None:
        arguments.writable(Path(state), "--state")
    _one_of("backend", backend, ("numpy", "torch"))
    with progress_bar(quiet=json) as report:
        if backend == "torch":
            from maxaffine.meanfield.torch_training import train_seeds

            measured = train_seeds(settings, [seed], device=device, state=state, stop_at=stop_at, progress=report)[0]
        else:
            measured = mf.train(settings, state=state, stop_at=stop_at, progress=report)
    model = _risk(problem, link, settings.beta)
    exact = np.array([model.value_and_gradient(Overlaps(*row[0]))[0] for row in measured.overlaps.tolist()])
    record: dict[str, Any] = {
        "settings": settings.to_json(), "backend": backend, "step": measured.steps,
        "overlaps": {name: measured.overlaps[:, 0, i] for i, name in enumerate(Overlaps._fields)},
        "train": measured.train[:, 0], "test": measured.test[:, 0], "test_error": measured.test_error[:, 0],
        "exact": exact + eps**2, "state": state, "finished": bool(measured.steps.size and measured.steps[-1] == steps),
    }  # fmt: skip
    if picture is not None:
        record["figure"] = _draw(picture, "trajectory_figure", mf.Trajectory(measured.steps, measured.overlaps[:, 0], exact))
    rows: list[tuple[str, ...]] = [("step", "mu", "nu", "train", "test", "+-", "exact")]
    for i, k in enumerate(measured.steps):
        numbers = (measured.train[i, 0], measured.test[i, 0], measured.test_error[i, 0], record["exact"][i])
        rows.append((f"{k:g}", *(f"{x:+.5f}" for x in measured.overlaps[i, 0, :2]), *(f"{x:.5f}" for x in numbers)))
    answer(json, record, rows)


@app.command("compare", cls=Command)
def compare(
    gamma: Annotated[float | None, typer.Option(help="One gamma; both of the paper's if not given.")] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds.")] = 2,
    steps: Steps = 400,
    n: Annotated[int, typer.Option("--n", help="Training samples.")] = 1000,
    full: Annotated[
        bool, typer.Option("--full", help="40 seeds, 3000 steps, and success against mu0 and n: hours, on a GPU minutes.")
    ] = False,
    save: Annotated[str | None, typer.Option(metavar="F.json", help="Write the record here, for `figures --record`.")] = None,
    backend: Backend = "numpy", device: Device = None, figure: Picture = None, json: options.Json = False,
) -> None:  # fmt: skip
    """The paper's experiment from several starts: test risk, exact risk at the measured overlaps, the paper's formula."""
    picture = arguments.picture(figure)
    out = None if save is None else arguments.writable(Path(save), "--save")
    chosen: Any = backend
    _one_of("backend", backend, ("numpy", "torch"))
    whole("seeds", seeds, 1, "give a number of seeds such as 4")
    with progress_bar(quiet=json) as report:
        if full:
            record = full_experiment(backend=chosen, device=device, progress=report)
        else:
            gammas = GAMMAS if gamma is None else {f"{gamma:g}": gamma}
            runs = paper_runs(gammas, range(seeds), chosen, device, report, n=n, steps=steps)
            record = {"settings": paper_settings(0.5, n=n, steps=steps).to_json(), "runs": runs}
    if out is not None:
        write_atomically(out, canonical_json(record).encode())
    record["figure"] = _draw(picture, "experiment_figure", record["runs"])
    rows: list[tuple[str, ...]] = [("gamma", "start", "learned", "step", "test", "exact", "paper", "paper, alpha=0", "z rms")]
    for name, entries in record["runs"].items():
        for entry in entries:
            for i in sorted({0, len(entry["steps"]) // 2, len(entry["steps"]) - 1}):
                shown = (f"{entry[key]['median'][i]:.4f}" for key in ("test", "exact", "paper", "paper0"))
                z = "-" if entry["z_rms"] is None else f"{entry['z_rms']:.2f}"
                rows.append((name, entry["start"], f"{entry['learned']}/{entry['seeds']}", str(entry["steps"][i]), *shown, z))
    answer(json, record, rows)


@app.command("claims", cls=Command)
def claims(
    only: Annotated[str | None, typer.Option(metavar="NAME", help="Check one claim.")] = None,
    seeds: Annotated[int, typer.Option(help="Simulated runs per gamma for the experiment.")] = 4,
    json: options.Json = False,
) -> None:
    """Check every headline claim of the paper: claim, check, finding. About a minute."""
    from maxaffine.meanfield.claims import CLAIMS, check_claims

    _one_of("only", only, CLAIMS)
    whole("seeds", seeds, 1, "give a number of seeds such as 4")
    with progress_bar(quiet=json) as report:
        found = check_claims(None if only is None else [only], seeds, report)
    if json:
        say_json({"claims": [asdict(claim) for claim in found]})
        return
    for claim in found:
        say(f"claim    {claim.claim}\ncheck    {claim.check}\nfinding  [{claim.verdict}] {claim.finding}\n")


@app.command("figures", cls=Command)
def figures(
    out: Annotated[str, typer.Option("--out", "-o", metavar="FOLDER", help="Folder for the PNG files, made if missing.")] = "out",
    record: Annotated[
        str | None, typer.Option(metavar="F.json", help="Record of `compare --full --save`; FOLDER/experiment.json if it exists.")
    ] = None,
    only: Annotated[str | None, typer.Option(metavar="NAME", help="Draw one figure.")] = None,
    backend: Backend = "numpy", device: Device = None, json: options.Json = False,
) -> None:  # fmt: skip
    """Draw the eight figures of docs/meanfield.md. Without a record the experiment is run first (hours; a GPU minutes)."""
    from maxaffine.meanfield.figures import FIGURES, RECORD, draw_all, load_experiment

    _one_of("only", only, FIGURES)
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"`out` (={out!r}) is a file; name a folder.")
    kept = Path(record) if record is not None else folder / RECORD
    names = [only] if only is not None else list(FIGURES)
    with progress_bar(quiet=json) as report:
        experiment = None
        if {"1-experiment", "6-success"} & set(names):
            if record is not None or kept.exists():
                experiment = load_experiment(kept)
            else:
                chosen: Any = backend
                folder.mkdir(parents=True, exist_ok=True)
                experiment = full_experiment(backend=chosen, device=device, progress=report)
                write_atomically(kept, canonical_json(experiment).encode())
        written = draw_all(folder, experiment, names, report)
    answer(json, {"files": [str(path) for path in written]}, ((str(path), FIGURES[path.stem]) for path in written))
