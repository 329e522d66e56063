"""What a head is: a name, when it applies, plans of growing size, how a plan becomes a layer, and how a layer is proved."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic

from maxaffine.heads.found import MANY, NO_FACTS, PROOF, Ask, Found, P
from maxaffine.heads.search import Search, search
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.observe import Observed
from maxaffine.request import Request


@dataclass(frozen=True)
class Example:
    """A request that the head serves."""

    target: str
    box: Mapping[str, tuple[float, float]]
    error: float
    options: Mapping[str, Any] = field(default_factory=dict)


class Head(ABC, Generic[P]):
    """A kind of layer, as the compiler, the tables of the docs and the attack know it.

    `heads/search.py` asks: `why_not`, then for plan after plan `build` and `prove`, until one is proved.
    """

    name: ClassVar[str]  # the `method` of `compile`
    summary: ClassVar[str]  # what it is, in a line
    serves: ClassVar[str]  # which targets, in a line
    slow: ClassVar[bool] = False  # asked last, and only where it may win
    by_name: ClassVar[bool] = False  # asked only where it is the method that is named
    fitted: ClassVar[bool] = True  # whether values are fitted, so that rounding leaves an error of its own
    relative: ClassVar[bool] = False  # whether it proves errors relative to |f(x)| where absolute ones are too coarse
    examples: ClassVar[tuple[Example, ...]] = ()

    @abstractmethod
    def why_not(self, request: Request) -> str | None:
        """Why requests of this kind are not served, where that is seen at once; else None."""

    @abstractmethod
    def propose(self, search: Search) -> Iterator[P]:
        """Plans of growing size, made when asked for; Refused, or a reason noted in `search`, where there are none."""

    @abstractmethod
    def build(self, plan: P, request: Request) -> GroupedLayer:
        """The layer of a plan."""

    @abstractmethod
    def prove(self, layer: GroupedLayer, plan: P, request: Request, runtime: str) -> Certificate:
        """What is proved about the stored layer on one runtime; Refused where that is nothing."""

    # What few heads do in another way.

    def provable(self, request: Request) -> bool:
        """Whether `prove` can say something about this target."""
        return request.target.expression is not None

    def early(self, request: Request) -> bool:
        """Whether the head is asked before the others, and alone where it proves a layer."""
        return False

    def observable(self, request: Request) -> bool:
        """Whether a layer may be returned that is observed to fit and not proved."""
        return not self.provable(request)

    def why_unproved(self, plan: P, request: Request) -> str:
        """What the certificate of such a layer says."""
        return f"{NO_FACTS}; {PROOF}" if request.target.box.dimension >= MANY else NO_FACTS

    def asks_checker(self, certificate: Certificate, request: Request) -> bool:
        """Whether the checker is asked now; when the layer is saved it is asked in any case."""
        return True

    def observe(self, request: Request, found: Found) -> Observed | None:
        """The largest error that a search of the head's own finds; None leaves that to the general one."""
        return None

    def sharpened(self, plan: P, r: float) -> P:
        """The plan of the layer whose logits are r times as large; what a proof reads off a plan besides must follow."""
        return plan

    def find(self, request: Request, reasons: list[str], fewest: int | None, ask: Ask | None = None) -> Found | None:
        """The smallest layer of this kind that is proved and has fewer than `fewest` tokens; else why not, in `reasons`.

        `ask` searches for single outputs, by all heads that have one.
        """
        return search(self, Search(request, reasons, fewest, ask=ask))
