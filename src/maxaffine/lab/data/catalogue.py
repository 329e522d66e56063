"""What is known of the published data sets, from catalogue.toml: files, sizes, checksums, addresses.

`content` is the SHA-256 of a file as unpacked, so that plain, .gz, .xz and archived copies are all recognised; a `Download`
carries the checksum that its publisher states for the packed file.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from maxaffine.core.errors import BadInput


@dataclass(frozen=True)
class Download:
    """A file on its publisher's server."""

    name: str
    url: str
    bytes: int
    md5: str


@dataclass(frozen=True)
class DataSet:
    """A data set: what it is called, the files it consists of, in reading order, and where they come from."""

    name: str
    title: str
    kind: str  # "idx" or "cifar"
    shape: tuple[int, int, int]  # height, width, channels
    content: dict[str, str]  # file as unpacked: SHA-256
    downloads: tuple[Download, ...]
    archive: str | None = None  # name of the archive that holds all files


def _read() -> dict[str, DataSet]:
    found = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    for name, entry in found.items():
        address = entry.pop("address")
        downloads = tuple(Download(file, f"{address}/{file}", **facts) for file, facts in entry["downloads"].items())
        found[name] = DataSet(name, **{**entry, "shape": tuple(entry["shape"]), "downloads": downloads})
    return found


DATASETS = _read()


def dataset(name: str) -> DataSet:
    """The entry of that name."""
    if name not in DATASETS:
        raise BadInput(f"there is no data set {name!r}; there are {', '.join(DATASETS)}.")
    return DATASETS[name]
