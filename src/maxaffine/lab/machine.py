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

PACKAGES = (
    "numpy", "scipy", "torch", "safetensors", "python-flint", "ml_dtypes", "numba", "matplotlib", "loky", "dask", "distributed",
)  # fmt: skip


@lru_cache
def hardware(device: str) -> dict[str, Any]:
    """Processor, cores, memory, and the accelerator if the unit used one."""
    found: dict[str, Any] = {"processor": _processor(), "cores": _cores(), "memory": _memory(), "device": device}
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
    found: dict[str, Any] = {"module": module, "module_sha256": _digest(origin), "package_sha256": digest.hexdigest()}
    # A copy inside somebody's repository, but not of it, has no commit.
    tracked = _git(package, "ls-files", "--error-unmatch", "lab/machine.py")
    commit = _git(package, "rev-parse", "HEAD") if tracked else None
    if commit:
        found["commit"] = commit
        found["dirty"] = bool(_git(package, "status", "--porcelain", "--", str(package)))
    return found


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _processor() -> str:
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match.group(1).strip() if match else platform.processor() or platform.machine() or "unknown processor"


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (ValueError, OSError, AttributeError):
        return f"unknown on {sys.platform}"


def _driver() -> str:
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.split()[0]
        match = re.search(r"Kernel Module\s+(\S+)", Path("/proc/driver/nvidia/version").read_text())
    except (OSError, subprocess.SubprocessError):
        match = None
    return match.group(1) if match else "unknown"
