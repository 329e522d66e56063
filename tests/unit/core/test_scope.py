"""Scopes: data in certificates and files, sentences only for people, and files of format 1 that have sentences."""

from pathlib import Path

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.errors import BadInput
from maxaffine.core.scope import Scope, from_words
from maxaffine.report.scope import in_words

OLD = Path(__file__).parents[2] / "data" / "format-1"
SCOPES = (
    Scope(), Scope("box", "float64"), Scope(gap=1e-3, measure="distance", jumps=2), Scope("integral"),
    Scope("integral", "float64"),
    Scope("box", "float64", gap=0.1, measure="direction", jumps=1), Scope("centres", radius=0.5, count=7), Scope("nothing"),
    Scope("entries", count=6, kind="table", sha256="14e6bfcfedbf2819", missing=2), Scope("entries", count=9, kind="samples"),
)  # fmt: skip


@pytest.mark.parametrize("scope", SCOPES, ids=str)
def test_a_scope_survives_its_record_and_has_words(scope):
    assert Scope.from_json(scope.to_json()) == scope
    assert len(in_words(scope)) > 3


def test_words_differ_where_scopes_do():
    assert len({in_words(scope) for scope in SCOPES}) == len(SCOPES)


def test_all_real_x_cover_the_float64_numbers_and_nothing_else_covers_more():
    for one in SCOPES:
        for other in SCOPES:
            same = {**one.to_json(), "inputs": "float64"} == other.to_json()
            assert one.covers(other) == (one == other or same)


@pytest.mark.parametrize(
    "data",
    [
        None, "every x", [], {}, {"over": "plane"}, {"over": "box", "inputs": "complex"}, {"over": "box", "gap": -1.0},
        {"over": "box", "gap": float("nan")}, {"over": "box", "gap": float("inf")}, {"over": "box", "jumps": 1.5},
        {"over": "box", "jumps": True}, {"over": "box", "more": 1}, {"over": "centres", "radius": "0.5"},
    ],
)  # fmt: skip
def test_records_that_are_no_scope_are_refused(data):
    with pytest.raises(BadInput, match="which x"):
        Scope.from_json(data)


@pytest.mark.parametrize("words", ["", "every x", "all real x of the box", "the integral over the box of |layer - target|^q"])
def test_sentences_of_format_1_are_understood_word_for_word_or_refused(words):
    with pytest.raises(BadInput, match="which x"):
        from_words(words)


def test_a_product_of_format_1_is_refused_with_the_command_that_makes_it_anew():
    with pytest.raises(BadInput, match=r"maxaffine compile .* --method products"):
        ma.load(OLD / "products.safetensors")


KEPT = sorted(set(OLD.glob("*.safetensors")) - {OLD / "products.safetensors"})


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_files_of_format_1_load_and_check(path):
    table = ma.Table([np.linspace(0, 1, 6)], np.sin(np.linspace(0, 1, 6))) if path.stem == "table" else None
    layer = ma.load(path)
    assert layer.bound is not None and layer.bound <= layer.error
    from maxaffine.checker import check_file

    assert check_file(path, table).passed
    over = {"centres": "centres", "table": "entries", "axis-integral": "integral", "regions-integral": "integral"}
    assert layer.certificate.scope.over == over.get(path.stem, "box")
    assert (layer.certificate.scope.gap is not None) == path.stem.endswith("gap")
