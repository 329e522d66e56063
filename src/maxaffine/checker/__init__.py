"""The independent checker: re-proves a saved layer from its file alone.

It shares no code with the planner, the runtimes or the certificates.  Where those use closed forms, the checker encloses
the softmax of the stored keys numerically; where those bisect, it cuts in three; its constants are its own.  It imports
only `core`, `target` and the definition, and it says "not proved" to everything that it cannot prove.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from maxaffine.checker.axis_clusters import check_axis
from maxaffine.checker.curved import check_curved
from maxaffine.checker.entries import check_entries
from maxaffine.checker.grid import check_integral, check_sup
from maxaffine.checker.level_sets import check_level_sets
from maxaffine.checker.listed import check_centres, check_partition
from maxaffine.checker.literal import Claim, claims_of, proved_again
from maxaffine.checker.piecewise import check_piecewise
from maxaffine.checker.products import check_products
from maxaffine.checker.proved import Form, Proved
from maxaffine.checker.regions import check_regions
from maxaffine.checker.spectral import check_spectral
from maxaffine.checker.stored import NotProved, Stored, stated_scope
from maxaffine.checker.sums import check_sums
from maxaffine.checker.tree import check_tree
from maxaffine.core.container import read_container
from maxaffine.core.errors import BadInput
from maxaffine.core.outdated import refuse_outdated
from maxaffine.core.progress import Progress, silent
from maxaffine.core.rounding import compute_format
from maxaffine.core.scope import Scope
from maxaffine.target.samples import Samples
from maxaffine.target.table import Table
from maxaffine.target.target import Target

Prover = Callable[[Mapping[str, Any], Mapping[str, Any], Target, float], Proved]

# One line per method of grouped layers: (tensors, record, target, error) -> what is proved, or NotProved.
GROUPED: dict[str, Prover] = {
    "spectral": check_spectral,
    "piecewise": check_piecewise,
    "axis": check_axis,
    "tree": check_tree,
    "curved": check_curved,
    "regions": check_regions,
    "level": check_level_sets,
    "sums": check_sums,
    "products": check_products,
}
INTEGRAL: frozenset[str] = frozenset({"axis", "level", "regions"})  # those of them that prove L_p bounds as well
SPEAKING: frozenset[str] = frozenset({"axis", "regions", "sums", "products"})  # they compare the certificate's scope themselves


# The checker's constants are its own: for 118 layers of the gallery its bound is 0.57 to 1.08 times the one stated, and at most
# 1.11 times for two dozen with kinks, jumps and products.
CONFIRMS = 1.2


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

    @property
    def confirmed(self) -> bool:
        """Whether the bound that the file states is proved again, up to the checker's own constants."""
        return self.bound is not None and self.bound <= self.error and self.bound <= CONFIRMS * _stated(self.claimed)


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
        return _check(tensors, record, table, progress)
    except BadInput:
        raise
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, ArithmeticError) as failure:
        # A hash is no seal: whoever edits a file can hash it again, so every field is doubted.
        raise BadInput(f"the record of a layer cannot be read ({type(failure).__name__}: {failure}).") from None


def check_file(path: Any, table: Table | Samples | None = None) -> Verdict:
    """`check` of a saved file."""
    return check(*read_container(path), table)


def _stated(claimed: Any) -> float:
    """The bound that a file states; not a number where it states none."""
    return float(claimed) if isinstance(claimed, (int, float)) and not isinstance(claimed, bool) else math.nan


def _check(tensors: Mapping[str, Any], record: Mapping[str, Any], table: Table | Samples | None, progress: Progress) -> Verdict:
    refuse_outdated(record)
    certificate = record["certificate"]
    error, claimed = float(record["error"]), certificate.get("bound")
    if certificate.get("kind") != "proved":
        return Verdict(False, None, claimed, error, f"the file promises nothing proved (kind {certificate.get('kind')!r}).")
    target = Target.from_json(record["target"])
    if target.expression is None and target.entries is None:
        return Verdict(
            False, None, claimed, error,
            "its target is a Python callable, which a file cannot hold; only expressions can be proved again.",
        )  # fmt: skip
    try:
        claims = claims_of(record)
        if target.entries is not None:
            where = f"at the {target.entries.count:,} entries"

            def prove(goal: float) -> Proved:
                return check_entries(tensors, record, target, table, goal)

        else:
            if table is not None:
                raise NotProved("its target is an expression, and a table was given; leave the table out.")
            _spoken(record, claims)
            where = ""

            def prove(goal: float) -> Proved:
                return _bound(tensors, record, target, goal, progress)

        found = prove(error)
    except NotProved as failure:
        return Verdict(False, None, claimed, error, str(failure))
    told = f"{where} " if where else ""
    if not found.bound <= error:
        reason = f"the checker's own bound {told}is {found.bound:.6g}, above the {error:g} promised."
        return Verdict(False, found.bound, claimed, error, reason, found.how)
    aim = CONFIRMS * _stated(claimed)
    if 0.0 < aim < found.bound:
        with suppress(NotProved):  # the same proof of a smaller error, which counts where it succeeds
            nearer = prove(aim)
            found = nearer if nearer.bound <= aim else found
    reason = f"proved again{f' {where}' if where else ''}: error <= {found.bound:.6g}, and {error:g} was promised."
    verdict = Verdict(True, found.bound, claimed, error, reason, found.how)
    if not verdict.confirmed:
        told = f"the error is {reason} The bound that the file states ({str(claimed)[:30]}) is not confirmed, only the error is."
        return replace(verdict, passed=False, reason=told)
    if not _adds_up(certificate.get("parts"), float(claimed)):
        return replace(verdict, passed=False, reason="the bound that it states is not the sum of its parts.")
    return _literally(verdict, found, claims)


def _adds_up(parts: Any, stated: float) -> bool:
    """Whether the parts of a stated bound are numbers of at least 0 that add up to it, as far as float64 tells."""
    numbers = list(parts.values()) if isinstance(parts, dict) else []
    if not numbers or any(type(part) not in (int, float) or not 0.0 <= part < math.inf for part in numbers):
        return False
    return math.isclose(math.fsum(numbers), stated, rel_tol=1e-9)


def _literally(verdict: Verdict, found: Proved, claims: tuple[Claim, ...]) -> Verdict:
    """The verdict with what the file claims of its literal form: every claim must be proved again."""
    if not claims:
        return verdict
    checked = tuple(proved_again(claim, found) for claim in claims)
    verdict = replace(verdict, claims=checked)
    wrong = [claim for claim in checked if not claim.confirmed]
    if not wrong:
        return verdict
    return replace(verdict, passed=False, reason=f"its default form is {verdict.reason} {' '.join(one.why for one in wrong)}")


def _bound(
    tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, error: float, progress: Progress
) -> Proved:
    """A bound, proved where it is at most `error`; NotProved where there is none."""
    if record["layer"]["keys"] == "grouped":
        return _prove_grouped(tensors, record, target, error)
    return _prove(Stored.read(tensors, record["layer"], target), target, record, error, progress)


def _spoken(record: Mapping[str, Any], claims: tuple[Claim, ...]) -> None:
    """The certificate speaks of the norm, the dtype, the runtimes and the scope that are proved here, and of nothing else."""
    certificate, layer, plan = record["certificate"], record["layer"], record["plan"]
    if certificate.get("norm") != record["norm"]:
        raise NotProved(f"its certificate speaks of the norm {str(certificate.get('norm'))[:20]!r}, its record of another.")
    if layer.get("hard", False) is not False:
        raise NotProved("it answers with the nearest key alone, which is proved for tables and samples only.")
    if certificate.get("dtype") != layer["dtype"]:
        raise NotProved("its certificate speaks of another dtype than the one its numbers are stored in.")
    clusters = layer["keys"] == "grouped" and any(layer.get("clusters", ()))
    if certificate.get("runtime") not in ("any", "two-level" if clusters else "arrays"):
        raise NotProved(f"its certificate speaks of the runtime {str(certificate.get('runtime'))[:20]!r} alone; not re-proved.")
    if certificate["runtime"] == "any":
        # "any" is every form: the literal one as well, which is a claim of its own
        stated = _stated(certificate.get("bound"))
        if not any(claim.arithmetic == "float64" and claim.stated <= stated for claim in claims):
            raise NotProved("its certificate speaks of every runtime, and nothing as small is claimed of its literal form.")
    listed = layer["keys"] not in ("grouped", "product")
    own = plan.get("method") in SPEAKING if layer["keys"] == "grouped" else listed and plan.get("plan") == "centres"
    if not own and not Scope("box" if record["norm"] == "inf" else "integral").covers(stated_scope(certificate)):
        raise NotProved("the x it is proved for are not those its certificate speaks of.")


def _prove_grouped(tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """Grouped layers, by the prover of the method that the plan names: it looks at the tensors and the target alone."""
    method = record["plan"].get("method", "spectral")
    if method not in GROUPED:
        raise NotProved(f"this checker does not know the method {str(method)[:40]!r}; it knows {', '.join(GROUPED)}.")
    if record["norm"] != "inf" and method not in INTEGRAL:
        raise NotProved(f"{method} layers are proved in the sup norm only.")
    found = GROUPED[method](tensors, record, target, error)
    if not _scored(tensors, target, compute_format(str(record["layer"]["dtype"])).name):
        raise NotProved("far from its clusters, local coordinates or scores may be too large for its dtype.")
    if not _answers(tensors, target) < 0.4 * float(np.finfo(compute_format(str(record["layer"]["dtype"])).name).max):
        raise NotProved("its answers may be too large for its dtype.")
    # Results below the smallest normal number: the answer in its dtype, and every product and sum of a stored number.
    lost = compute_format(str(record["layer"]["dtype"])).tiny
    lost += 100.0 * (target.box.dimension + 2) * sum(int(np.size(tensor)) for tensor in tensors.values()) * 2.0**-1074
    volume = 1.0 if record["norm"] == "inf" else float(np.prod(target.box.width)) ** (1.0 / float(record["norm"]))
    added = lost * max(volume, 1.0) * (1 + 1e-9)
    return replace(found, bound=found.bound + added, literal=_more(found.literal, added))


def _more(literal: Callable[[Form, float], float] | None, added: float) -> Callable[[Form, float], float] | None:
    """The same way to a bound of the literal form, with something added to it."""
    return None if literal is None else lambda form, claimed: literal(form, claimed) + added


def _scored(tensors: Mapping[str, Any], target: Target, compute: str) -> bool:
    """Whether what leads to the scores of clusters are numbers of their formats: t of the farthest query, logits and sites.

    A logit is a product and a sum in the dtype that computes, sites are added to them in float64; inf - inf answers nothing.
    """
    span, most = target.box.high - target.box.low, 0.1 * float(np.finfo(compute).max)
    for name in sorted(name for name in tensors if name.endswith(".radii")):
        group = name.removesuffix("radii")
        part = {
            kind: np.abs(np.asarray(tensors[f"{group}{kind}"], dtype=np.float64))
            for kind in ("matrix", "origins", "radii", "sites.slopes", "sites.offsets")
        }
        z = part["matrix"] @ span
        with np.errstate(all="ignore"):
            t = ((z + part["origins"]) / part["radii"]).max(axis=0)
            logits = [
                at * float(np.abs(np.asarray(tensors[f"{group}keys.{e}.slopes"], dtype=np.float64)).max())
                + float(np.abs(np.asarray(tensors[f"{group}keys.{e}.offsets"], dtype=np.float64)).max())
                for e, at in enumerate(t)
            ]
            sites = (part["sites.slopes"] @ z + part["sites.offsets"]).max()
            if not (max(*t, *logits) < most and sites + sum(logits) < 2.0**1015):
                return False
    return True


def _answers(tensors: Mapping[str, Any], target: Target) -> float:
    """A bound of |layer| over the box: of every group the largest value that a token may have, from its stored numbers alone.

    Sums that are divided by their normaliser at the end are as many times larger as there are tokens, in float64.
    """
    wide = {name: np.abs(np.asarray(tensor, dtype=np.float64)) for name, tensor in tensors.items()}
    span, total = target.box.high - target.box.low, 0.0
    if "tilt" in wide:
        total += float((wide["tilt"] @ span).max())
    products: dict[str, list[float]] = {}  # of the largest values of factors; other groups have one
    for name in sorted(name for name in wide if name.endswith(".matrix")):
        group = name.removesuffix("matrix")
        t = wide[name] @ span
        if f"{group}radii" in wide:
            t = ((t + wide[f"{group}origins"]) / np.asarray(tensors[f"{group}radii"], dtype=np.float64)).max(axis=0)
        if f"{group}values" in wide:
            lean = wide.get(f"{group}value_slopes")
            largest = float(wide[f"{group}values"].max()) + (0.0 if lean is None else float((lean @ t).max()))
        else:
            factors = [wide[one].max(axis=0) for one in sorted(wide) if one.startswith(group) and one.endswith(".factor")]
            largest = float(np.prod(factors, axis=0).sum())
        count = sum(tensor.size for one, tensor in wide.items() if one.startswith(group))
        if not largest * float(count) ** len(wide[name]) < 2.0**1019:
            return math.inf
        products.setdefault(name.partition(".factor.")[0], []).append(largest)
    total += sum(math.prod(factors) for factors in products.values())
    total += sum(float(tensor.sum()) for name, tensor in wide.items() if name.endswith(".shift"))
    return total * 1.01


def _prove(
    layer: Stored, target: Target, record: Mapping[str, Any], error: float, progress: Progress = silent
) -> Proved:
    found = _lookup(layer, target, record, error, progress)
    volume = 1.0 if record["norm"] == "inf" else float(np.prod(target.box.width)) ** (1.0 / float(record["norm"])) * (1 + 1e-12)
    return replace(found, literal=lambda form, claimed: layer.literally(found.bound, form, target.n_out, volume))


def _lookup(layer: Stored, target: Target, record: Mapping[str, Any], error: float, progress: Progress) -> Proved:
    norm = record["norm"]
    declared = record.get("declared") or {}
    if norm != "inf":
        if not 1.0 <= float(norm) <= 64.0:
            raise NotProved(f"its norm (={norm!r}) is not that of L_p with p from 1 to 64.")
        if not layer.is_grid:
            raise NotProved("L_p errors are proved on grids only.")
        return check_integral(layer, target, float(norm), error)
    if layer.is_grid:
        return check_sup(layer, target, declared, error, progress)
    if record["plan"].get("plan") == "centres":
        scope = stated_scope(record["certificate"])
        if scope != Scope("centres", radius=scope.radius, count=len(layer.values)) or scope.radius is None:
            raise NotProved("the x it is proved for are not those its certificate speaks of.")
        return check_centres(layer, target, declared, scope.radius)
    return check_partition(layer, target, error)


__all__ = ["Verdict", "check", "check_file"]
