"""The checker proves errors relative to |f(x)| from their file alone, and refuses what was relabelled or changed in it."""

import copy
import json
from functools import cache

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.checker import check
from maxaffine.checker.pointwise import shown_least
from maxaffine.checker.proved import NotProved
from maxaffine.core.errors import BadInput
from maxaffine.target.target import Target

CASES = {
    "by the least size": ("exp(2*x)", {"x": (-2.0, 2.0)}, "pointwise"),
    "factor by factor": ("a**4*c**3/(b**4*d**4)", dict.fromkeys("abcd", (1.0, 10.0)), "pointwise"),
    "absolute": ("3*exp(2*x)", {"x": (-2.0, 2.0)}, False),
    "products": ("a*b/(c*d)", dict.fromkeys("abcd", (1.0, 2.0)), False),
}


@cache
def _compiled(name):
    text, box, relative = CASES[name]
    return ma.compile(text, box, error=1e-3, relative=relative, method="separated" if len(box) > 1 else "auto")


def made(name):
    """Tensors and record as a file has them, to be changed; nothing is claimed of the literal form."""
    tensors, record = _compiled(name)._record()
    record = json.loads(json.dumps(record))
    record["literal"] = {}
    return {key: np.array(tensor) for key, tensor in tensors.items()}, record


def refused(tensors, record):
    try:
        return not check(tensors, record).passed
    except BadInput:
        return True


@pytest.mark.parametrize("name", CASES)
def test_files_are_proved_again(name):
    verdict = check(*made(name))
    assert verdict.passed, verdict.reason
    assert verdict.bound <= 1.2 * verdict.claimed


def test_claims_of_the_literal_form_are_relative_too():
    verdict = check(*_compiled("by the least size")._record())
    assert verdict.passed
    assert verdict.claims
    assert all(claim.confirmed for claim in verdict.claims)


def relabelled(record, least):
    record = copy.deepcopy(record)
    record["norm"] = record["certificate"]["norm"] = "pointwise"
    record["certificate"]["least"] = least
    return record


@pytest.mark.parametrize(("name", "least"), [("absolute", 0.05), ("absolute", 1.0), ("products", 0.24), ("products", 1.0)])
def test_an_absolute_bound_relabelled_as_relative_is_refused(name, least):
    tensors, record = made(name)
    assert refused(tensors, relabelled(record, least))


def test_a_relative_bound_relabelled_as_absolute_is_refused():
    tensors, record = made("factor by factor")
    record["norm"] = record["certificate"]["norm"] = "inf"
    del record["certificate"]["least"]
    assert refused(tensors, record)


@pytest.mark.parametrize("name", ["by the least size", "factor by factor"])
@pytest.mark.parametrize("change", ["least", "no least", "record", "certificate", "bound", "scope", "zero", "word"])
def test_what_the_file_measures_by_cannot_be_changed(name, change):
    tensors, record = made(name)
    certificate = record["certificate"]
    if change == "least":
        certificate["least"] *= 1.1
    elif change == "no least":
        del certificate["least"]
    elif change == "record":
        record["norm"] = "inf"
    elif change == "certificate":
        certificate["norm"] = "inf"
    elif change == "bound":
        certificate["bound"] /= 2.0
        certificate["parts"] = {part: value / 2.0 for part, value in certificate["parts"].items()}
    elif change == "scope":
        certificate["scope"] = {"over": "box", "gap": 0.1, "measure": "distance", "jumps": 1}
    else:
        certificate["least"] = 0.0 if change == "zero" else "1"
    assert refused(tensors, record)


def test_without_its_factors_a_product_is_not_relative():
    tensors, record = made("factor by factor")
    del record["plan"]["relative"]
    assert refused(tensors, record)


def test_the_word_relative_does_nothing_to_an_absolute_file():
    tensors, record = made("products")
    plain = check(tensors, record)
    record["plan"]["relative"] = True
    assert check(tensors, record) == plain


def test_every_stored_factor_counts():
    tensors, record = made("factor by factor")
    names = [name for name in tensors if "value" in name or "factor" in name]
    assert names
    for name in names:
        moved = {**tensors, name: tensors[name] * (1 + 2e-3)}
        assert refused(moved, record), name


@pytest.mark.parametrize(
    ("text", "box", "least", "holds"),
    [
        ("x**2 - 2*x + 2", (-1.0, 3.0), 0.999, True),
        ("x**2 - 2*x + 2", (-1.0, 3.0), 1.001, False),
        ("-exp(x)", (-1.0, 1.0), 0.3678, True),
        ("x", (-1.0, 1.0), 1e-9, False),
        ("(x - 0.3)**2", (-1.0, 1.0), 1e-12, False),
        ("1/(x + 1.5)", (-1.0, 1.0), 0.41, False),
    ],
)
def test_the_least_size_is_shown_and_never_taken(text, box, least, holds):
    target, record = Target.of(text, ma.Box(x=box)), {"certificate": {"least": least}}
    if holds:
        assert shown_least(record, target) == least
    else:
        with pytest.raises(NotProved):
            shown_least(record, target)
