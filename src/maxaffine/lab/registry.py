"""The experiments by name, imported when they are asked for, and the parameters of a run.

Parameters are an experiment's defaults, what `--quick` and `--seeds` put in their place, and what `--set` says.
"""

import json
import sys
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from maxaffine.core.errors import BadInput
from maxaffine.core.records import plain
from maxaffine.lab.experiment import Experiment

NAMES = (
    "norms-under-noise", "explicit-weights", "temperature-sweep", "noise-and-precision", "learnability", "dimension",
    "robustness", "failure-signatures", "mean-field", "margin-direction", "margin-rate", "margin-path", "margin-joint",
    "margin-basins", "margin-meeting", "ramp-rate", "ramp-universality", "ramp-trained", "ramp-sharpening",
)  # fmt: skip
# name: "module:attribute", in the order of the report
EXPERIMENTS = {name: f"maxaffine.lab.{name.replace('-', '_')}:EXPERIMENT" for name in NAMES}
SEEDS = "seeds"


def home_of(name: str) -> str:
    """Where an experiment lives; a name of the form module:attribute is its own home, so that users can bring their own."""
    if ":" in name:
        return name
    if name not in EXPERIMENTS:
        hint = _near(name, EXPERIMENTS) or f"there are {', '.join(EXPERIMENTS)}; your own is named module:attribute."
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


def _near(name: str, known: Collection[str]) -> str:
    return "".join(f"did you mean {near}?" for near in get_close_matches(name, known, n=1))


def resolve(experiment: Experiment, quick: bool, settings: Sequence[str] = (), seeds: int | None = None) -> dict[str, Any]:
    """Every parameter of the run, as JSON would hold it."""
    chosen = {**experiment.parameters, **(experiment.quick if quick else {})}
    if seeds is not None:
        if SEEDS not in chosen:
            raise BadInput(f"{experiment.name} takes no `--seeds`: nothing in it is random.")
        if seeds < 1:
            raise BadInput(f"`--seeds` (={seeds}) must be at least 1; seeds are 0 to N - 1.")
        chosen[SEEDS] = seeds
    for setting in settings:
        name, sign, text = setting.partition("=")
        if not sign:
            raise BadInput(f"`--set` (={setting!r}) must be NAME=VALUE, such as --set {next(iter(chosen), 'seeds')}=3.")
        if name not in chosen:
            hint = _near(name, chosen) or f"it has {', '.join(chosen)}."
            raise BadInput(f"`--set`: {experiment.name} has no parameter {name!r}; {hint}")
        chosen[name] = _value(name, text, chosen[name])
    resolved: dict[str, Any] = json.loads(json.dumps(plain(chosen), allow_nan=False))
    return resolved


def _value(name: str, text: str, default: Any) -> Any:
    """The text as JSON, or as a word; of the kind that the default has."""
    value = _read(text)
    if isinstance(default, (list, tuple)) and not isinstance(value, list):
        value = [_read(part.strip()) for part in text.split(",")]
    if isinstance(default, float) and type(value) is int:
        value = float(value)
    same = isinstance(value, list) if isinstance(default, (list, tuple)) else type(value) is type(default)
    if default is not None and not same:
        kind = {bool: "true or false", int: "a whole number", float: "a number", str: "a word", list: "a list", dict: "an object"}
        wanted = kind.get(list if isinstance(default, tuple) else type(default), "of its default's kind")
        raise BadInput(f"`--set {name}={text}`: the value must be {wanted}, as in the default {json.dumps(default)}.")
    return value


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
