"""What a notebook shows of a layer."""

import base64
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.errors import BadInput


class Tags(HTMLParser):
    """The tags of a page, each of which must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.pictures: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        if tag == "img":
            self.pictures.append(dict(attrs)["src"])
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def layer():
    return ma.compile("sin(x) + cos(y)", ma.Box(x=(-3, 3), y=(-3, 3)), error=1e-2)


def test_a_layer_shows_its_numbers_its_parts_and_a_picture(layer):
    page = layer._repr_html_()
    tags = Tags(page)
    assert "sin(x) + cos(y)" in page and f"{layer.tokens} tokens" in page and "(not a bound)" in page
    (picture,) = tags.pictures
    assert base64.b64decode(picture.removeprefix("data:image/png;base64,")).startswith(b"\x89PNG")
    wide = sum(float(width) for width in re.findall(r'width="([\d.]+)" height="16" fill="#', page))
    assert wide == pytest.approx(420 * layer.bound / max(layer.bound, layer.error), abs=0.05)


def test_what_a_target_is_called_is_no_markup(layer):
    named = replace(layer, target=replace(layer.target, name="<script>alert(1)</script>"))
    assert "<script>" not in named._repr_html_()


def test_nothing_is_said_to_be_proved_of_a_black_box():
    seen = ma.compile(lambda x: np.exp(x[:, 0]), ma.Box(x=(0, 1)), error=1e-3, trace=False)
    page = seen._repr_html_()
    Tags(page)
    assert (seen.bound is None) == ("nothing" in page)


def test_a_loaded_layer_without_its_target_has_no_picture(tmp_path):
    seen = ma.compile(lambda x: np.exp(x[:, 0]), ma.Box(x=(0, 1)), error=1e-3, trace=False)
    seen.save(tmp_path / "f.safetensors")
    Tags(ma.load(tmp_path / "f.safetensors")._repr_html_())


def test_draw_returns_axes_and_writes_a_file_where_one_is_named(layer, tmp_path):
    axes = layer.draw(tmp_path / "f.svg")
    assert (tmp_path / "f.svg").read_text().startswith("<?xml")
    assert axes[0].figure.axes[0] is axes[0] and axes[0].get_title("left") == "target"
    with pytest.raises(BadInput, match=r"\.png, \.svg or \.pdf"):
        layer.draw(tmp_path / "f.gif")


def test_an_error_beside_a_kink_is_drawn_at_the_kinks_own_width():
    from maxaffine.report.notebook import small_figure
    from maxaffine.report.sampling import Probe

    seen = Probe(ma.compile("abs(x)", ma.Box(x=(-1, 1)), error=1e-6))
    whole, error = small_figure(seen).axes
    assert error.get_title() == "error near the worst point" and error.get_xlabel() == "x, in 1e-4"
    assert np.ptp(error.get_xlim()) < 1e-3 < np.ptp(whole.get_xlim())
    drawn = error.lines[-2].get_ydata()
    assert np.mean(np.abs(drawn) > 0.2 * abs(seen.worst_error)) > 0.04  # a tenth of a window half as wide
