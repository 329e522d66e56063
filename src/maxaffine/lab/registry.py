"""The experiments by name; the module of an experiment is imported when it is asked for."""

import sys
from difflib import get_close_matches
from importlib import import_module

from maxaffine.core.errors import BadInput
from maxaffine.lab.experiment import Experiment

NAMES = (
    "norms-under-noise", "explicit-weights", "temperature-sweep", "noise-and-precision", "learnability", "dimension",
    "robustness", "failure-signatures", "mean-field",
)  # fmt: skip
# name: "module:attribute", in the order of the report
EXPERIMENTS = {name: f"maxaffine.lab.{name.replace('-', '_')}:EXPERIMENT" for name in NAMES}


def home_of(name: str) -> str:
    """Where an experiment lives; a name of the form module:attribute is its own home, so that users can bring their own."""
    if ":" in name:
        return name
    if name not in EXPERIMENTS:
        near = get_close_matches(name, EXPERIMENTS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(EXPERIMENTS)}; your own is named module:attribute."
        raise BadInput(f"there is no experiment {name!r}; {hint}")
    return EXPERIMENTS[name]


def find(name: str) -> Experiment:
    """The experiment of that name, or at that module:attribute."""
    home = home_of(name)
    module, _, attribute = home.partition(":")
    try:
        found = getattr(import_module(module), attribute, None)
    except ModuleNotFoundError as failure:
        missing = failure.name or "a module"
        if module == missing or module.startswith(f"{missing}."):
            way_out = f"there is no module {missing!r} on the path ({len(sys.path)} folders were searched)."
        else:
            way_out = f"it needs {missing!r}; install it, for instance with the extra maxaffine[lab]."
        raise BadInput(f"cannot import the experiment {name!r}: {way_out}") from None
    if not isinstance(found, Experiment):
        raise BadInput(f"{home!r} is not an experiment; name a maxaffine.lab.Experiment.")
    return found
