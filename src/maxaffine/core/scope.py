"""Scope: which x a certificate speaks of, as data.  Words for it are in report/scope.py."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from maxaffine.core.errors import BadInput

OVER = ("box", "integral", "centres", "entries", "share", "nothing")
INPUTS = ("real", "float64")
MEASURES = ("distance", "direction", "outputs")


@dataclass(frozen=True)
class Scope:
    """Over "box" every x of it, over "integral" |layer - target|^p integrated over it, over "centres" the x of the box within
    `radius` of one of `count` centres, over "entries" the `count` entries of a table or of samples and no other x, over "share"
    all of it but a share that a draw limits.

    inputs: "real", every real x, its rounding to float64 included; or "float64", the x whose coordinates are float64 numbers.
    gap: of the x of the box those closer than this to one of the target's `jumps` are excluded; the `measure` is Euclidean
    "distance", or |w . x - jump| along the target's "direction"; "outputs": some outputs by the one, some by the other.
    """

    over: str = "box"
    inputs: str = "real"
    gap: float | None = None
    measure: str | None = None
    jumps: int = 0
    radius: float | None = None
    count: int | None = None
    kind: str | None = None  # of entries: "table" or "samples"
    sha256: str | None = None
    missing: int = 0

    @property
    def every_x(self) -> bool:
        """Whether no x of the box is left out, up to the rounding of the inputs."""
        return self.over == "box" and self.gap is None

    def covers(self, stated: Scope) -> bool:
        """Whether what is proved of this scope holds of the stated one: the same, or float64 numbers where it is all reals."""
        return self == stated or (self.inputs == "real" and self == Scope(**{**asdict(stated), "inputs": "real"}))

    def to_json(self) -> dict[str, Any]:
        """The fields that say something."""
        return {"over": self.over, **{f.name: v for f in fields(self)[1:] if (v := getattr(self, f.name)) != f.default}}

    @classmethod
    def from_json(cls, data: Any) -> Scope:
        """The inverse, from a file that may hold anything."""
        if not isinstance(data, Mapping) or not set(data) <= {f.name for f in fields(cls)}:
            raise BadInput("its certificate says in no known way which x it speaks of")
        numbers = {"gap": data.get("gap"), "radius": data.get("radius")}
        counts = {"jumps": data.get("jumps", 0), "count": data.get("count"), "missing": data.get("missing", 0)}
        good = (
            data.get("over") in OVER and data.get("inputs", "real") in INPUTS and data.get("measure") in (None, *MEASURES)
            and data.get("kind") in (None, "table", "samples") and isinstance(data.get("sha256", ""), (str, type(None)))
            and all(v is None or (isinstance(v, (int, float)) and 0.0 <= v < math.inf) for v in numbers.values())
            and all(v is None or (isinstance(v, int) and v >= 0) for v in counts.values())
        )  # fmt: skip
        if not good or any(isinstance(v, bool) for v in data.values()):
            raise BadInput("its certificate says in no known way which x it speaks of")
        return cls(**data)

    @classmethod
    def of(cls, certificate: Mapping[str, Any]) -> Scope:
        """The scope of a certificate in a file; format 1 has words in its place, in L_p those of the box in some."""
        if "scope" in certificate:
            return cls.from_json(certificate["scope"])
        found = from_words(str(certificate.get("domain")))
        integral = found.every_x and certificate.get("norm") not in ("inf", "entries")
        return cls("integral", found.inputs) if integral else found


_REAL = "all real x of the box, rounded once to float64 (and every x of the box representable in the dtype)"
_FLOATS = "every x of the box that is a float64 number"
_NUMBER = r"([0-9.e+-]+)"
_EXCLUDED = re.compile(
    rf"; of these the ones at least {_NUMBER} \((Euclidean|in w \. x)\) from each of the (\d+) "
    r"(?:planes where the target jumps|jumps of the target)"
)
_CENTRES = re.compile(rf"every x of the box within {_NUMBER} \(Euclidean\) of one of the (\d+) centres")
_ENTRIES = re.compile(
    r"the ([\d,]+) (entries of the table|samples) with SHA-256 ([0-9a-f]{16})(?: \(([\d,]+) missing ones left out\))? "
    r"and no other x: nothing is claimed between them"
)


def from_words(words: str) -> Scope:
    """The scope that a file of format 1 tells in a sentence; any other sentence is refused."""
    if words == "none":
        return Scope("nothing")
    if words == "the integral over the box of |layer - target|^p":
        return Scope("integral")
    if found := _CENTRES.fullmatch(words):
        return Scope("centres", radius=float(found[1]), count=int(found[2]))
    if found := _ENTRIES.fullmatch(words):
        kind = "samples" if found[2] == "samples" else "table"
        count, missing = (int((text or "0").replace(",", "")) for text in (found[1], found[4]))
        return Scope("entries", count=count, kind=kind, sha256=found[3], missing=missing)
    for start, inputs in ((_REAL, "real"), (_FLOATS, "float64")):
        if words == start:
            return Scope("box", inputs)
        if words.startswith(start) and (found := _EXCLUDED.fullmatch(words[len(start) :])):
            measure = "distance" if found[2] == "Euclidean" else "direction"
            return Scope("box", inputs, gap=float(found[1]), measure=measure, jumps=int(found[3]))
    raise BadInput("its certificate says in no known way which x it speaks of")
