"""What the form of the studio asks for: checked field by field, and written as the link that restores it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any
from urllib.parse import urlencode

from maxaffine.core.errors import BadInput

LONGEST = {"expression": 10_000, "box": 2_000}  # characters
LONGEST_OTHERS = 40
NORMS = ("inf", "1", "2")
DTYPES = ("float64", "float32", "bfloat16")


@dataclass(frozen=True)
class Ask:
    """A request as it is typed: text in every field."""

    expression: str = "sin(x) + cos(y)"
    box: str = "x=-3:3,y=-3:3"
    error: str = "1e-6"
    norm: str = "inf"
    dtype: str = "float64"
    method: str = "auto"

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
        return urlencode(asdict(self))

    def request(self) -> tuple[Any, Any, dict[str, Any]]:
        """Target, box and keywords for `compile`; BadInput with the sentence that belongs under the field."""
        from maxaffine.cli import arguments

        target, box = arguments.target(self.expression, [self.box] if self.box.strip() else [])
        return target, box, {
            "error": arguments.constant(self.error, "`error`"), "norm": self.norm, "dtype": self.dtype, "method": self.method,
        }  # fmt: skip

    def command(self) -> str:
        """The command that compiles the same layer."""
        words = [
            "maxaffine",
            "compile",
            self.expression,
            *(["--box", self.box] if self.box.strip() else []),
            "--error",
            self.error,
        ]
        plain = Ask()
        for name in ("norm", "dtype", "method"):
            if getattr(self, name) != getattr(plain, name):
                words += [f"--{name}", getattr(self, name)]
        return shlex.join([*words, "--out", "layer.safetensors"])

    def python(self, loaded: bool = False) -> str:
        """The same in Python."""
        if loaded:
            return 'import maxaffine as ma\n\nlayer = ma.load("layer.safetensors", check=True)\nmodule = layer.to_torch()'
        from maxaffine.cli import arguments

        target, box = arguments.target(self.expression, [self.box] if self.box.strip() else [])
        sides = ""
        if box is not None:
            pairs = zip(box.names, box.low.tolist(), box.high.tolist(), strict=True)
            sides = ", {" + ", ".join(f"{name!r}: ({low!r}, {high!r})" for name, low, high in pairs) + "}"
        name = target if isinstance(target, str) else self.expression.strip()
        plain, more = Ask(), ""
        for field in ("norm", "dtype", "method"):
            if getattr(self, field) != getattr(plain, field):
                more += f", {field}={getattr(self, field)!r}"
        return (
            "import maxaffine as ma\n\n"
            f"layer = ma.compile({name!r}{sides}, error={self.error}{more})\n"
            "module = layer.to_torch()  # an nn.Module with the same values"
        )
