"""What the form of the studio asks for: checked field by field, and written as the link that restores the page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any
from urllib.parse import urlencode

from maxaffine.core.errors import BadInput

LONGEST = {"expression": 10_000, "box": 2_000, "at": 2_000}  # characters
LONGEST_OTHERS = 40
NORMS = ("inf", "1", "2")
DTYPES = ("float64", "float32", "bfloat16")


@dataclass(frozen=True)
class Ask:
    """A request as it is typed, text in every field; and how its layer was turned and looked at."""

    expression: str = "sin(x) + cos(y)"
    box: str = "x=-3:3,y=-3:3"
    error: str = "1e-6"
    norm: str = "inf"
    dtype: str = "float64"
    method: str = "auto"
    r: str = ""  # its logits times r
    cells: str = ""  # or the lookup on a grid of so many cells per variable
    axes: str = ""  # numbers of the variables that are drawn
    at: str = ""  # the point looked at

    def __post_init__(self) -> None:
        for name, text in asdict(self).items():
            most = LONGEST.get(name, LONGEST_OTHERS)
            if not isinstance(text, str) or len(text) > most:
                raise BadInput(f"`{name}` may have at most {most:,} characters here.")

    @classmethod
    def of_query(cls, query: Mapping[str, str]) -> Ask:
        """What a link says; fields that it does not name are as on a fresh page."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: text for name, text in query.items() if name in known})

    def query(self) -> str:
        """The part of a link behind the question mark."""
        first = [field.name for field in fields(self)][:6]
        return urlencode({name: text for name, text in asdict(self).items() if text or name in first})

    def request(self) -> tuple[Any, Any, dict[str, Any]]:
        """Target, box and keywords for `compile`; BadInput with the sentence that belongs under the field."""
        from maxaffine.cli import arguments

        target, box = arguments.target(self.expression, [self.box] if self.box.strip() else [])
        return target, box, {
            "error": arguments.constant(self.error, "`error`"), "norm": self.norm, "dtype": self.dtype, "method": self.method,
        }  # fmt: skip

    def command(self) -> str:
        """The command that compiles the same layer; none makes a lookup on a grid that was chosen here."""
        if self.cells:
            return ""
        box = ["--box", self.box] if self.box.strip() else []
        words = ["maxaffine", "compile", self.expression, *box, "--error", self.error]
        plain = Ask()
        for name in ("norm", "dtype", "method"):
            if getattr(self, name) != getattr(plain, name):
                words += [f"--{name}", getattr(self, name)]
        if self.r:
            words += ["--sharpness", self.r]
        return shlex.join([*words, "--out", "layer.safetensors"])

    def python(self, allowed: float) -> str:
        """The same in Python; `allowed` is the error that a lookup on a chosen grid was given."""
        from maxaffine.cli import arguments

        target, box = arguments.target(self.expression, [self.box] if self.box.strip() else [])
        name = repr(target if isinstance(target, str) else self.expression.strip())
        given = [name] if box is None else [name, f"ma.Box({', '.join(f'{n}=({a!r}, {b!r})' for n, a, b in _sides(box))})"]
        error = self.error.strip() if _is_plain(self.error) else repr(arguments.constant(self.error, "`error`"))
        lines, options = ["import maxaffine as ma", ""], [f"error={error}"]
        if self.cells:
            lines += [f"box = {given[1] if box is not None else f'ma.gallery[{name}].box'}"]
            given, options = [name, "box"], [f"error={allowed!r}", f"keys=ma.MaxAffine.grid(box, {self.cells})"]
        plain = Ask()
        for field in ("norm", "dtype") if self.cells else ("norm", "dtype", "method"):
            if getattr(self, field) != getattr(plain, field):
                options += [f"{field}={getattr(self, field)!r}"]
        lines += [f"layer = ma.compile({', '.join([*given, *options])})"]
        if self.r:
            lines += [f"layer = layer.with_sharpness({self.r})"]
        return "\n".join([*lines, "module = layer.to_torch()  # an nn.Module with the same values"])


LOADED = 'import maxaffine as ma\n\nlayer = ma.load("layer.safetensors", check=True)\nmodule = layer.to_torch()'


def placed(sentence: str) -> tuple[str, str]:
    """The field that a sentence is about, "" for the whole form; options of the command line are fields here."""
    field = "expression"
    if "--box" in sentence or sentence.startswith("`box`") or "needs a box" in sentence:
        field = "box"
    for name in ("error", "norm", "dtype", "method"):
        if sentence.startswith(f"`{name}`"):
            field = name if name == "error" else ""
    return field, re.sub(r"--(box|error|norm|dtype|method)(?=:)", r"\1", sentence).replace("--box ", "")


def _is_plain(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _sides(box: Any) -> Any:
    return zip(box.names, box.low.tolist(), box.high.tolist(), strict=True)
