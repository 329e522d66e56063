"""What follows when all units are done: results in order, verdict, table, figure, record; and keeping the small files."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.records import plain, replace_atomically, write_atomically
from maxaffine.lab.folder import RESULTS
from maxaffine.lab.record import FIGURE, RECORD, build, read
from maxaffine.lab.runner import Run

KEPT = (RECORD, RESULTS, FIGURE)
KEEP_LIMIT = 8 << 20  # bytes of one file that may be kept under version control
BANNER = "SYNTHETIC DATA: made-up images, not the published data set"


def finish(run: Run) -> dict[str, Any]:
    """Judge the results and write results.json, figure.png and record.json."""
    left = run.left
    if left:
        raise Refused(f"{len(left)} of {len(run.units)} units are not done, the first is {left[0]['id']}; run the command again.")
    rows, parameters = run.results.rows(run.units), run.header.parameters
    content = {"experiment": run.header.experiment, "version": run.header.version, "parameters": parameters, "results": rows}
    results = (json.dumps(plain(content), separators=(",", ":"), allow_nan=False) + "\n").encode()
    write_atomically(run.folder / RESULTS, results)
    verdict = run.experiment.verdict(rows, parameters)
    table = run.experiment.table(rows, parameters)
    replace_atomically(run.folder / FIGURE, lambda path: _draw(run, rows, path))
    entries = [run.results.done[unit["id"]] for unit in run.units]
    record = build(run.experiment, run.header, entries, verdict, table, results)
    write_atomically(run.folder / RECORD, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())
    return record


def _draw(run: Run, rows: list[dict[str, Any]], path: Path) -> None:
    run.experiment.draw(rows, run.header.parameters, path)
    if not path.read_bytes().startswith(b"\x89PNG"):
        raise BadInput(f"{run.experiment.name} did not draw a PNG; `draw` must write one to the path it is given.")
    if run.header.synthetic:
        _stamp(path)


def _stamp(path: Path) -> None:
    """Write over the top of a picture that its data are made up."""
    from matplotlib.figure import Figure
    from matplotlib.image import imread

    pixels = imread(path, format="png")
    height, width = pixels.shape[:2]
    size = min(30.0, 0.9 * width / (0.75 * len(BANNER)))  # pixels; a bold letter is about three quarters as wide as high
    band = round(2 * size)
    figure = Figure(figsize=(width / 100, (height + band) / 100), dpi=100, facecolor="#b00020")
    axes = figure.add_axes((0, 0, 1, height / (height + band)))
    axes.imshow(pixels, aspect="auto", interpolation="nearest")
    axes.set_axis_off()
    middle = (height + band / 2) / (height + band)
    figure.text(0.5, middle, BANNER, color="white", weight="bold", ha="center", va="center", fontsize=0.72 * size)
    figure.savefig(path, format="png", dpi=100, metadata={"Software": "maxaffine"})


def keep(folder: Path, results: Path) -> Path:
    """Copy the small files of a finished full run to results/NAME, where the report finds them."""
    record = read(folder)
    if record["quick"] or record["synthetic"]:
        kind = "used synthetic data" if record["synthetic"] else "was a quick one"
        raise Refused(f"{str(folder)!r} {kind}; only full runs on real data are kept as results.")
    for name in KEPT:
        size = (folder / name).stat().st_size if (folder / name).is_file() else 0
        if not 0 < size <= KEEP_LIMIT:
            raise Refused(f"{str(folder / name)!r} has {size:,} bytes; files that are kept have 1 to {KEEP_LIMIT:,}.")
    home = results / str(record["experiment"])
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise BadInput(f"cannot make {str(home)!r}: {failure.strerror or failure}.") from None
    for name in KEPT:
        replace_atomically(home / name, partial(shutil.copyfile, folder / name))
    return home
