"""The options that name a table: --table, --values, --axes, --missing, read into a target and told in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maxaffine.cli.streams import printable, say
from maxaffine.core.errors import BadInput

if TYPE_CHECKING:
    from maxaffine.core.progress import Progress
    from maxaffine.target.samples import Samples
    from maxaffine.target.table import Table
    from maxaffine.target.table_files import Contents

MISSING = ("refuse", "ignore")


@dataclass(frozen=True)
class Named:
    """A table as the command line names it."""

    file: str
    values: str | None = None
    axes: str | None = None
    missing: str = "refuse"
    max_bytes: int | None = None

    def read(self, progress: "Progress") -> "tuple[Table | Samples, Contents]":
        """The target, and what the file holds."""
        from maxaffine.target.table_files import read_contents

        contents = read_contents(self.file, self.values, self.axes, self.max_bytes, progress)
        return contents.target(self.missing, Path(self.file).stem), contents

    @property
    def options(self) -> str:
        """The options again, for a command that reads the same table."""
        import shlex

        given = {"--table": self.file, "--values": self.values, "--axes": self.axes}
        return " ".join(f"{option} {shlex.quote(text)}" for option, text in given.items() if text is not None)


def named(table: str | None, dependent: Mapping[str, Any], excluded: Mapping[str, Any], max_bytes: int | None) -> Named | None:
    """The table that the options name; `dependent` make sense with --table alone, `excluded` without it alone."""
    if table is None:
        for option, given in dependent.items():
            if given:
                raise BadInput(f"{option} is for tables; name the file of one with --table, such as --table density.npz.")
        return None
    for option, given in excluded.items():
        if given:
            raise BadInput(f"--table (={table!r}) brings its own variables and values; leave out {option}.")
    missing = dependent.get("--missing") or "refuse"
    if missing not in MISSING:
        raise BadInput(f"--missing (={missing!r}) is not known; choose one of {', '.join(MISSING)}.")
    return Named(table, dependent.get("--values"), dependent.get("--axes"), missing, max_bytes)


def tell(table: Named, contents: "Contents") -> None:
    """What was read, on standard output."""
    gone = contents.missing
    left = f", {gone:,} of them missing and left out of the proof" if gone else ""
    say(printable(f"table      {table.file}: {contents.described()}{left}"))
    for note in contents.notes:
        say(printable(f"           {note}"))


def to_json(table: Named, contents: "Contents") -> dict[str, Any]:
    """What was read, as data."""
    return {
        "file": table.file,
        "kind": "samples" if contents.axes is None else "table",
        "variables": list(contents.names),
        "values": list(contents.outputs),
        "shape": [contents.count] if contents.axes is None else [len(axis) for axis in contents.axes],
        "missing": contents.missing,
        "notes": list(contents.notes),
    }
