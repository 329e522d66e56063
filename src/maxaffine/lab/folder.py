"""The folder of a run: what was asked for, the journal, tensors, and later the record and the figure.

    run.json        experiment, version, parameters, data: what the results below belong to
    results.jsonl   the journal, in the order of arrival
    tensors/        one safetensors file per unit that has any
    results.json    units and values in the order of the experiment, once all are done: the same bytes however it was run
    record.json     what the run says about itself; figure.png
    lock            held by the one process that works here; the system releases it when that dies, however it dies
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.records import canonical_json, plain, sha256, write_atomically
from maxaffine.lab.data.source import SYNTHETIC
from maxaffine.lab.experiment import Experiment
from maxaffine.lab.journal import Journal
from maxaffine.lab.unit import Outcome

FORMAT = 1
RUN, JOURNAL, TENSORS, SCRATCH, RESULTS = "run.json", "results.jsonl", "tensors", "scratch", "results.json"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=,+-]{0,150}")


@dataclass(frozen=True)
class Header:
    """What the results of a folder belong to."""

    experiment: str
    home: str
    version: int
    parameters: dict[str, Any]
    quick: bool
    data: dict[str, Any]  # of maxaffine.lab.data.describe; empty for experiments without data sets

    @property
    def synthetic(self) -> bool:
        """Whether any of the data are made up."""
        return any(entry["origin"] == SYNTHETIC for entry in self.data.values())


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file that this package wrote; anything else is an error with a sentence."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as failure:
        raise BadInput(f"cannot read {str(path)!r}: {failure.strerror or failure}.") from None
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise BadInput(
            f"{str(path)!r} is damaged: it is not JSON. Restore it, or use a new --out; results.jsonl beside it is untouched."
        )
    return content


def read_header(folder: Path) -> Header | None:
    """The header of a run folder, None if nothing was run there."""
    path = folder / RUN
    if not path.exists():
        if (folder / JOURNAL).exists():
            raise BadInput(
                f"{str(folder)!r} has results but no {RUN}, which says what they belong to; restore it, or use a new --out."
            )
        return None
    content = read_json(path)
    try:
        if content["format"] != FORMAT:
            raise BadInput(f"{str(path)!r} has format {content['format']!r}; this version of maxaffine reads format {FORMAT}.")
        return Header(**{field.name: content[field.name] for field in fields(Header)})
    except KeyError as failure:
        raise BadInput(f"{str(path)!r} is damaged: it lacks {failure}. Restore it, or use a new --out.") from None


def write_header(folder: Path, header: Header) -> None:
    """Say what the folder's results will belong to."""
    content = {"format": FORMAT, **header.__dict__}
    write_atomically(folder / RUN, (json.dumps(plain(content), indent=1, allow_nan=False) + "\n").encode())


def check_header(header: Header, experiment: Experiment, parameters: Mapping[str, Any], folder: Path) -> None:
    """Refuse to mix the results of two different runs."""
    if (header.experiment, header.version) != (experiment.name, experiment.version):
        raise BadInput(
            f"{str(folder)!r} holds {header.experiment} version {header.version}, not {experiment.name} version "
            f"{experiment.version}; use another --out."
        )
    different = sorted(k for k in {*header.parameters, *parameters} if header.parameters.get(k) != parameters.get(k))
    if different:
        said = "; ".join(f"{k} was {header.parameters.get(k)!r} and is now {parameters.get(k)!r}" for k in different[:3])
        raise BadInput(f"{str(folder)!r} holds a run with other parameters ({said}); use another --out, or the same parameters.")


def checked_units(experiment: Experiment, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The units as JSON holds them, every id sane and unique."""
    units: list[dict[str, Any]] = json.loads(json.dumps(plain(experiment.units(parameters)), allow_nan=False))
    ids = [unit.get("id") for unit in units]
    if not units:
        raise BadInput(f"{experiment.name} has no work units with these parameters; see `maxaffine lab list`.")
    for name in ids:
        if not isinstance(name, str) or not _ID.fullmatch(name):
            raise BadInput(f"{experiment.name} has a unit id {name!r}; ids are letters, digits and ._=,+- up to 150.")
    if len({str(name).lower() for name in ids}) != len(ids):
        raise BadInput(f"{experiment.name} has two units of the same id; ids must differ by more than case.")
    return units


class Results:
    """The journal and the tensors of a run folder, by unit."""

    def __init__(self, folder: Path, warn: Callable[[str], None] = lambda sentence: None) -> None:
        self.folder = folder
        self.journal = Journal(folder / JOURNAL, warn)
        self.done: dict[str, dict[str, Any]] = {}
        for entry in self.journal.entries:
            if self._tensors_are_whole(entry):
                self.done[entry["unit"]["id"]] = entry
            else:
                warn(f"the tensors of unit {entry['unit']['id']} are missing or damaged; the unit is repeated.")
                self.done.pop(entry["unit"]["id"], None)

    def _tensors_are_whole(self, entry: dict[str, Any]) -> bool:
        wanted = entry.get("tensors_sha256")
        if wanted is None:
            return True
        try:
            return sha256(self.tensor_path(entry["unit"]["id"]).read_bytes()) == str(wanted)
        except OSError:
            return False

    def tensor_path(self, unit: str) -> Path:
        """Where the arrays of a unit are."""
        return self.folder / TENSORS / f"{unit}.safetensors"

    def accept(self, unit: dict[str, Any], outcome: Outcome) -> None:
        """Put the outcome of a unit on the disk: arrays first, then the line that makes the unit count as done."""
        digest = None
        if outcome.tensors:
            from safetensors.numpy import save

            content = bytes(save(dict(outcome.tensors), metadata={"unit": canonical_json(unit)}))
            digest = sha256(content)
            path = self.tensor_path(unit["id"])
            try:
                path.parent.mkdir(exist_ok=True)
            except OSError as failure:
                raise BadInput(f"cannot write in {str(self.folder)!r}: {failure.strerror or failure}.") from None
            write_atomically(path, content)
        entry = {
            "unit": unit, "values": outcome.values, "tensors_sha256": digest, "seconds": outcome.seconds,
            "hardware": outcome.hardware, "software": outcome.software, "source": outcome.source,
        }  # fmt: skip
        self.done[unit["id"]] = self.journal.append(entry)

    def rows(self, units: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The results of these units, in their order, without what differs from run to run."""
        return [{"unit": self.done[unit["id"]]["unit"], "values": self.done[unit["id"]]["values"]} for unit in units]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for the duration; Refused with a sentence when another living process holds it.

    The file stays; it is the lock on it that counts, so one left behind by a dead process is simply taken over.
    """
    try:
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as failure:
        raise BadInput(f"cannot write in {str(folder)!r}: {failure.strerror or failure}; use another --out.") from None
    try:
        if not _take(descriptor):
            owner = os.pread(descriptor, 64, 0).decode(errors="replace").strip() if hasattr(os, "pread") else ""
            who = f"process {owner}" if owner.isdigit() else "another process"
            raise Refused(f"{who} is using {str(folder)!r}; wait until it finishes, or use another --out.")
        with suppress(OSError):  # the number is for people; a full disk must not keep a run from finishing
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)  # releases the lock


def _take(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
