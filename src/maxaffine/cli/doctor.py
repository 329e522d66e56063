"""`maxaffine doctor`: versions, threads, memory, GPU, extras, and whether the core works."""

import platform
import re
import tempfile
import traceback
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from maxaffine import __version__
from maxaffine.cli import options
from maxaffine.cli.command import Command, single
from maxaffine.cli.streams import complain, progress_bar, stage, tell
from maxaffine.core.budget import free_memory
from maxaffine.runtime.parallel import thread_count

BROKEN = 70

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(\[[^\]]*\])?[^;]*(?:;(.*))?")
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")

app = single()


@app.command("doctor", cls=Command)
def run(json: options.Json = False) -> int:
    """Show what is installed, and whether the core works.

    Exit code 0 when the core works; extras that are missing are reported, not errors.
    """
    core, extras = requirements()
    with progress_bar() as progress, stage(progress, "self test"):
        failure = self_test()
    found: dict[str, Any] = {
        "maxaffine": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version_of(name) for name in core},
        "extras": {extra: {name: version_of(name) for name in names} for extra, names in extras.items()},
        "threads": thread_count(None),
        "memory_free_bytes": free_memory(),
        "gpu": gpu(),
        "core_works": failure is None,
        "failure": failure,
    }
    tell(json, found, _lines(found))
    if failure is None:
        return 0
    complain(f"the core does not work here: {failure}. Try installing maxaffine again, or report this.")
    return BROKEN


def requirements() -> tuple[list[str], dict[str, list[str]]]:
    """The packages that the core needs, and those of every extra, as the installed package declares them."""
    core: list[str] = []
    extras: dict[str, list[str]] = {}
    try:
        declared = metadata.requires("maxaffine") or []
    except metadata.PackageNotFoundError:
        declared = ["numpy", "scipy", "python-flint", "safetensors", "ml_dtypes", "typer", "rich", "matplotlib"]
    for line in declared:
        found = _REQUIREMENT.fullmatch(line)
        if found is None or found[1].lower() == "maxaffine":
            continue
        extra = _EXTRA.search(found[3] or "")
        (core if extra is None else extras.setdefault(extra[1], [])).append(found[1])
    return core, extras


def version_of(package: str) -> str | None:
    """The installed version, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def gpu() -> dict[str, Any]:
    """What torch sees; unknown without torch."""
    if version_of("torch") is None:
        return {"available": None, "devices": [], "why": "torch is not installed, so nothing here uses a GPU"}
    try:
        import torch

        names = [str(torch.cuda.get_device_name(i)) for i in range(torch.cuda.device_count())]
        works = bool(torch.cuda.is_available())
    except Exception as failure:  # a broken driver must not keep the doctor from speaking
        return {"available": False, "devices": [], "why": f"torch failed: {type(failure).__name__}: {failure}"}
    return {"available": works, "devices": names, "why": None if works else "torch sees no CUDA device"}


def self_test() -> str | None:
    """Compile a tiny layer, save it, load it, run it, prove it again; what went wrong, or None."""
    try:
        import maxaffine as ma

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "self-test.safetensors"
            ma.compile("x**2 - x", ma.Box(x=(-1, 1)), error=0.25).save(path)
            value = float(ma.load(path)([0.5])[0])
            verdict = ma.check(path)
        if not verdict.passed:
            return f"a tiny layer was not proved again: {verdict.reason}"
        if not abs(value + 0.25) <= 0.25:
            return f"a tiny layer gives {value!r} where -0.25 is within 0.25"
    except Exception as failure:
        where = traceback.extract_tb(failure.__traceback__)[-1]
        return f"{type(failure).__name__}: {failure} ({Path(where.filename).name}, line {where.lineno})"
    return None


def _lines(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "maxaffine", found["maxaffine"]
    yield "python", f"{found['python']} on {found['platform']}"
    yield "packages", _versions(found["packages"])
    for extra, packages in found["extras"].items():
        state = "present" if all(packages.values()) else "missing"
        way_out = "" if state == "present" else f'; pip install "maxaffine[{extra}]"'
        yield "extra", f"{extra}: {state} ({_versions(packages)}){way_out}"
    yield "threads", str(found["threads"])
    gpus = found["gpu"]
    yield "memory", f"{found['memory_free_bytes'] / 2**30:.1f} GiB free"
    yield "gpu", ", ".join(gpus["devices"]) if gpus["available"] else gpus["why"]
    yield "core", "works: a small layer was compiled, saved, loaded and proved again" if found["core_works"] else "FAILS"


def _versions(packages: dict[str, str | None]) -> str:
    return ", ".join(f"{name} {version or '(missing)'}" for name, version in packages.items())
