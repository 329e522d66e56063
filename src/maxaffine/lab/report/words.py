"""Records in words: templates, numbers as a reader wants them, the card as lines, the kind of a verdict."""

from pathlib import Path
from string import Template
from typing import Any

from maxaffine.lab.experiment import EXPLAINED, INCOMPLETE, NOT_REPRODUCED, REPRODUCED
from maxaffine.lab.record import VARIABLES


def filled(template: str, **parts: str) -> str:
    """A file of this folder with its $places filled."""
    return Template(Path(__file__).with_name(template).read_text(encoding="utf-8")).substitute(parts)


def number(value: Any) -> str:
    """Four significant digits, thousands apart."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value == round(value) and abs(value) < 1e15 else f"{value:.4g}"
    return str(value)


def kind(outcome: str) -> str:
    """One word for the colour of a verdict."""
    if outcome.startswith(EXPLAINED):
        return "explained"
    return {REPRODUCED: "reproduced", NOT_REPRODUCED: "refuted", INCOMPLETE: "incomplete"}[outcome]


def card(record: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """The ten variables, each with its answer as lines."""
    return [(variable, _lines(record["card"][variable])) for variable in VARIABLES]


def _lines(value: Any) -> list[str]:
    if isinstance(value, list):
        return [_line(item) for item in value]
    if isinstance(value, dict):
        return [f"{key}: {_line(item)}" for key, item in value.items()]
    return [_line(value)]


def _line(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_line(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "[" + ", ".join(_line(item) for item in value) + "]"
    if isinstance(value, float):
        return repr(value)  # a setting is repeated exactly
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
