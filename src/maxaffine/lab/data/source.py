"""Where images come from: `--data`, MAXAFFINE_DATA, the cache, or, where asked for, synthetic ones.

A folder holds mnist/, fashion-mnist/ and cifar10/ with the published files, packed or not.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.records import sha256
from maxaffine.lab.data import catalogue, files, synthetic
from maxaffine.lab.data.files import Bytes

VARIABLE = "MAXAFFINE_DATA"
SYNTHETIC = "SYNTHETIC"  # the origin of made-up data in records
PARTS = ("train images", "train labels", "test images", "test labels")
WARNING = (
    "SYNTHETIC DATA: {names} not found, so this quick run uses made-up images of the same format. Its numbers say nothing about "
    "the published data; give --data DIR for those."
)

Arrays = tuple[Bytes, Bytes, Bytes, Bytes]  # the parts


@dataclass(frozen=True)
class ImageSet:
    """One data set: images (n, height, width, channels) and labels (n,), all uint8."""

    train_images: Bytes
    train_labels: Bytes
    test_images: Bytes
    test_labels: Bytes
    name: str
    synthetic: bool
    checksums: dict[str, str]  # file as unpacked: SHA-256
    published: bool  # every file has the checksum of the published one


@dataclass(frozen=True)
class DataSource:
    """Loads data sets by name: from a folder, or synthetic ones where `folder` is None."""

    folder: str | None

    @property
    def synthetic(self) -> bool:
        """Whether the images are made up."""
        return self.folder is None

    def load(self, name: str) -> ImageSet:
        """The images and labels; read once per process."""
        return _load(self.folder, name)


@lru_cache(maxsize=3)
def _load(folder: str | None, name: str) -> ImageSet:
    entry = catalogue.dataset(name)
    if folder is None:
        arrays = synthetic.images(entry)
        sums = {part: sha256(array.tobytes()) for part, array in zip(PARTS, arrays, strict=True)}
    else:
        contents = _contents(Path(folder) / entry.name, entry)
        sums = {file: sha256(content) for file, content in contents.items()}
        arrays = _arrays(Path(folder) / entry.name, entry, contents)
    for array in arrays:
        array.flags.writeable = False
    return ImageSet(*arrays, entry.name, synthetic=folder is None, checksums=sums, published=sums == entry.content)


def _contents(home: Path, entry: catalogue.DataSet) -> dict[str, bytes]:
    """Every file of the data set as unpacked, in reading order."""
    contents = {}
    for file in entry.content:
        path = files.find(home, file, entry.archive)
        if path is None:
            raise BadInput(f"{str(home)!r} has no {file} (plain, .gz or .xz); {entry.title} needs {', '.join(entry.content)}.")
        contents[file] = files.unpack(path, file)
    return contents


def _arrays(home: Path, entry: catalogue.DataSet, contents: dict[str, bytes]) -> Arrays:
    """Images and labels of the two parts, checked; of CIFAR the last batch is the test."""
    shown = {file: repr(str(home / file)) for file in contents}
    if entry.kind == "idx":
        read = [files.idx(content, 3 if "images" in file else 1, shown[file]) for file, content in contents.items()]
        arrays = read[0][..., None], read[1], read[2][..., None], read[3]
    else:
        *batches, test = (files.cifar(content, shown[file]) for file, content in contents.items())
        arrays = np.concatenate([x for x, _ in batches]), np.concatenate([y for _, y in batches]), *test
    for images, labels, part in ((arrays[0], arrays[1], "training"), (arrays[2], arrays[3], "test")):
        if len(images) != len(labels) or len(images) == 0:
            raise BadInput(f"{str(home)!r} has {len(images)} {part} images and {len(labels)} labels; get the files again.")
        if images.shape[1:] != entry.shape:
            size = " x ".join(map(str, images.shape[1:]))
            raise BadInput(f"{str(home)!r} has images of {size}; {entry.title} has {' x '.join(map(str, entry.shape))}.")
        if labels.max() > 9:
            raise BadInput(f"{str(home)!r} has a {part} label {labels.max()}; {entry.title} has labels 0 to 9.")
    return arrays


def cache_folder() -> Path:
    """Where downloads are kept: XDG_CACHE_HOME/maxaffine/data, by default under ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "maxaffine" / "data"


def missing(folder: Path, names: Iterable[str]) -> list[str]:
    """The data sets of which a file is missing in the folder."""

    def whole(entry: catalogue.DataSet) -> bool:
        return all(files.find(folder / entry.name, file, entry.archive) for file in entry.content)

    return [name for name in names if not whole(catalogue.dataset(name))]


def locate(names: Iterable[str], given: str | Path | None = None) -> DataSource | None:
    """A source that has these data sets: `given`, else MAXAFFINE_DATA, else the cache; None when the user named no folder
    and the cache lacks one of them.  A folder that the user named must have them all.
    """
    wanted = list(names)
    named = given if given is not None else os.environ.get(VARIABLE) or None
    if named is None:
        cache = cache_folder()
        return None if missing(cache, wanted) else DataSource(str(cache))
    folder, rule = Path(named), "`--data`" if given is not None else VARIABLE
    if not folder.is_dir():
        raise BadInput(f"{rule} (={str(folder)!r}) is not a folder; name one that holds {', '.join(wanted)}.")
    lacking = missing(folder, wanted)
    if lacking:
        entry = catalogue.dataset(lacking[0])
        raise BadInput(
            f"{rule} (={str(folder)!r}) lacks {', '.join(lacking)}: {entry.title} is read from {entry.name}/ with the files "
            f"{', '.join(entry.content)}, plain, .gz or .xz{' or as ' + entry.archive if entry.archive else ''}."
        )
    return DataSource(str(folder.resolve()))


def choose(
    names: Sequence[str], given: Path | None, quick: bool, warn: Callable[[str], None],
    download: Callable[[Sequence[str]], DataSource] | None = None,
) -> DataSource:  # fmt: skip
    """The source of these data sets: the user's, downloaded ones if the user agrees, synthetic ones for quick runs only."""
    found = locate(names, given)
    if found is not None:
        return found
    if quick:
        warn(WARNING.format(names=", ".join(names)))
        return DataSource(None)
    lacking = missing(cache_folder(), names)
    if download is not None:
        return download(lacking)
    size = sum(file.bytes for name in lacking for file in catalogue.dataset(name).downloads) / 1e6
    raise Refused(
        f"this run needs {', '.join(catalogue.dataset(name).title for name in lacking)}, and there is no such data here: name a "
        f"folder with --data DIR or {VARIABLE}, or add --download to fetch and verify them ({size:.0f} MB)."
    )


def describe(source: DataSource, names: Iterable[str]) -> dict[str, Any]:
    """What a record says of the data: checksums, counts, and whether they are the published files or made up."""
    return {
        name: {
            "title": catalogue.dataset(name).title,
            "origin": SYNTHETIC if data.synthetic else "published files" if data.published else "other files of the same format",
            "checksums": data.checksums,
            "train": len(data.train_labels),
            "test": len(data.test_labels),
        }
        for name in names
        for data in [source.load(name)]
    }
