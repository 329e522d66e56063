"""Named targets with their box, their source and what is known about them.

    gallery["franke"].target          a Target
    gallery.names()                   every name
    gallery.tagged("discontinuous")   the entries with a tag

The formulas are in `collection`; the facts stated there are checked by the tests.
"""

import difflib
from collections.abc import Iterator, Mapping

from maxaffine.core.errors import BadInput
from maxaffine.target.collection import ENTRIES, TAGS, Entry

__all__ = ["TAGS", "Entry", "Gallery", "gallery"]


class Gallery(Mapping[str, Entry]):
    """A read-only mapping from names to entries."""

    __slots__ = ("_entries",)

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self._entries = {entry.name: entry for entry in entries}
        if len(self._entries) != len(entries):
            raise ValueError("two entries of the gallery share a name")

    def names(self) -> tuple[str, ...]:
        """Every name, in the order of the collection."""
        return tuple(self._entries)

    def tagged(self, tag: str) -> tuple[Entry, ...]:
        """The entries with a tag."""
        if tag not in TAGS:
            raise BadInput(f"`{tag}` is not a tag of the gallery; there are {', '.join(TAGS)}.")
        return tuple(entry for entry in self.values() if tag in entry.tags)

    def __getitem__(self, name: str) -> Entry:
        if isinstance(name, str) and name in self._entries:
            return self._entries[name]
        close = difflib.get_close_matches(str(name), self._entries, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(f'`{c}`' for c in close)}?  " if close else ""
        raise UnknownEntry(f"`{name}` is not in the gallery; {hint}There are {', '.join(self._entries)}.")

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"gallery of {len(self)} targets: {', '.join(self._entries)}"


class UnknownEntry(BadInput, KeyError):
    """A name that the gallery does not have."""

    def __str__(self) -> str:
        return str(self.args[0])


gallery = Gallery(ENTRIES)
