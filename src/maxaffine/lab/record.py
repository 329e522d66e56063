"""The record of a finished run: verdict, table, and a card that answers the ten reproducibility variables by itself.

Research type, pseudocode, source code, open data, splits, hardware, software, experiment setup, seeds, wall time: each is
read from the run, none is ever empty.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from maxaffine.core.errors import BadInput
from maxaffine.core.records import canonical_json, sha256
from maxaffine.lab import machine
from maxaffine.lab.experiment import Experiment, Table, Verdict
from maxaffine.lab.folder import Header, read_json
from maxaffine.lab.registry import SEEDS

FORMAT = 1
RECORD, FIGURE = "record.json", "figure.png"
VARIABLES = (
    "research type", "pseudocode", "source code", "open data", "splits", "hardware", "software", "experiment setup", "seeds",
    "wall time",
)  # fmt: skip


def build(
    experiment: Experiment, header: Header, entries: Sequence[Mapping[str, Any]], verdict: Verdict, table: Table, results: bytes
) -> dict[str, Any]:
    """The record of a run from the journal's entries, in the order of the units."""
    parameters = header.parameters
    unseeded = str(parameters.get("seed", "none needed: nothing is random"))
    seconds = [float(entry["seconds"]) for entry in entries]
    record = {
        "format": FORMAT,
        "experiment": experiment.name,
        "version": experiment.version,
        "claim": experiment.claim,
        "paper": experiment.paper,
        "protocol": experiment.protocol,
        "rule": experiment.rule,
        "quick": header.quick,
        "synthetic": header.synthetic,
        "verdict": {"outcome": verdict.outcome, "sentence": verdict.sentence, "numbers": dict(verdict.numbers)},
        "table": {"header": table.header, "rows": table.rows},
        "figure": {"file": FIGURE, "alt": f"{experiment.name}: {verdict.sentence}"},
        "results": {"file": "results.json", "sha256": sha256(results), "units": len(entries)},
        "card": {
            "research type": "experiment: a published claim tested again, with a verdict rule fixed before the run",
            "pseudocode": f"the module {module_path(header.home)} is the protocol, line by line",
            "source code": _sources(header.home, entries),
            "open data": _data(header),
            "splits": _splits(experiment, header),
            "hardware": _tally(entries, "hardware"),
            "software": _tally(entries, "software"),
            "experiment setup": {"version": experiment.version, "quick": header.quick, "parameters": parameters},
            "seeds": f"0 to {parameters[SEEDS] - 1}" if SEEDS in parameters else unseeded,
            "wall time": f"{_span(sum(seconds))} over {len(seconds)} units, the longest {_span(max(seconds))}",
        },
    }
    filled: dict[str, Any] = stated(record)
    return filled


def module_path(home: str) -> str:
    """The path of an experiment's module inside the sources, such as src/maxaffine/lab/mean_field.py."""
    module = home.partition(":")[0]
    return f"src/{module.replace('.', '/')}.py" if module.startswith("maxaffine.") else f"{module.rsplit('.', 1)[-1]}.py"


def stated(value: Any) -> Any:
    """The value as JSON holds it, every empty place filled by a word that says so, NaN and infinities as words."""
    if isinstance(value, Mapping):
        return {key: stated(item) for key, item in value.items()} or "none"
    if isinstance(value, (list, tuple)):
        return [stated(item) for item in value] or "none"
    if hasattr(value, "tolist"):
        return stated(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return "none" if value is None or value == "" else value


def _sources(home: str, entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every version of the code that units ran with, and how many did."""
    here = machine.source(home.partition(":")[0])
    counted = Counter(canonical_json(entry["source"]) for entry in entries)
    found = []
    for text, units in counted.items():
        source = json.loads(text)
        same_package = "commit" in here and source["package_sha256"] == here["package_sha256"]
        if "commit" in source or same_package:
            known = source if "commit" in source else here
            commit = known["commit"]
            tree = "modified beside the commit" if known["dirty"] else "clean"
            tree += "" if "commit" in source else "; units ran on a copy of the same package"
        else:
            same = source["module_sha256"] == here["module_sha256"]
            known = f"; recorded at {here['commit']}" if "commit" in here else ""
            commit = f"units ran on a copy without version control{known}"
            tree = f"module {'unchanged' if same else 'changed'} since, other modules of the package changed since"
        found.append(
            {
                "commit": commit, "tree": tree, "module": module_path(home), "module_sha256": source["module_sha256"],
                "package_sha256": source["package_sha256"], "units": units,
            }
        )  # fmt: skip
    return found


def _data(header: Header) -> Any:
    if not header.data:
        return f"no data set: synthetic, made by {module_path(header.home)} from seed and parameters"
    keys = ("title", "origin", "checksums")
    return {name: {key: entry[key] for key in keys} for name, entry in header.data.items()}


def _splits(experiment: Experiment, header: Header) -> Any:
    if not header.data:
        return experiment.splits
    counts = {name: f"{entry['train']:,} training and {entry['test']:,} test images" for name, entry in header.data.items()}
    seeds = header.parameters.get(SEEDS)
    drawn = "the official files fix the split" + (f"; subsets and orders from seeds 0 to {seeds - 1}" if seeds else "")
    return {"use": experiment.splits, "available": counts, "seed": drawn}


def _tally(entries: Sequence[Mapping[str, Any]], key: str) -> list[dict[str, Any]]:
    counted = Counter(canonical_json(entry[key]) for entry in entries)
    return [{**json.loads(text), "units": units} for text, units in counted.items()]


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.2f} h"


def empty_fields(value: Any, where: str = "record") -> list[str]:
    """The places of a record that hold nothing; of a sound record there are none."""
    if value is None or value in ("", [], {}):
        return [where]
    parts: Any = ()
    if isinstance(value, dict):
        parts = ((item, f"{where}.{key}") for key, item in value.items())
    elif isinstance(value, list):
        parts = ((item, f"{where}[{i}]") for i, item in enumerate(value))
    return [place for item, below in parts for place in empty_fields(item, below)]


def read(folder: Path) -> dict[str, Any]:
    """The record of a finished run, with the results it refers to; anything else is an error with a sentence."""
    path = folder / RECORD
    if not path.is_file():
        raise BadInput(f"{str(folder)!r} has no {RECORD}: the run is not finished. `maxaffine lab run` finishes it.")
    record = read_json(path)
    needed = {"format", "experiment", "claim", "paper", "rule", "protocol", "verdict", "table", "figure", "results", "card"}
    if record.get("format") != FORMAT or not needed <= set(record):
        raise BadInput(f"{str(path)!r} is not a record of format {FORMAT}; run `maxaffine lab run` on its folder again.")
    empty = empty_fields(record)
    if empty:
        raise BadInput(f"{str(path)!r} has empty fields ({', '.join(empty[:3])}); run `maxaffine lab run` on its folder again.")
    results = folder / record["results"]["file"]
    try:
        digest = sha256(results.read_bytes())
    except OSError as failure:
        raise BadInput(f"cannot read {str(results)!r}, which the record refers to: {failure.strerror or failure}.") from None
    if digest != record["results"]["sha256"]:
        raise BadInput(f"{str(results)!r} does not match the record (its SHA-256 differs); restore one of the two.")
    return record
