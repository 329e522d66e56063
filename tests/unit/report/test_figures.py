"""The figure of a compile: drawn from a real Gaussian lookup, in every dimension, without a display."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.errors import BadInput, Refused
from maxaffine.layer.maxaffine import MaxAffine
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.observe import Observed
from maxaffine.report import figures, maps, sampling, style


class FakeBox:
    """What a figure reads of a box: edges, names, and how a sequence is folded."""

    def __init__(self, low, high, names, d=None, n=1):
        self.low, self.high, self.names = np.array(low, dtype=float), np.array(high, dtype=float), tuple(names)
        self.is_sequence, self.d, self.n = d is not None, d or len(names), n

    def unflatten(self, x):
        return x.reshape(-1, self.n, self.d).transpose(0, 2, 1) if self.is_sequence else x


class Lookup:
    """What a figure sees of a compiled layer: softmax(rho s(x)) over a partition, the target's values at its sites."""

    def __init__(self, function, box, partition, sites, rho, *, text, bound, kind="proved", norm=math.inf, boxes=None):
        self.partition_, self.rho, self.box, self.norm = partition, rho, box, norm
        shape = np.asarray(function(sites[:1])).shape[1:]
        self.shape = {0: (1, 1), 1: (*shape, 1), 2: shape}[len(shape)]
        self.output_shape = shape
        self.target = SimpleNamespace(
            text=text,
            name=None,
            data=None,
            split=self.split,
            values=self.exact,
        )
        self.boxes = boxes or (box,)
        self.function = function
        self.table = self.exact(sites)
        keys = SimpleNamespace(count=len(partition))
        self.weights = SimpleNamespace(keys=keys, grouped=False, is_product=False, is_grid=False, work=len(partition))
        self.tokens, self.method, self.error, self.dtype, self.sharpness = len(partition), "lookup", 0.1, "float64", rho
        self.certificate = Certificate(kind, norm, bound)
        self.bound = bound
        rng = np.random.default_rng(1)
        x = rng.uniform(box.low, box.high, (4000, len(box.names)))
        wrong = np.abs(self.soft(x) - self.exact(x)).max(axis=(1, 2))
        worst = int(wrong.argmax())
        self.observed = Observed(float(wrong[worst]), x[worst], len(x), 1)
        self.asked = []

    def exact(self, x):
        return np.asarray(self.function(x), dtype=float).reshape(len(x), *self.shape)

    def split(self, x):
        parts = np.split(x, np.cumsum([len(box.low) for box in self.boxes])[:-1], axis=1)
        return [box.unflatten(part) for box, part in zip(self.boxes, parts, strict=True)]

    def soft(self, x):
        return np.concatenate(
            [np.einsum("bn,nij->bij", self.alpha(part), self.table) for part in np.array_split(x, 1 + len(x) // 2000)]
        )

    def alpha(self, x):
        logits = self.rho * self.partition_.pieces(x)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def flat(self, parts):
        return np.concatenate([np.asarray(p).transpose(0, *range(p.ndim - 1, 0, -1)).reshape(len(p), -1) for p in parts], 1)

    def __call__(self, *x):
        return self.soft(self.flat(x)).reshape(len(x[0]), *self.output_shape)

    def attention(self, *x):
        flat = self.flat(x)
        self.asked.append(len(flat))
        return self.alpha(flat)

    def partition(self):
        return self.partition_


def grid_lookup(function, box, counts, rho, **facts):
    partition = MaxAffine.grid(box, counts)
    width = (box.high - box.low) / counts
    return Lookup(function, box, partition, partition.A * width**2, rho, **facts)


def one_variable(counts=12, rho=8.0, **facts):
    box = FakeBox([-1], [2], ["x"])
    facts = {"text": "sin(3*x) + x/2", "bound": 0.45, **facts}
    return grid_lookup(lambda x: np.sin(3 * x[:, 0]) + x[:, 0] / 2, box, counts, rho, **facts)


def two_variables(counts=7, rho=7.43, **facts):
    box = FakeBox([-np.pi] * 2, [np.pi] * 2, ["x", "y"])
    facts = {"text": "sin(x) + cos(y)", "bound": 0.9874, **facts}
    return grid_lookup(lambda x: np.sin(x[:, 0]) + np.cos(x[:, 1]), box, counts, rho, **facts)


def power_diagram(count=60):
    rng = np.random.default_rng(4)
    box = FakeBox([0, 0], [2, 1], ["u", "v"])
    sites = rng.uniform(box.low, box.high, (count, 2))
    partition = MaxAffine.from_power_diagram(sites, rng.uniform(0, 0.02, count))
    return Lookup(
        lambda x: np.hypot(x[:, 0] - 1, x[:, 1] - 0.5), box, partition, sites, 300.0,
        text="sqrt((u-1)**2 + (v-1/2)**2)", bound=None, kind="none",
    )  # fmt: skip


def sequence():
    """d = n = 2 with 2 x 2 outputs, the target T4."""
    box = FakeBox([-1] * 4, [1] * 4, ["x11", "x21", "x12", "x22"], d=2, n=2)

    def function(x):
        x11, x21, x12, x22 = x.T
        top = [np.sin(2 * x11) + x12 * x21, np.cos(x11 - x22)]
        return np.array([top, [np.tanh(x21 + 2 * x22), x11 * x12 / 2 + x21**2]]).transpose(2, 0, 1)

    return grid_lookup(function, box, 5, 7.43, text=None, bound=0.88)


def pair():
    boxes = FakeBox([-1, -1], [1, 1], ["q1", "q2"], d=1, n=2), FakeBox([-1, -1], [1, 1], ["k1", "k2"], d=2, n=1)
    joined = FakeBox([-1] * 4, [1] * 4, ["q1", "q2", "k1", "k2"])

    def function(x):
        q1, q2, k1, k2 = x.T
        return np.stack([np.sin(q1 + k1) + q2 * k2, np.cos(q1 - k2) + q2 / 2], axis=1)[:, None, :]

    return grid_lookup(function, joined, 4, 7.43, text=None, bound=1.1, boxes=boxes)


def eight_variables():
    box = FakeBox([0] * 8, [1] * 8, [f"x{i}" for i in range(1, 9)])
    return grid_lookup(lambda x: np.exp(-(x**2) @ np.arange(1, 9) / 8), box, 2, 7.43, text="exp(-...)", bound=1.5)


CASES = {
    "one": one_variable,
    "one-many": lambda: one_variable(counts=300, bound=0.02, rho=20.0),
    "one-token": lambda: one_variable(counts=1, bound=3.0),
    "two": two_variables,
    "two-many": lambda: two_variables(counts=28, rho=20.0, bound=0.25),
    "power": power_diagram,
    "integral": lambda: two_variables(counts=5, norm=1.0, bound=3.0),
    "sequence": sequence,
    "pair": pair,
    "eight": eight_variables,
}
KEEP = os.environ.get("MAXAFFINE_TEST_FIGURES")  # a folder in which to keep the pictures, to look at them


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """Coarser pictures than a user gets, unless they are to be looked at: the tests run in a few seconds."""
    if not KEEP:
        monkeypatch.setattr(sampling, "WEIGHTS_IN_ALL", 8_000_000)
        monkeypatch.setattr(sampling, "SUMS_IN_A_PICTURE", 4_000_000)
        monkeypatch.setattr(style, "DOTS_PER_INCH", 60)


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_layer_has_its_picture(name, tmp_path):
    path = figures.draw(CASES[name](), tmp_path / f"{name}.png")
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(data[16:20], "big") == 12 * style.DOTS_PER_INCH
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    if KEEP:
        (Path(KEEP) / path.name).write_bytes(data)


@pytest.mark.parametrize(("suffix", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("PDF", b"%PDF")])
def test_the_suffix_chooses_the_format_and_the_bytes_repeat(suffix, begin, tmp_path):
    compiled = one_variable()
    first = figures.draw(compiled, tmp_path / f"a.{suffix}").read_bytes()
    assert first.startswith(begin)
    assert figures.draw(compiled, str(tmp_path / f"b.{suffix}")).read_bytes() == first


@pytest.mark.parametrize("name", ["figure.jpg", "figure", "figure.png.txt"])
def test_an_unknown_suffix_is_refused_before_any_work(name, tmp_path):
    with pytest.raises(BadInput, match=r"`path` .* must end in \.png, \.svg or \.pdf"):
        figures.draw(None, tmp_path / name)


def test_a_missing_folder_is_named_and_a_failure_leaves_the_old_file_alone(tmp_path):
    with pytest.raises(BadInput, match="does not exist"):
        figures.draw(one_variable(), tmp_path / "none" / "a.png")
    old = tmp_path / "a.png"
    old.write_bytes(b"old")
    broken = one_variable()
    broken.target.values = lambda x: 1 / 0
    with pytest.raises(ZeroDivisionError):
        figures.draw(broken, old)
    assert old.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


def test_drawing_needs_no_pyplot_and_leaves_matplotlib_as_it_was(tmp_path):
    code = (
        "import sys, importlib.util, matplotlib\n"
        f"spec = importlib.util.spec_from_file_location('fakes', {__file__!r})\n"
        "fakes = importlib.util.module_from_spec(spec); spec.loader.exec_module(fakes)\n"
        "before = dict(dict.items(matplotlib.rcParams))  # reading the backend would load pyplot\n"
        f"fakes.figures.draw(fakes.one_variable(), {str(tmp_path / 'a.png')!r})\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert dict(dict.items(matplotlib.rcParams)) == before\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_title_keeps_proved_and_observed_apart():
    assert figures.headline(two_variables(bound=0.98741)).startswith(
        "lookup  ·  49 tokens  ·  proved bound 0.988  ·  observed error 0.5"
    )
    assert "nothing proved" in figures.headline(power_diagram())
    assert "bound" not in figures.headline(power_diagram())
    assert "statistical bound 0.45  ·" in figures.headline(one_variable(kind="statistical"))
    assert "proved L1 bound 3  ·  observed L1 error" in figures.headline(CASES["integral"]())


def test_a_bound_is_never_printed_smaller_than_it_is():
    for bound in [0.98741, 0.1, 0.0999999, 123456.7, 1e-300, 5.0, 1.0049999e-7, 9.996, 99999.9]:
        assert float(style.above(bound)) >= bound
        assert float(style.above(bound)) <= bound * 1.01
    assert style.above(math.inf) == "inf"


def test_a_bound_on_an_integral_is_not_drawn_as_a_band_over_points():
    def bands(compiled):
        drawn = figures.figure(compiled)
        return sum("bound" in text.get_text() for axes in drawn.axes for text in axes.texts)

    assert bands(two_variables()) == 2
    assert bands(CASES["integral"]()) == 0
    assert bands(power_diagram()) == 0


def test_of_several_outputs_the_one_with_the_worst_error_is_drawn_and_named():
    compiled = sequence()
    probe = sampling.Probe(compiled)
    at = compiled.observed.at[None]
    wrong = np.abs(compiled.soft(at) - compiled.exact(at))[0]
    assert wrong[probe.output] == wrong.max() == abs(probe.worst_error)
    row, column = probe.output
    assert f"output row {row + 1}, token {column + 1} of 2 × 2" in figures.subline(probe)


def test_the_worst_point_is_looked_for_when_none_was_observed():
    compiled = one_variable()
    compiled.observed = Observed(0.3, (), 0, 0)
    assert abs(sampling.Probe(compiled).worst_error) > 0.3


def test_entropy_is_that_of_the_weights_and_is_computed_in_chunks(monkeypatch):
    compiled = two_variables()
    probe = sampling.Probe(compiled)
    x = np.random.default_rng(0).uniform(-3, 3, (500, 2))
    alpha = compiled.alpha(x)
    compiled.asked.clear()
    monkeypatch.setattr(sampling, "WEIGHTS_AT_ONCE", 100 * 49)
    assert np.allclose(probe.entropy(x), -(alpha * np.log(np.maximum(alpha, 1e-300))).sum(axis=1))
    assert compiled.asked == [100] * 5


def test_entropy_beyond_the_budget_is_left_out_with_a_note(monkeypatch):
    monkeypatch.setattr(sampling, "WEIGHTS_IN_ALL", 49 * 24 * 24 - 1)
    compiled = two_variables()
    drawn = figures.figure(compiled)
    assert compiled.asked == []
    assert any("Not drawn: 49 tokens" in text.get_text() for axes in drawn.axes for text in axes.texts)


def test_entropies_of_a_product_of_axes_add_up():
    compiled = two_variables()
    window = sampling.Probe(compiled).window
    slow = sampling.Probe(compiled).entropy_plane((0, 1), window, 30, 24)
    compiled.asked.clear()
    compiled.weights.is_grid = True
    fast = sampling.Probe(compiled).entropy_plane((0, 1), window, 30, 24)
    assert sum(compiled.asked) == 61
    assert np.allclose(fast, slow)


def test_entropies_of_listed_keys_do_not_add_up_over_the_axes():
    keys = MaxAffine.from_power_diagram(np.random.default_rng(0).uniform(-1, 1, (20, 2)))
    compiled = ma.compile("x + y/2", ma.Box(x=(-1, 1), y=(-1, 1)), error=2.0, method="lookup", keys=keys)
    assert compiled.weights.coordinates.is_diagonal
    probe = sampling.Probe(compiled)
    plane = probe.plane((0, 1), probe.window, 30)
    assert np.allclose(probe.entropy_plane((0, 1), probe.window, 30, 24), probe.entropy(plane))


def test_a_constant_is_drawn_on_a_sane_scale_with_its_bound():
    box = FakeBox([-1], [1], ["x"])
    compiled = grid_lookup(lambda x: 3 + 0 * x[:, 0], box, 1, 1.0, text="3", bound=3.3e-15)
    values, error = figures.figure(compiled).axes[:2]
    assert np.ptp(values.get_ylim()) > 1
    assert [text.get_text() for text in error.texts] == ["proved bound ±3.3e-15"]
    assert error.get_ylim()[1] < 1e-14


@pytest.mark.parametrize(
    ("value", "text"), [(0.09871, "0.0987"), (12.0, "12"), (1000.0, "1000"), (1.5e-7, "1.5e-07"), (2.5e7, "2.5e+07"), (0.0, "0")]
)
def test_numbers_in_titles_are_short(value, text):
    assert style.number(value) == text


def test_a_layer_without_cells_is_drawn_without_them():
    compiled = two_variables()

    def refuse():
        raise Refused("no cells here.")

    compiled.partition = refuse
    drawn = figures.figure(compiled)
    assert any("The cells are not drawn" in text.get_text() for axes in drawn.axes for text in axes.texts)


def test_progress_ends_where_it_said_it_would():
    for compiled in (one_variable(), two_variables(), pair()):
        seen = []
        figures.figure(compiled, progress=lambda *report, seen=seen: seen.append(report))
        assert {stage for stage, _, _ in seen} == {"drawing"}
        assert [done for _, done, _ in seen] == list(range(1, seen[-1][2] + 1))


def test_dollars_and_long_texts_are_printed_as_they_are(tmp_path):
    compiled = one_variable(text="cost$ of x$ " + "+ sin(x)" * 500)
    probe = sampling.Probe(compiled)
    assert all(len(line) < 160 for line in figures.subline(probe).splitlines())
    figures.draw(compiled, tmp_path / "a.png")


def test_pictures_of_many_narrow_cells_keep_their_peaks():
    image = np.zeros((120, 120))
    image[40, 77] = 1.0
    largest = maps.peaks(image)
    assert largest.shape == (40, 40) and largest[13, 25] == 1.0 and largest.sum() == 9
