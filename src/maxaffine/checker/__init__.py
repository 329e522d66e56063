"""The independent checker: re-proves a saved layer from its file alone, one file per rule.

It shares no code with the planner, the runtimes or the certificates: it imports core, expression, structure and target alone.
Where those use closed forms, it encloses the softmax of the stored keys numerically; where those bisect, it cuts in three; its
constants are its own.  It says "not proved" to everything that it cannot prove.  What a file holds: reader.py; arguments that
rules share: boxes.py, local_error.py, soft_gap.py, head_rounding.py.  Which rule proves what: docs/decisions/0020.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from maxaffine.checker.axis_clusters import check_axis
from maxaffine.checker.certificate import doubt_certificate, stated_bound, stated_scope
from maxaffine.checker.crossed import doubt_inputs, doubt_values
from maxaffine.checker.curved import check_curved
from maxaffine.checker.entries import check_entries
from maxaffine.checker.formats import doubt_formats, lost_below, with_more, with_underflow
from maxaffine.checker.level_sets import check_level_sets
from maxaffine.checker.literal import Claim, claims_of, proved_again
from maxaffine.checker.lookup import check_lookup
from maxaffine.checker.outputs import check_outputs
from maxaffine.checker.piecewise import check_piecewise
from maxaffine.checker.pointwise import absolutely, is_pointwise, relatively, shown_least
from maxaffine.checker.products import check_products
from maxaffine.checker.proved import Form, NotProved, Proved
from maxaffine.checker.ramp import check_ramp
from maxaffine.checker.reader import Layer
from maxaffine.checker.regions import check_regions
from maxaffine.checker.relative_products import check_relative_products
from maxaffine.checker.same_function import doubt_rewritten
from maxaffine.checker.separated import check_separated
from maxaffine.checker.spectral import check_spectral
from maxaffine.checker.stack import StackProof, check_stack
from maxaffine.checker.sums import check_sums
from maxaffine.checker.tree import check_tree
from maxaffine.core.container import read_container
from maxaffine.core.errors import BadInput
from maxaffine.core.outdated import refuse_outdated
from maxaffine.core.progress import Progress, silent
from maxaffine.core.rounding import FLOAT32
from maxaffine.core.threads import one_blas_thread
from maxaffine.target.samples import Samples
from maxaffine.target.table import Table
from maxaffine.target.target import Target


@dataclass(frozen=True)
class Rule:
    """(layer, record, target, error) -> what is proved, or NotProved; and whether it proves L_p bounds too."""

    prove: Callable[[Layer, Mapping[str, Any], Target, float], Proved]
    integral: bool = False
    followed: bool = False  # whether it bounds every factor of sums of products itself (checker/formats.py)
    own_scope: bool = False  # it compares what is proved with the certificate's scope itself


# One line per method of grouped layers; lookups and entries have a rule of their own.
RULES: dict[str, Rule] = {
    "spectral": Rule(check_spectral),
    "piecewise": Rule(check_piecewise),
    "axis": Rule(check_axis, integral=True, own_scope=True),
    "tree": Rule(check_tree),
    "ramp": Rule(check_ramp),
    "curved": Rule(check_curved),
    "regions": Rule(check_regions, integral=True, own_scope=True),
    "level": Rule(check_level_sets, integral=True),
    "sums": Rule(check_sums, own_scope=True),
    "separated": Rule(check_separated, followed=True),
    "products": Rule(check_products, own_scope=True),
}


# The checker's constants are its own: for 118 layers of the gallery its bound is 0.57 to 1.08 times the one stated, and at most
# 1.11 times for two dozen with kinks, jumps and products.
CONFIRMS = 1.2


STATISTICAL = (
    "its certificate is statistical: it comes from a draw of points at which a Python callable was evaluated, which a file "
    "does not hold. No checker can prove it again; whoever has the function can draw again."
)


@dataclass(frozen=True)
class Verdict:
    """Whether everything that the file promises was proved again: the checker's own bound, the file's, the error, and why.

    Promised are the error, the bound that the file states for the layer as it runs by default (`confirmed`: the checker's own is
    at most CONFIRMS times that), and a bound of its literal form for every arithmetic that the file claims one for (`claims`).
    """

    passed: bool
    bound: float | None
    claimed: float | None
    error: float
    reason: str
    how: str = ""
    claims: tuple[Claim, ...] = ()
    parts: tuple[float, ...] = ()  # of layers side by side, the checker's own bound of every part, in the part's norm
    largest: float | None = None  # of a stack, what its target is shown to stay below

    @property
    def confirmed(self) -> bool:
        """Whether the bound that the file states is proved again, up to the checker's own constants."""
        return self.bound is not None and self.bound <= self.error and self.bound <= CONFIRMS * stated_bound(self.claimed)


def check(
    tensors: Mapping[str, Any],
    record: Mapping[str, Any],
    table: Table | Samples | None = None,
    progress: Progress = silent,
) -> Verdict:
    """Prove what a file promises from tensors and record, or say why not; BadInput for a malformed record.

    `table`: the Table or Samples that the layer was compiled from, which its file does not hold.
    """
    try:
        with one_blas_thread():
            return _check(tensors, record, table, progress)
    except BadInput:
        raise
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, ArithmeticError) as failure:
        # A hash is no seal: whoever edits a file can hash it again, so every field is doubted.
        raise BadInput(f"the record of a layer cannot be read ({type(failure).__name__}: {failure}).") from None


def check_file(path: Any, table: Table | Samples | None = None) -> Verdict:
    """`check` of a saved file."""
    return check(*read_container(path), table)


def _check(tensors: Mapping[str, Any], record: Mapping[str, Any], table: Table | Samples | None, progress: Progress) -> Verdict:
    refuse_outdated(record)
    certificate = record["certificate"]
    error, claimed = float(record["error"]), certificate.get("bound")
    if certificate.get("kind") == "statistical":
        return Verdict(False, None, None, error, STATISTICAL)
    if certificate.get("kind") != "proved":
        return Verdict(False, None, claimed, error, f"the file promises nothing proved (kind {certificate.get('kind')!r}).")
    if record.get("errors") is not None and record.get("layer", {}).get("keys") != "parts":
        told = "it promises an error of every output, which only layers of parts do."
        return Verdict(False, None, claimed, error, told)
    target = Target.from_json(record["target"])
    if target.expression is None and target.entries is None:
        return Verdict(
            False, None, claimed, error,
            "its target is a Python callable, which a file cannot hold; only expressions can be proved again.",
        )  # fmt: skip
    try:
        doubt_rewritten(target)
    except NotProved as failure:
        return Verdict(False, None, claimed, error, str(failure))
    if record.get("method") == "stack":
        return _check_stack(tensors, record, target, progress)
    try:
        claims, pointwise = claims_of(record), is_pointwise(record)
        if pointwise and target.entries is not None:
            raise NotProved("errors relative to |f(x)| are proved of expressions, and its target is a table or samples.")
        prove: Callable[[float], Proved]
        if target.entries is not None:
            where, prove = f" at the {target.entries.count:,} entries", partial(check_entries, tensors, record, target, table)
        else:
            if table is not None:
                raise NotProved("its target is an expression, and a table was given; leave the table out.")
            rule = RULES.get(str(record["plan"].get("method"))) if record["layer"]["keys"] == "grouped" else None
            doubt_inputs(record, target)
            plain = absolutely(record) if pointwise else record
            own_scope = record["layer"]["keys"] == "parts" or (rule is not None and rule.own_scope)
            doubt_certificate(plain, claims, own_scope)
            prove = partial(_bound, tensors, plain, target, progress)
            where = " relative to |f(x)|" if pointwise else ""
            if pointwise:
                prove = _relative(tensors, record, target, prove)
        found = prove(error)
    except NotProved as failure:
        return Verdict(False, None, claimed, error, str(failure))
    if not found.bound <= error:
        reason = f"the checker's own bound{where} is {found.bound:.6g}, above the {error:g} promised."
        return Verdict(False, found.bound, claimed, error, reason, found.how)
    aim = CONFIRMS * stated_bound(claimed)
    if 0.0 < aim < found.bound:
        with suppress(NotProved):  # the same proof of a smaller error, which counts where it succeeds
            nearer = prove(aim)
            found = nearer if nearer.bound <= aim else found
    reason = f"proved again{where}: error <= {found.bound:.6g}, and {error:g} was promised."
    verdict = Verdict(True, found.bound, claimed, error, reason, found.how, parts=found.parts)
    if not verdict.confirmed:
        only = f"the error is {reason} The bound that the file states ({str(claimed)[:30]}) is not confirmed, only the error is."
        return replace(verdict, passed=False, reason=only)
    if not _adds_up(certificate.get("parts"), float(claimed)):
        return replace(verdict, passed=False, reason="the bound that it states is not the sum of its parts.")
    return _literally(verdict, found, claims)


def _check_stack(tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, progress: Progress) -> Verdict:
    """The verdict of a stack: its error, its stated bound, and what it claims of the stack of literal layers."""
    error, claimed = float(record["error"]), record["certificate"].get("bound")
    heads = len(record["heads"])
    done = iter(range(1, heads + 1))

    def head(own: Mapping[str, Any], one: Mapping[str, Any]) -> Verdict:
        progress("heads of the stack", next(done, heads), heads)
        return _check(own, one, None, silent)

    try:
        claims = claims_of({**record, "layer": {"dtype": "float64"}})
        found = check_stack(tensors, record, target, head)
    except NotProved as failure:
        return Verdict(False, None, claimed, error, str(failure))
    if not found.bound <= error:
        reason = f"the checker's own bound is {found.bound:.6g}, above the {error:g} promised."
        return Verdict(False, found.bound, claimed, error, reason, found.how)
    reason = f"proved again: error <= {found.bound:.6g}, and {error:g} was promised."
    verdict = Verdict(True, found.bound, claimed, error, reason, found.how, largest=found.largest)
    if not verdict.confirmed:
        only = f"the error is {reason} The bound that the file states ({str(claimed)[:30]}) is not confirmed, only the error is."
        return replace(verdict, passed=False, reason=only)
    if not _adds_up(record["certificate"].get("parts"), float(claimed)):
        return replace(verdict, passed=False, reason="the bound that it states is not the sum of its parts.")
    if not found.narrow <= CONFIRMS * _stated_narrow(record["certificate"], float(claimed)):
        told = f"its target is shown to stay below {found.largest:.6g}, and its certificate states another size."
        return replace(verdict, passed=False, reason=told)
    return _literally(verdict, Proved(found.bound, found.how, _stack_literal(found)), claims)


def _stated_narrow(certificate: Mapping[str, Any], claimed: float) -> float:
    """The bound of a stack whose answers are rounded to float32, by the size of its target that its file states."""
    size = certificate["details"].get("largest")
    good = type(size) in (int, float) and 0.0 <= size < math.inf
    return claimed + FLOAT32.unit * (size + claimed) if good else math.nan


def _stack_literal(found: StackProof) -> Callable[[Form, float], float]:
    """The bound of the stack of literal layers, as a rule hands it over."""

    def literal(form: Form, goal: float) -> float:
        if found.literal is None or form.name != "float64":
            raise NotProved(found.why or "only float64 is proved of a stack of literal layers.")
        return found.literal

    return literal


def _relative(
    tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, prove: Callable[[float], Proved]
) -> Callable[[float], Proved]:
    """The proof of a bound relative to |f(x)|: by the absolute one, or factor by factor where the plan says so."""
    least = shown_least(record, target)
    if not stated_scope(record["certificate"]).every_x:
        raise NotProved("errors relative to |f(x)| are proved where they speak of every x of the box.")
    if record["layer"]["keys"] != "grouped" or record["plan"].get("method") != "separated" or not record["plan"].get("relative"):
        return relatively(prove, least)

    def factorwise(error: float) -> Proved:
        layer = _read(tensors, record, target)
        doubt_formats(layer, followed=True)
        found, lost = check_relative_products(layer, record, target, error, least), lost_below(tensors, record, target) / least
        return with_more(found, lost * (1 + 1e-9))

    return factorwise


def _adds_up(parts: Any, stated: float) -> bool:
    """Whether the parts of a stated bound are numbers of at least 0 that add up to it, as far as float64 tells."""
    numbers = list(parts.values()) if isinstance(parts, dict) else []
    if not numbers or any(type(part) not in (int, float) or not 0.0 <= part < math.inf for part in numbers):
        return False
    return math.isclose(math.fsum(numbers), stated, rel_tol=1e-9)


def _literally(verdict: Verdict, found: Proved, claims: tuple[Claim, ...]) -> Verdict:
    """The verdict with what the file claims of its literal form: every claim must be proved again."""
    checked = tuple(proved_again(claim, found) for claim in claims)
    verdict = replace(verdict, claims=checked)
    wrong = [claim for claim in checked if not claim.confirmed]
    if not wrong:
        return verdict
    return replace(verdict, passed=False, reason=f"its default form is {verdict.reason} {' '.join(one.why for one in wrong)}")


def _read(tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target) -> Layer:
    """The layer of groups that a file holds, whose values are what its inputs allow."""
    layer = Layer.read(tensors, record["layer"], target)
    doubt_values(layer, target)
    return layer


def _bound(
    tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, progress: Progress, error: float
) -> Proved:
    """A bound, proved where it is at most `error`; NotProved where there is none.

    Grouped layers by the rule of the method that the plan names: it looks at the tensors and the target alone.
    """
    if record["layer"]["keys"] == "parts":
        return check_outputs(tensors, record, target, error, _part)
    if record["layer"]["keys"] != "grouped":
        return check_lookup(tensors, record, target, error, progress)
    method = record["plan"].get("method", "spectral")
    if method not in RULES:
        raise NotProved(f"this checker does not know the method {str(method)[:40]!r}; it knows {', '.join(RULES)}.")
    if record["norm"] != "inf" and not RULES[method].integral:
        raise NotProved(f"{method} layers are proved in the sup norm only.")
    layer = _read(tensors, record, target)
    doubt_formats(layer, RULES[method].followed)
    return with_underflow(RULES[method].prove(layer, record, target, error), tensors, record, target)


def _part(tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """A part of a layer of several outputs, as if it stood alone."""
    rule = RULES.get(str(record["plan"].get("method")))
    doubt_inputs(record, target)
    doubt_certificate(record, (), rule is not None and rule.own_scope)
    return _bound(tensors, record, target, silent, error)


__all__ = ["Verdict", "check", "check_file"]
