"""Terms that outputs share: their signed sums are the outputs, exactly, and nothing else is taken for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import maxaffine as ma
from maxaffine.structure.terms import terms_of
from maxaffine.target.gallery import gallery
from maxaffine.target.parts import adds_up
from maxaffine.target.sequence_collection import MAPS
from maxaffine.target.target import Target

ROW = ma.Box.sequence(1, 3)


def added(target):
    terms = terms_of(target.expression, target.n_out)
    return terms, [(term.text, term.writes(target.n_out)) for term in terms]


@pytest.mark.parametrize("name", [row[0] for row in MAPS])
def test_terms_of_the_maps_of_the_gallery_add_up(name):
    target = gallery[name].target
    assert adds_up(target, added(target)[1])


@given(st.lists(st.lists(st.integers(-2, 2), min_size=5, max_size=5), min_size=2, max_size=3))
def test_whatever_the_coefficients_terms_add_up(rows):
    nodes = ["sin(x1)", "abs(x2)", "x1*x3", "x2", "1"]
    text = "; ".join(" + ".join(f"({c})*{node}" for c, node in zip(row, nodes, strict=True)) for row in rows)
    target = Target.of(text, ROW)
    _, made = added(target)
    if all(any(row) for row in rows):  # an output that is zero has no term
        assert adds_up(target, made)
        entries = [e for _, own in made for _, e, _ in own]
        assert set(entries) == set(range(len(rows)))


def test_tokens_share_terms_up_to_their_sign():
    terms, _ = added(Target.of("sin(x1) + cos(x2); sin(x1) - cos(x2); 2*sin(x1)", ROW))
    found = {term.text: (term.entries, term.also) for term in terms}
    assert found == {"sin(x1)": ((0,), ((1, 1),)), "cos(x2)": ((0,), ((1, -1),)), "2*sin(x1)": ((2,), ())}


def test_rows_have_values_of_their_own():
    (term,), _ = added(Target.of("sin(x1), 3*sin(x1) + x1", ROW))
    assert term.entries == (0, 1) and term.text == "sin(x1), x1 + 3*sin(x1)"


def test_what_does_not_add_up_is_seen():
    target = Target.of("sin(x1) + cos(x2); sin(x1)", ROW)
    _, made = added(target)
    assert adds_up(target, made)
    for wrong in ("sin(x1) + 1e-30", "sin(x2)", "(t := sin(x1))", "sin(x1); x1"):
        assert not adds_up(target, [(wrong if text == "sin(x1)" else text, own) for text, own in made])
    assert not adds_up(target, made[:1])
