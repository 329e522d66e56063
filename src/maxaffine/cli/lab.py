"""`maxaffine lab`: the experiments that the papers ask for, run, resumed, judged and reported.

    maxaffine lab run norms-under-noise --quick
"""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from maxaffine.cli import options
from maxaffine.cli.command import Command, single
from maxaffine.cli.streams import complain, say, say_json, table
from maxaffine.core.errors import BadInput
from maxaffine.lab import executors
from maxaffine.lab.data import DataSource, choose, locate
from maxaffine.lab.registry import EXPERIMENTS, find, resolve
from maxaffine.lab.runner import default_folder, opened, work

INTERRUPTED = 130

app = single()

Name = Annotated[str, typer.Argument(metavar="NAME", help="One of `maxaffine lab list`, or module:attribute of your own.")]


@app.callback()
def _about() -> None:
    """Repeat the experiments of the papers: resumable, recorded, each with a verdict."""


@app.command("list", cls=Command)
def list_experiments(json: options.Json = False) -> None:
    """List the experiments: names, claims, data sets, parameters."""
    found = [(name, find(name)) for name in EXPERIMENTS]
    if json:
        keys = ("version", "claim", "paper", "protocol", "rule", "parameters", "quick", "datasets", "splits")
        say_json({"experiments": [{"name": name, **{key: getattr(one, key) for key in keys}} for name, one in found]})
        return
    for name, experiment in found:
        say(name)
        say(f"    {experiment.claim}")
        needs = ", ".join(experiment.datasets) or "no data"
        say(f"    {experiment.paper}; {needs}; version {experiment.version}")
        say(f"    parameters: {', '.join(f'{key}={_short(value)}' for key, value in experiment.parameters.items())}")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


@app.command("run", cls=Command)
def run_experiment(
    name: Name,
    quick: Annotated[bool, typer.Option("--quick", help="A short version of the run; never downloads data.")] = False,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="K=V", help="A parameter; may be repeated.")] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", help="Number of seeds, 0 to N - 1.")] = None,
    device: Annotated[str, typer.Option("--device", metavar="cpu|cuda", help="Device for the computation.")] = "cpu",
    data: Annotated[str | None, typer.Option("--data", metavar="DIR", help="Folder of mnist/, fashion-mnist/, cifar10/.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Download and verify missing data sets.")] = False,
    workers: Annotated[int | None, typer.Option("--workers", help="Number of local worker processes.")] = None,
    dask: Annotated[str | None, typer.Option("--dask", metavar="ADDRESS", help="A Dask scheduler, tcp://host:port.")] = None,
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="DIR", help="Folder of the run; lab-runs/NAME-...")] = None,
    json: options.Json = False,
) -> int:
    """Run an experiment, or resume an interrupted one with the same command."""
    if workers is not None and dask is not None:
        raise BadInput("give one of `--workers` and `--dask`: units run either on this machine or on the cluster.")
    if quick and download:
        raise BadInput("a `--quick` run never downloads; leave one of `--quick` and `--download` out.")
    experiment = find(name)
    parameters = resolve(experiment, quick, settings or (), seeds)
    names = experiment.needs(parameters)
    given = Path(data) if data is not None else None
    synthetic = bool(names) and quick and locate(names, given) is None
    folder = Path(out) if out is not None else default_folder(experiment, parameters, quick, synthetic)
    executor = executors.cluster(dask) if dask is not None else executors.processes(workers if workers is not None else 1)

    def images() -> DataSource:
        return choose(names, given, quick, complain, _downloader(download, quick))

    try:
        with opened(name, parameters, quick, folder, images, complain) as (run, source):
            work(run, source, device, executor)
            from maxaffine.lab.finish import finish

            record = finish(run)
    except KeyboardInterrupt:
        complain(f"interrupted; finished units are kept in {str(folder)!r}; run the same command to resume.")
        return INTERRUPTED
    if json:
        say_json({**record, "folder": str(folder)})
    else:
        _say_record(record, folder)
    return 0


def _downloader(agreed: bool, quick: bool) -> Any:
    """A function that fetches data sets, if the user agreed to that, by option or at the terminal."""
    asked = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
    if quick or not (agreed or asked):
        return None
    from maxaffine.lab.data.download import fetch_all

    return partial(fetch_all, ask=None if agreed else partial(typer.confirm, err=True), say=complain)


def _say_record(record: dict[str, Any], folder: Path) -> None:
    verdict = record["verdict"]
    if record["synthetic"]:
        complain("SYNTHETIC DATA: the numbers below come from made-up images, not from the published data.")
    kind = ", quick" if record["quick"] else ""
    data = ", SYNTHETIC data" if record["synthetic"] else ""
    say(f"experiment  {record['experiment']}, version {record['version']}{kind}{data}")
    say(f"claim       {record['claim']}")
    say(f"verdict     {verdict['outcome']}")
    say(f"            {verdict['sentence']}")
    for key, value in verdict["numbers"].items() if isinstance(verdict["numbers"], dict) else ():
        say(f"            {key} = {_number(value)}")
    say("")
    rows = record["table"]["rows"]
    cells = [tuple(map(str, record["table"]["header"]))]
    cells += [tuple(_number(cell) for cell in row) for row in rows] if isinstance(rows, list) else []
    for line in table(cells):
        say(line)
    say("")
    say(f"wall time   {record['card']['wall time']}")
    say(f"run         {folder} (record.json, results.json, figure.png)")


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@app.command("keep", cls=Command)
def keep_run(
    folder: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a finished full run.")],
    results: Annotated[str, typer.Option("--results", metavar="DIR", help="Where results are kept.")] = "results",
) -> None:
    """Copy record, results and figure of a finished full run to results/NAME, where `lab report` finds them."""
    from maxaffine.lab.finish import keep

    say(f"kept in {keep(Path(folder), Path(results))}")


@app.command("report", cls=Command)
def write_report(
    results: Annotated[str, typer.Option("--results", metavar="DIR", help="Where results are kept.")] = "results",
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE.html", help="The page.")] = "lab-report.html",
    markdown: Annotated[
        str | None, typer.Option("--markdown", metavar="FILE.md", help="Else docs/experiments.md, where there is a docs/.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Make one self-contained HTML page and one markdown page from the kept records."""
    from maxaffine.lab.report import write

    text = Path(markdown) if markdown is not None else Path("docs/experiments.md") if Path("docs").is_dir() else None
    pages = write(Path(results), Path(out), text)
    if json:
        say_json(pages)
    else:
        say(f"{pages['experiments']} experiments: {', '.join(pages['files'])}")


