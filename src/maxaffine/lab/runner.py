"""The run: open the folder, do the units that are not done yet, through an executor; resumable at any moment."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.records import canonical_json, sha256
from maxaffine.lab.data import DataSource, describe
from maxaffine.lab.display import Display
from maxaffine.lab.executors import InProcess, Opener, in_process
from maxaffine.lab.experiment import Experiment
from maxaffine.lab.folder import SCRATCH, Header, Results, check_header, checked_units, locked, read_header, write_header
from maxaffine.lab.registry import find, home_of
from maxaffine.lab.unit import Task, check_device, execute

DEATHS = 3  # worker pools that may die in a row without one unit done


def default_folder(experiment: Experiment, parameters: dict[str, Any], quick: bool, synthetic: bool) -> Path:
    """lab-runs/NAME[-quick]-<hash> under the current folder: the same request, the same folder."""
    asked = canonical_json([experiment.name, experiment.version, parameters, synthetic])
    return Path("lab-runs") / f"{experiment.name}{'-quick' if quick else ''}-{sha256(asked.encode())[:8]}"


@dataclass
class Run:
    """An opened run: its folder is locked while this exists."""

    experiment: Experiment
    name: str  # as the registry knows it
    folder: Path
    header: Header
    units: list[dict[str, Any]]
    results: Results

    @property
    def left(self) -> list[dict[str, Any]]:
        """Units that are not done."""
        return [unit for unit in self.units if unit["id"] not in self.results.done]


@contextmanager
def opened(
    name: str, parameters: dict[str, Any], quick: bool, folder: Path, data: Callable[[], DataSource | None],
    warn: Callable[[str], None] = lambda sentence: None,
) -> Iterator[tuple[Run, DataSource | None]]:  # fmt: skip
    """Open or make the run folder; `data` is asked for the images only if units are left that need them."""
    experiment = find(name)
    units = checked_units(experiment, parameters)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise BadInput(f"cannot make the folder {str(folder)!r}: {failure.strerror or failure}; use another --out.") from None
    with locked(folder):
        header = read_header(folder)
        if header is not None:
            check_header(header, experiment, parameters, folder)
        results = Results(folder, warn)
        source = None
        names = experiment.needs(parameters)
        if header is None or (names and any(unit["id"] not in results.done for unit in units)):
            source = data() if names else None
            described = describe(source, names) if source is not None else {}
            if header is None:
                header = Header(experiment.name, home_of(name), experiment.version, parameters, quick, described)
                write_header(folder, header)
            elif header.data != described:
                raise BadInput(
                    f"the data differ from those that {str(folder)!r} was begun with (other checksums); use the same data, or "
                    "another --out."
                )
        yield Run(experiment, name, folder, header, units, results), source


def work(
    run: Run, source: DataSource | None, device: str = "cpu", open_executor: Opener = in_process, only: str = ""
) -> int:
    """Do what is left of the units whose id contains `only`; how many were done now."""
    check_device(device)
    tasks = [
        Task(run.name, unit, run.header.parameters, device, source, str(run.folder / SCRATCH / unit["id"]))
        for unit in run.left
        if only in unit["id"]
    ]
    if not tasks:
        return 0
    with Display(run.experiment.name, len(run.units), len(run.units) - len(run.left)) as display:
        _through(tasks, open_executor, run, display)
    scratch = run.folder / SCRATCH
    if scratch.is_dir() and not any(scratch.iterdir()):
        scratch.rmdir()
    return len(tasks)


def _through(tasks: Iterable[Task], open_executor: Opener, run: Run, display: Display) -> None:
    """Submit, wait, accept; a pool whose workers died is opened anew, as long as some unit gets done.

    When a unit fails, nothing more is begun; what is under way elsewhere is waited for and kept, then the failure is raised.
    """
    waiting = deque(tasks)
    deaths = 0
    failure: Exception | None = None
    while waiting:
        flying: dict[Future[Any], Task] = {}
        before = len(run.results.done)
        try:
            with open_executor() as (executor, room):
                here = isinstance(executor, InProcess)
                call = partial(execute, listener=display.metric) if here else execute
                while waiting or flying:
                    while waiting and len(flying) < room:
                        flying[executor.submit(call, waiting[0])] = waiting[0]
                        waiting.popleft()
                    for future in wait(flying, return_when=FIRST_COMPLETED).done:
                        try:
                            outcome = future.result()
                        except (BrokenExecutor, CancelledError):
                            raise
                        except Exception as trouble:
                            task = flying.pop(future)
                            failure = failure or _told(trouble, task)
                            waiting.clear()
                            continue
                        task = flying.pop(future)
                        run.results.accept(task.unit, outcome)
                        display.unit_done(task.unit["id"], outcome.metric)
        except (BrokenExecutor, CancelledError):
            if failure is None:
                waiting.extendleft(reversed(flying.values()))
            deaths = 0 if len(run.results.done) > before else deaths + 1
            if deaths == DEATHS:
                raise Refused(
                    f"workers died {DEATHS} times without finishing a unit, the last time with {waiting[0].unit['id']!r}; is "
                    "there enough memory? Use fewer --workers. Finished units are kept; run the same command to resume."
                ) from None
    if failure is not None:
        raise failure


def _told(trouble: Exception, task: Task) -> Exception:
    """A failure as it is raised: a unit that kills its Dask workers, one after the other, is a sentence."""
    if type(trouble).__name__ != "KilledWorker":
        return trouble
    return Refused(
        f"the unit {task.unit['id']!r} killed several workers of the cluster; is there enough memory on them? Finished units "
        "are kept; run the same command to resume."
    )
