"""What a unit ran on, read from the machine itself: processor, memory, accelerator, versions, sources.  No names, no paths."""

import hashlib
import os
import platform
import re
import subprocess
import sys
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from maxaffine._version import __version__
from maxaffine.core.records import sha256

PACKAGES = (
    "numpy", "scipy", "torch", "safetensors", "python-flint", "ml_dtypes", "numba", "matplotlib", "loky", "dask", "distributed",
)  # fmt: skip


@lru_cache
def hardware(device: str) -> dict[str, Any]:
    """Processor, cores, memory, and the accelerator if the unit used one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    named = _read(r"^model name\s*:\s*(.+)$", "/proc/cpuinfo") or platform.processor() or platform.machine()
    found: dict[str, Any] = {"processor": named or "unknown processor", "cores": cores, "memory": _memory(), "device": device}
    if device == "cuda":
        import torch

        index = torch.cuda.current_device()
        size = torch.cuda.get_device_properties(index).total_memory
        found["accelerator"] = f"{torch.cuda.get_device_name(index)}, {size / 2**30:.0f} GiB"
        found["driver"] = _driver()
        found["cuda"] = str(torch.version.cuda)
    return found


@lru_cache
def software() -> dict[str, str]:
    """Python, the system, and the packages that are installed, with their resolved versions."""
    found = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}", "maxaffine": __version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@lru_cache
def source(module: str) -> dict[str, Any]:
    """What code ran: SHA-256 of the experiment's module and of the whole package, and the commit where git knows it."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted(path for path in package.rglob("*.*") if path.is_file() and path.suffix != ".pyc"):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    own = find_spec(module)
    origin = Path(own.origin) if own is not None and own.origin is not None else Path(__file__)
    found: dict[str, Any] = {"module": module, "module_sha256": sha256(origin.read_bytes()), "package_sha256": digest.hexdigest()}
    # A copy inside somebody's repository, but not of it, has no commit.
    git = ("git", "-C", str(package))
    tracked = _asked(*git, "ls-files", "--error-unmatch", "lab/machine.py")
    commit = _asked(*git, "rev-parse", "HEAD") if tracked else None
    if commit:
        found["commit"] = commit
        found["dirty"] = bool(_asked(*git, "status", "--porcelain", "--", str(package)))
    return found


def _asked(*command: str) -> str | None:
    """What a program answers, None where it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _read(pattern: str, file: str) -> str | None:
    """What the group of the pattern is in a file of the system, None where there is no such file or line."""
    try:
        match = re.search(pattern, Path(file).read_text(), re.MULTILINE)
    except OSError:
        return None
    return match.group(1).strip() if match else None


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (ValueError, OSError, AttributeError):
        return f"unknown on {sys.platform}"


def _driver() -> str:
    said = _asked("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return said.split()[0] if said else _read(r"Kernel Module\s+(\S+)", "/proc/driver/nvidia/version") or "unknown"
