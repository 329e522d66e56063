"""What a notebook shows of a stack, and its picture."""

import base64
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

import maxaffine as ma
from maxaffine.core.errors import BadInput

BOX = {"x": (1, 2), "y": (1, 3), "z": (-1, 1)}


@pytest.fixture(scope="module")
def stack():
    return ma.compile("x*y*exp(-z)/(x + y)", BOX, error=1e-4, layers="auto")


def test_a_stack_shows_its_numbers_its_nodes_and_a_picture(stack):
    page, pictures, open_ = stack._repr_html_(), [], []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: (open_.append(tag), tag == "img" and pictures.append(dict(attrs)["src"]))
    parser.handle_endtag = lambda tag: open_.remove(tag)
    parser.feed(page)
    assert not open_ and f"{stack.tokens} tokens in {len(stack.nodes)} heads" in page and "(not a bound)" in page
    (picture,) = pictures
    assert base64.b64decode(picture.removeprefix("data:image/png;base64,")).startswith(b"\x89PNG")
    wide = sum(float(width) for width in re.findall(r'width="([\d.]+)" height="16" fill="#', page))
    assert wide == pytest.approx(420 * stack.bound / max(stack.bound, stack.error), abs=0.1)


def test_what_a_target_is_called_is_no_markup(stack):
    named = replace(stack, target=replace(stack.target, name="<script>alert(1)</script>"))
    assert "<script>" not in named._repr_html_()


def test_draw_returns_axes_and_writes_a_file_where_one_is_named(stack, tmp_path):
    (axes,) = stack.draw()
    assert any("tokens" in text.get_text() for text in axes.texts) and axes.figure.axes == [axes]
    stack.draw(tmp_path / "s.svg")
    assert (tmp_path / "s.svg").read_text().startswith("<?xml")
    with pytest.raises(BadInput, match=r"\.png, \.svg or \.pdf"):
        stack.draw(tmp_path / "s.gif")
