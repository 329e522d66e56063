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
WARNING = (
    "SYNTHETIC DATA: {names} not found, so this quick run uses made-up images of the same format. Its numbers say nothing about "
    "the published data; give --data DIR for those."
)


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
        sums = {part: sha256(array.tobytes()) for part, array in zip(_PARTS, arrays, strict=True)}
        return _frozen(arrays, entry.name, True, sums, False)
    home = Path(folder) / entry.name
    contents = {}
    for file in entry.content:
        path = files.find(home, file, entry.archive)
        if path is None:
            raise BadInput(f"{str(home)!r} has no {file} (plain, .gz or .xz); {entry.title} needs {', '.join(entry.content)}.")
        contents[file] = files.unpack(path, file)
    sums = {file: sha256(content) for file, content in contents.items()}
    arrays = _idx_arrays(contents, home) if entry.kind == "idx" else _cifar_arrays(contents, home)
    _check(arrays, entry, home)
    return _frozen(arrays, entry.name, False, sums, sums == entry.content)


_PARTS = ("train images", "train labels", "test images", "test labels")
Arrays = tuple[Bytes, Bytes, Bytes, Bytes]


def _frozen(arrays: Arrays, name: str, made_up: bool, sums: dict[str, str], published: bool) -> ImageSet:
    for array in arrays:
        array.flags.writeable = False
    return ImageSet(*arrays, name=name, synthetic=made_up, checksums=sums, published=published)


def _idx_arrays(contents: dict[str, bytes], home: Path) -> Arrays:
    train, train_labels, test, test_labels = (
        files.idx(content, 3 if "images" in file else 1, repr(str(home / file))) for file, content in contents.items()
    )
    return train[..., None], train_labels, test[..., None], test_labels


def _cifar_arrays(contents: dict[str, bytes], home: Path) -> Arrays:
    batches = [files.cifar(content, repr(str(home / file))) for file, content in contents.items()]
    train = np.concatenate([images for images, _ in batches[:-1]])
    labels = np.concatenate([labels for _, labels in batches[:-1]])
    return train, labels, *batches[-1]


def _check(arrays: Arrays, entry: catalogue.DataSet, home: Path) -> None:
    for images, labels, part in ((arrays[0], arrays[1], "training"), (arrays[2], arrays[3], "test")):
        if len(images) != len(labels) or len(images) == 0:
            raise BadInput(f"{str(home)!r} has {len(images)} {part} images and {len(labels)} labels; get the files again.")
        if images.shape[1:] != entry.shape:
            size = " x ".join(map(str, images.shape[1:]))
            raise BadInput(f"{str(home)!r} has images of {size}; {entry.title} has {' x '.join(map(str, entry.shape))}.")
        if labels.max() > 9:
            raise BadInput(f"{str(home)!r} has a {part} label {labels.max()}; {entry.title} has labels 0 to 9.")


def cache_folder() -> Path:
    """Where downloads are kept: XDG_CACHE_HOME/maxaffine/data, by default under ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "maxaffine" / "data"


def missing(folder: Path, names: Iterable[str]) -> list[str]:
    """The data sets of which a file is missing in the folder."""
    lacking = []
    for name in names:
        entry = catalogue.dataset(name)
        if any(files.find(folder / name, file, entry.archive) is None for file in entry.content):
            lacking.append(name)
    return lacking


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
