"""The parameters of a run: an experiment's defaults, what `--quick` and `--seeds` put in their place, what `--set` says."""

import json
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from maxaffine.core.errors import BadInput
from maxaffine.core.records import canonical_json, plain, sha256
from maxaffine.lab.experiment import Experiment

SEEDS = "seeds"


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
            near = get_close_matches(name, chosen, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(chosen)}."
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


def fingerprint(experiment: Experiment, parameters: dict[str, Any], synthetic: bool) -> str:
    """Eight letters that differ between runs whose results must not be mixed."""
    return sha256(canonical_json([experiment.name, experiment.version, parameters, synthetic]).encode())[:8]
