"""MaxAffineRegressor beside its peers: equal tuning budgets, 5 x 5 cross-validation, paired comparisons.

    python benchmarks/regression.py [--quick] [--repeats N] [--journal FILE] [--fresh] [--page-only]

A unit is one model on one fold of one data set: fitted with its defaults, and again with the best of a number of candidates, its
defaults and others drawn as RandomizedSearchCV draws them; the same number, inner folds and seed for every model.  Every
finished unit is a line of the journal; a run that was killed goes on where it stopped.  The repeats are the outermost loop, so
an unfinished run is balanced.  benchmarks/results/regression.json, docs/regression.md and docs/images/regression.png are made
from the journal (`--quick`: two small data sets, printed only).  California housing is used where scikit-learn has it or can
fetch it.
"""

import argparse
import json
import os
import socket
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import loguniform, randint
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import (
    fetch_california_housing,
    load_diabetes,
    load_digits,
    make_friedman1,
    make_friedman2,
    make_friedman3,
)
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import r2_score, root_mean_squared_error
from sklearn.model_selection import GridSearchCV, KFold, ParameterSampler, RepeatedKFold
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from maxaffine.core.errors import BadInput, MaxaffineError
from maxaffine.core.records import plain, write_atomically
from maxaffine.lab.journal import Journal
from maxaffine.lab.machine import hardware, software
from maxaffine.regressor import MaxAffineRegressor

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "regression.json"
OURS = "MaxAffineRegressor"
CALIFORNIA = "California housing"


@dataclass(frozen=True)
class Plan:
    """What is asked of a run; a journal belongs to one plan."""

    friedman: int = 300
    digits: int = 500
    california: int = 1000
    diabetes: int = 442
    splits: int = 5
    repeats: int = 5
    candidates: int = 7
    inner: int = 3
    seed: int = 20
    names: tuple[str, ...] = ("diabetes", "Friedman-1", "Friedman-2", "Friedman-3", "digits")


QUICK = Plan(friedman=120, diabetes=120, splits=3, repeats=1, candidates=2, inner=2, names=("diabetes", "Friedman-1"))


@dataclass(frozen=True)
class Data:
    """A data set in words and numbers."""

    name: str
    words: str
    X: np.ndarray
    y: np.ndarray


def datasets(plan: Plan) -> list[Data]:
    """Data sets that need no network."""
    rng = np.random.default_rng(plan.seed)
    ill, written = load_diabetes(), load_digits()
    patients, some = rng.permutation(len(ill.data))[: plan.diabetes], rng.permutation(len(written.data))[: plan.digits]
    n, seed = plan.friedman, plan.seed
    made = [
        Data("diabetes", f"{len(patients)} patients, 10 features", ill.data[patients], ill.target[patients]),
        Data("Friedman-1", f"{n} samples, 10 features (5 count), noise 1", *make_friedman1(n, noise=1.0, random_state=seed)),
        Data("Friedman-2", f"{n} samples, 4 features, noise 125", *make_friedman2(n, noise=125.0, random_state=seed)),
        Data("Friedman-3", f"{n} samples, 4 features, noise 0.1", *make_friedman3(n, noise=0.1, random_state=seed)),
        Data(
            "digits",
            f"{len(some)} of the 1,797 images of 8 x 8, drawn once at random; the digit is predicted as a number",
            written.data[some],
            written.target[some].astype(float),
        ),
    ]  # fmt: skip
    return [data for data in made if data.name in plan.names]


def california(plan: Plan, patience: float = 8.0) -> Data | None:
    """California housing from scikit-learn's cache, or fetched if that is a matter of seconds; None where it is not reachable."""
    before = socket.getdefaulttimeout()
    try:
        socket.setdefaulttimeout(patience)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = fetch_california_housing(n_retries=1, delay=0.1)
    except (OSError, ValueError):
        return None
    finally:
        socket.setdefaulttimeout(before)
    some = np.random.default_rng(plan.seed).permutation(len(found.data))[: plan.california]
    words = f"{len(some):,} of the 20,640 blocks, drawn once at random, 8 features, median value"
    return Data(CALIFORNIA, words, found.data[some], found.target[some])


def models(features: int, seed: int) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Every model in its pipeline, and what its candidates are drawn from."""

    def scaled(model: Any, **choices: Any) -> tuple[Any, dict[str, Any]]:
        steps = Pipeline([("scale", StandardScaler()), ("model", model)])
        return steps, {f"model__{key}": value for key, value in choices.items()}

    def both(model: Any, **choices: Any) -> tuple[Any, dict[str, Any]]:  # models that have no offset or no scale of their own
        return scaled(
            TransformedTargetRegressor(model, transformer=StandardScaler()),
            **{f"regressor__{key}": value for key, value in choices.items()},
        )

    return {
        OURS: scaled(
            MaxAffineRegressor(),
            max_tokens=[16, 32, 64, 128, 256, 512], metric=[True, False], tilt=["auto", True, False],
        ),
        "nearest neighbours": scaled(
            KNeighborsRegressor(), n_neighbors=randint(2, 26), weights=["uniform", "distance"], p=[1, 2],
        ),
        "kernel ridge": both(
            KernelRidge(kernel="rbf"), alpha=loguniform(1e-3, 3.0), gamma=loguniform(0.03 / features, 3.0 / features),
        ),
        "gradient boosting": scaled(
            GradientBoostingRegressor(random_state=seed),
            n_estimators=[100, 150], learning_rate=loguniform(0.05, 0.3), max_depth=[2, 3, 4],
            subsample=[0.5, 0.8, 1.0], max_features=[0.3, 0.6, 1.0], min_samples_leaf=[1, 3, 10],
        ),
        "network": both(
            MLPRegressor(random_state=seed),
            hidden_layer_sizes=[(30,), (100,), (50, 50)], activation=["relu", "tanh"], solver=["adam", "lbfgs"],
            alpha=loguniform(1e-3, 1e1), learning_rate_init=loguniform(1e-3, 3e-2),
        ),
    }  # fmt: skip


def folds(plan: Plan, data: Data) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training and test samples of every fold, repeat after repeat."""
    return list(RepeatedKFold(n_splits=plan.splits, n_repeats=plan.repeats, random_state=plan.seed).split(data.X))


def unit(plan: Plan, data: Data, fold: int, name: str) -> dict[str, Any]:
    """One model on one fold, untuned and tuned.  Seconds are processor time of this process."""
    train, test = folds(plan, data)[fold]
    model, choices = models(data.X.shape[1], plan.seed + fold)[name]
    inner = KFold(plan.inner, shuffle=True, random_state=plan.seed + fold)
    candidates = [{}, *ParameterSampler(choices, plan.candidates - 1, random_state=plan.seed + fold)]  # {}: the defaults
    grid = [{key: [value] for key, value in candidate.items()} for candidate in candidates]
    search = GridSearchCV(model, grid, cv=inner, scoring="neg_mean_squared_error")
    done: dict[str, Any] = {"data": data.name, "fold": fold, "model": name, "train": len(train), "test": len(test)}
    for kind, fitted in (("default", model), ("tuned", search)):
        begun = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted.fit(data.X[train], data.y[train])
        seconds = time.process_time() - begun
        said = fitted.predict(data.X[test])
        done[kind] = {
            "rmse": root_mean_squared_error(data.y[test], said),
            "r2": r2_score(data.y[test], said),
            "seconds": round(seconds, 3),
        }
    done["tuned"]["candidates"] = len(search.cv_results_["params"])
    done["tuned"]["chosen"] = {key.split("__")[-1]: plain(value) for key, value in search.best_params_.items()}
    if name == OURS:
        head = search.best_estimator_["model"]
        done["tuned"]["head"] = {
            "tokens": head.n_tokens_,
            "metric": bool(np.ptp(head.metric_) > 0),
            "tilt": head.tilt_ is not None,
        }
    return done


def jobs(plan: Plan, known: list[Data], repeats: int | None = None) -> Iterator[tuple[Data, int, str]]:
    """All units of the first repeats, repeats outermost."""
    for repeat in range(plan.repeats if repeats is None else repeats):
        for data in known:
            for fold in range(repeat * plan.splits, (repeat + 1) * plan.splits):
                for name in models(1, 0):
                    yield data, fold, name


def run(
    plan: Plan, journal: Journal, known: list[Data], tell: Any = lambda line: None, repeats: int | None = None
) -> list[dict[str, Any]]:
    """Do the units that the journal does not have; all units of the first repeats (all, unless said), in their order."""
    asked = plain(asdict(plan))
    if not journal.entries:
        journal.append({"plan": asked})
    if plain(journal.entries[0].get("plan")) != asked:
        raise BadInput(f"{str(journal.path)!r} is the journal of another plan; take --fresh, or another --journal.")
    have = {(row["data"], row["fold"], row["model"]): row for row in journal.entries[1:]}
    wanted = list(jobs(plan, known, repeats))
    todo = [job for job in wanted if (job[0].name, *job[1:]) not in have]
    total, begun = len(wanted), time.monotonic()
    for number, (data, fold, name) in enumerate(todo, start=1):
        row = journal.append(unit(plan, data, fold, name))
        have[data.name, fold, name] = row
        left = (time.monotonic() - begun) / number * (len(todo) - number)
        errors = f"RMSE {row['default']['rmse']:.4g} untuned, {row['tuned']['rmse']:.4g} tuned"
        where = f"{total - len(todo) + number}/{total} {data.name}, fold {fold + 1}, {name}"
        tell(f"{where}: {errors} ({row['tuned']['seconds']:.1f} s); {left / 60:.0f} min left")
    return [have[data.name, fold, name] for data, fold, name in wanted]


def record(plan: Plan, known: list[Data], rows: list[dict[str, Any]], missing: list[str]) -> dict[str, Any]:
    """What is kept of a run."""
    used = ("python", "numpy", "scipy", "maxaffine")
    from sklearn import __version__ as sklearn_version

    machine = {**{key: hardware("cpu")[key] for key in ("processor", "cores", "memory")}, "load": os.getloadavg()[0]}
    return {
        "plan": plain(asdict(plan)),
        "machine": machine,
        "software": {**{key: software()[key] for key in used}, "scikit-learn": sklearn_version},
        "threads": os.environ.get("OMP_NUM_THREADS", "not set"),
        "data": {data.name: {"words": data.words, "spread": float(data.y.std())} for data in known},
        "missing": missing,
        "rows": rows,
    }


def say(line: str) -> None:
    """A line of progress."""
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Run or go on, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two small data sets in half a minute, printed and not kept")
    parser.add_argument("--repeats", type=int, default=None, help="only the first so many repeats; the rest can be added later")
    parser.add_argument("--journal", type=Path, default=None, help="where finished units are kept (default out/regression.jsonl)")
    parser.add_argument("--fresh", action="store_true", help="forget the journal")
    parser.add_argument("--page-only", action="store_true", help="page and figure from the results that are kept")
    asked = parser.parse_args()
    from regression_page import draw, page, table

    if asked.page_only:
        kept = json.loads(RESULTS.read_text())
    else:
        plan = QUICK if asked.quick else Plan()
        if asked.repeats is not None and not 1 <= asked.repeats <= plan.repeats:
            raise BadInput(f"`--repeats` (={asked.repeats}) must be between 1 and {plan.repeats}.")
        path = asked.journal or ROOT / "out" / ("regression-quick.jsonl" if asked.quick else "regression.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        if asked.fresh:
            path.unlink(missing_ok=True)
        known, missing = datasets(plan), []
        if not asked.quick:
            houses = california(plan)
            if houses is None:
                missing.append(CALIFORNIA)
                say(f"{CALIFORNIA}: NOT REACHABLE HERE; the table goes without it.")
            else:
                known.append(houses)
        rows = run(plan, Journal(path, say), known, say, asked.repeats)
        kept = record(replace(plan, repeats=asked.repeats or plan.repeats), known, rows, missing)
        if asked.quick:
            print("\n".join(table(kept)))
            return
        write_atomically(RESULTS, (json.dumps(kept, indent=None, separators=(",", ":"), sort_keys=True) + "\n").encode())
    place = ROOT / "docs" / "regression.md"
    write_atomically(place, page(kept, place.read_text() if place.exists() else "").encode())
    draw(kept, ROOT / "docs" / "images" / "regression.png")


if __name__ == "__main__":
    try:
        main()
    except MaxaffineError as refusal:
        print(refusal, file=sys.stderr)
        raise SystemExit(2) from None
