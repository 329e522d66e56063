"""Which data a run gets: the user's, downloaded ones if the user agrees, synthetic ones for quick runs only."""

from collections.abc import Callable, Sequence
from pathlib import Path

from maxaffine.core.errors import Refused
from maxaffine.lab.data.catalogue import dataset
from maxaffine.lab.data.source import VARIABLE, DataSource, cache_folder, locate, missing

WARNING = (
    "SYNTHETIC DATA: {names} not found, so this quick run uses made-up images of the same format. Its numbers say nothing about "
    "the published data; give --data DIR for those."
)


def choose(
    names: Sequence[str],
    given: Path | None,
    quick: bool,
    warn: Callable[[str], None],
    download: Callable[[Sequence[str]], DataSource] | None = None,
) -> DataSource:
    """The source of these data sets.  A quick run never downloads; a full run never makes data up."""
    found = locate(names, given)
    if found is not None:
        return found
    if quick:
        warn(WARNING.format(names=", ".join(names)))
        return DataSource(None)
    lacking = missing(cache_folder(), names)
    if download is not None:
        return download(lacking)
    size = sum(file.bytes for name in lacking for file in dataset(name).downloads) / 1e6
    raise Refused(
        f"this run needs {', '.join(dataset(name).title for name in lacking)}, and there is no such data here: name a folder "
        f"with --data DIR or {VARIABLE}, or add --download to fetch and verify them ({size:.0f} MB)."
    )
