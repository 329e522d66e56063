"""The report: one self-contained HTML page and one markdown page, both made from the kept records alone."""

from pathlib import Path
from typing import Any

from maxaffine.core.errors import BadInput
from maxaffine.core.records import write_atomically
from maxaffine.lab.record import FIGURE, read
from maxaffine.lab.registry import EXPERIMENTS
from maxaffine.lab.report import markdown, page

__all__ = ["collect", "write"]


def collect(results: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The kept records with their folders: registered experiments first, in their order, then the others by name."""
    if not results.is_dir():
        raise BadInput(f"`--results` (={str(results)!r}) is not a folder; `maxaffine lab keep RUN` makes it.")
    folders = [folder for folder in results.iterdir() if folder.is_dir()]
    order = {name: place for place, name in enumerate(EXPERIMENTS)}
    folders.sort(key=lambda folder: (order.get(folder.name, len(order)), folder.name))
    found = [(folder, read(folder)) for folder in folders]
    if not found:
        raise BadInput(f"`--results` (={str(results)!r}) holds no results; `maxaffine lab keep RUN` puts a finished run there.")
    for folder, _ in found:
        if not (folder / FIGURE).is_file():
            raise BadInput(f"{str(folder)!r} has no {FIGURE}; keep the run again.")
    return found


def write(results: Path, out: Path, text: Path | None) -> dict[str, Any]:
    """Write the page, and the markdown page if a path is given for it; what was written."""
    found = collect(results)
    write_atomically(out, page.render(found).encode())
    files = [str(out)]
    if text is not None:
        write_atomically(text, markdown.render(found, text.parent).encode())
        files.append(str(text))
    return {"experiments": len(found), "files": files}
