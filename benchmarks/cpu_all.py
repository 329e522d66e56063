"""All CPU benchmarks, one after the other, and the CPU section of docs/benchmarks.md.

    OMP_NUM_THREADS=1 python benchmarks/cpu_all.py

One that fails leaves the reason in the place of its results, and the page prints it; the others run.
"""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS, IMAGES = HERE / "results", HERE.parent / "docs" / "images"
SCRIPTS: dict[str, tuple[str, ...]] = {
    "cpu_peers": ("--quick", "--figure", str(IMAGES / "benchmarks-cpu-peers.svg")),
    "cpu_clusters": (),
    "cpu_tables": (),
    "cpu_scaling": ("--figure", str(IMAGES / "benchmarks-cpu-scaling.svg")),
    "cpu_batch": (),
}
MOST = 7_200  # seconds of one script


def run(name: str, more: tuple[str, ...]) -> str | None:
    """Run one script, which keeps its results; the reason where it fails."""
    command = [sys.executable, str(HERE / f"{name}.py"), "--json", str(RESULTS / f"{name}.json"), *more]
    try:
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=MOST)
    except subprocess.TimeoutExpired:
        return f"it ran for more than {MOST:,} seconds"
    if done.returncode == 0:
        return None
    last = [line for line in done.stderr.splitlines() if line.strip()]
    return last[-1].strip().rstrip(".") if last else f"exit code {done.returncode}"


def main() -> None:
    """Every script, and the page."""
    for name, more in SCRIPTS.items():
        reason = run(name, more)
        if reason is not None:
            print(f"{name}: {reason}", flush=True)
            (RESULTS / f"{name}.json").write_text(json.dumps({"failed": reason}, indent=1) + "\n")
    subprocess.run([sys.executable, str(HERE / "cpu_page.py")], check=True)


if __name__ == "__main__":
    main()
