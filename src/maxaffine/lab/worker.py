"""`python -m maxaffine.lab.worker NAME --out DIR`: do the units of an experiment without the command line's packages.

The worker itself needs NumPy and safetensors.  So do units, with PyTorch where they train, of norms-under-noise,
temperature-sweep, noise-and-precision and failure-signatures; those that compile layers or integrate need SciPy and what else
the compiler imports.

Figure, verdict and record are left to `maxaffine lab run NAME --out DIR` with the same parameters, on a machine that has
everything: it finds all units done and finishes.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from maxaffine.core.errors import MaxaffineError
from maxaffine.lab import executors
from maxaffine.lab.data import DataSource, choose
from maxaffine.lab.registry import find, resolve
from maxaffine.lab.runner import opened, work


def main(arguments: Sequence[str] | None = None) -> int:
    """Run or resume; 0 when done, 2 with a sentence when refused, 130 when interrupted."""
    parser = argparse.ArgumentParser(prog="python -m maxaffine.lab.worker", description="Do the units of an experiment.")
    parser.add_argument("name", help="an experiment of `maxaffine lab list`, or module:attribute")
    parser.add_argument("--out", required=True, type=Path, help="the run's folder")
    parser.add_argument("--quick", action="store_true", help="the same on less")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter")
    parser.add_argument("--seeds", type=int, help="seeds 0 to N - 1")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--data", type=Path, help="folder with mnist/, fashion-mnist/, cifar10/")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--only", default="", help="only units whose id contains this")
    given = parser.parse_args(arguments)
    try:
        experiment = find(given.name)
        parameters = resolve(experiment, given.quick, given.set, given.seeds)
        names = experiment.needs(parameters)

        def data() -> DataSource:
            return choose(names, given.data, given.quick, _say)

        with opened(given.name, parameters, given.quick, given.out, data, _say) as (run, source):
            work(run, source, given.device, executors.processes(given.workers), given.only)
            _say(f"{len(run.units) - len(run.left)} of {len(run.units)} units are done in {str(given.out)!r}.")
    except MaxaffineError as failure:
        _say(str(failure))
        return 2
    except KeyboardInterrupt:
        _say(f"interrupted; finished units are kept in {str(given.out)!r}; run the same command to resume.")
        return 130
    return 0


def _say(sentence: str) -> None:
    sys.stderr.write(f"maxaffine: {sentence}\n")


if __name__ == "__main__":
    sys.exit(main())
