"""Statistical certificates: true where the truth is known, honest in every word, from the request to the file."""

import json
import math
import os

import numpy as np
import pytest
from scipy.integrate import quad

import maxaffine as ma
from maxaffine.cli.app import main
from maxaffine.core.container import read_container, write_container
from maxaffine.proofs.statistical import Drawn, Statistical, integral_limit, share_of

BOX = ma.Box(x=(0, 2), y=(-1, 1))
POINTS = 10_000_000 if os.environ.get("MAXAFFINE_DRAWS") else 1_000_000


def integrand(t, a, b):
    return np.exp(-a * t) * np.cos(3 * b * t)


def integral(x):
    return np.array([quad(integrand, 0, 1, args=(a, b))[0] for a, b in x])


def twin(x):
    """The same integral in closed form."""
    s = -x[:, 0] + 3j * x[:, 1]
    return np.where(np.abs(s) < 1e-9, 1.0, (np.expm1(s) / np.where(s == 0, 1, s)).real)


@pytest.fixture(scope="module")
def layer():
    return ma.compile(integral, BOX, error=1e-6, require="statistical", trace=False)


def test_a_quadrature_takes_few_calls_to_fit_and_13809_to_draw(layer):
    drawn = layer.certificate.drawn
    assert layer.certificate.kind == "statistical" and layer.bound is None
    assert drawn.fit < 5_000 and drawn.calls == drawn.points == 13_809 and layer.calls == drawn.fit + drawn.calls
    assert 0.999e-3 < drawn.share <= 1e-3 and drawn.delta == pytest.approx(1e-6) and drawn.error <= 1e-6
    assert f"evaluated at {drawn.fit:,} points to fit, and at 13,809 drawn ones" in layer.explain()


def test_the_stated_share_is_true_of_a_twin(layer):
    rng, above = np.random.default_rng(99), 0
    for _ in range(POINTS // 100_000):
        x = BOX.sample(100_000, rng)
        above += int((np.abs(layer(x) - twin(x)) > layer.certificate.drawn.error + 1e-13).sum())
    assert above <= layer.certificate.drawn.share * POINTS


def test_no_word_of_it_is_of_a_proof(layer):
    drawn = layer.certificate.drawn
    said = [drawn.words, drawn.how, str(layer.certificate), *layer.certificate.assumptions, repr(layer)]
    said += [line for line in layer.explain().splitlines() if line.startswith(("statistical", "calls", "routes", "  arrays"))]
    said += [str(layer.statement()), layer.statement("dense").why]
    assert not [one for one in said if "proved" in one or "bound" in one]
    assert "statistical error <= " in layer.explain() and "but for a share of at most 0.001 of the box" in repr(layer)


def test_it_speaks_of_the_routes_that_ran_for_the_draw(layer):
    said = {(one.route, one.dtype, one.device): one for one in layer.statements()}
    assert said["arrays", "float64", "cpu"].statistical and said["tensors", "float64", "cpu"].statistical
    assert not any(one.covered for one in said.values())
    for route in ("dense", "module", "multihead", "matrices", "onnx"):
        assert said[route, "float64", "cpu"].statistical is None
    assert said["arrays", "float64", "cpu"].to_json()["statistical"] == layer.certificate.drawn.words


def test_it_comes_back_from_its_file_and_check_says_that_it_cannot_prove_it(tmp_path, capsys):
    layer = ma.compile(twin, BOX, error=1e-6, require="statistical", trace=False)
    path = tmp_path / "f.safetensors"
    layer.save(path)
    loaded = ma.load(path)
    assert loaded.certificate.drawn == layer.certificate.drawn and loaded.to_bytes() == layer.to_bytes()
    assert "standing   stated in the file; a draw can be repeated" in loaded.explain()
    assert not ma.check(path).passed and "No checker can prove it again" in ma.check(path).reason
    assert main(["check", str(path)]) == 1
    out, err = capsys.readouterr()
    assert "claimed    statistical: error <= " in out and "verdict    statistical" in out
    assert "No checker can prove it again" in err
    layer.draw(tmp_path / "f.svg")
    drawn = (tmp_path / "f.svg").read_text()
    assert "statistical: error" in drawn and "nothing proved" not in drawn and "proved bound" not in drawn
    assert layer.to_json()["drawn"]["points"] == 13_809 and json.dumps(layer.semantics())
    assert "statistical" in layer._repr_html_()


@pytest.mark.parametrize(
    "changed",
    [
        {"share": 1e-5}, {"points": 10}, {"points": 13809.5}, {"error": -1.0}, {"error": math.inf}, {"delta": 0.0}, {"norm": 0.5},
        {"norm": 2}, {"integral": 1e-9}, {"seed": "0"}, {"more": 1}, {"share": None}, {"fit": True},
    ],
)  # fmt: skip
def test_a_file_cannot_state_a_draw_that_is_not_possible(layer, tmp_path, changed):
    path = tmp_path / "f.safetensors"
    layer.save(path)
    tensors, record = read_container(path)
    record["certificate"]["drawn"].update(changed)
    write_container(path, tensors, record)
    with pytest.raises(ma.BadInput, match="says in no possible way what was drawn"):
        ma.load(path)
    for edit in ({"bound": 1e-9}, {"kind": "proved"}, {"kind": "none"}):
        tensors, record = layer.to_bytes() and layer._record()
        record = json.loads(json.dumps(record))
        record["certificate"].update(edit)
        write_container(path, tensors, record)
        with pytest.raises(ma.BadInput, match="its certificate is statistical"):
            ma.load(path)


def test_what_can_be_proved_is_proved_without_a_draw():
    layer = ma.compile("sin(x)", ma.Box(x=(0, 1)), error=1e-6, require="statistical")
    assert layer.certificate.kind == "proved" and layer.calls is None
    layer = ma.compile(twin, BOX, error=0.5, require="statistical", lipschitz=[1, 3], trace=False)
    assert layer.certificate.kind == "proved"


def test_a_limit_covers_fit_and_draw_and_enlarges_the_share():
    points = []

    def counted(x):
        points.append(len(x))
        return twin(x)

    layer = ma.compile(counted, BOX, error=1e-6, require="statistical", run=ma.Run(max_calls=6_000))
    drawn = layer.certificate.drawn
    assert sum(points) == layer.calls == drawn.fit + drawn.calls == 6_000
    assert 1e-3 < drawn.share == pytest.approx(1 - 1e-6 ** (1 / drawn.points), rel=1e-4)
    with pytest.raises(ma.Refused, match=r"`max_calls` \(=100, 50 of them kept for the draw\) ended the search") as refused:
        ma.compile(counted, BOX, error=1e-12, require="statistical", run=ma.Run(max_calls=100))
    assert refused.value.nearest_error is not None


def test_a_layer_that_does_not_pass_its_draw_is_not_handed_out():
    """The spike is too narrow for the search, not for the draw."""
    seen = []

    def spiked(x):
        seen.append(x)
        return np.sin(x[:, 0]) + (np.abs(x[:, 0] - place) < 8e-4)

    place = 7.0  # outside
    ma.compile(spiked, ma.Box(x=(0, 2)), error=1e-6, trace=False)
    known = np.sort(np.concatenate(seen).ravel())
    gap = int(np.diff(known).argmax())
    place = known[gap : gap + 2].mean()  # where no search looked
    width = np.diff(known).max()
    assert width > 1.6e-3
    found = ma.compile(spiked, ma.Box(x=(0, 2)), error=1e-6, trace=False)
    assert found.observed.error <= 1e-6  # the search is deceived
    with pytest.raises(ma.Refused, match="a draw found an error of 1 where 1e-06 is asked for"):
        ma.compile(spiked, ma.Box(x=(0, 2)), error=1e-6, require="statistical", trace=False)


def test_a_random_function_is_found_out():
    rng = np.random.default_rng(0)
    with pytest.raises(ma.BadInput, match="gives other values when it is called again"):
        ma.compile(lambda x: twin(x) + 1e-2 * rng.random(len(x)), BOX, error=0.1, require="statistical", trace=False)


def test_a_function_that_shakes_less_than_matters_is_told_so_among_the_assumptions():
    rng = np.random.default_rng(0)
    box = ma.Box(x=(0, 2))
    shaken = ma.compile(
        lambda x: np.sin(x[:, 0]) + 1e-9 * rng.random(len(x)), box, error=1e-3, trace=False, require=ma.Statistical(0.1, 0.9)
    )
    still = ma.compile(lambda x: np.sin(x[:, 0]), box, error=1e-3, trace=False, require=ma.Statistical(0.1, 0.9))
    assert any("seen not to hold" in line and "e-10 apart" in line for line in shaken.certificate.assumptions)
    assert len(shaken.certificate.assumptions) == len(still.certificate.assumptions) + 1


def test_an_integral_is_limited_where_a_range_is_declared():
    def step(x):
        return (x[:, 0] > 0.3) * 1.0

    line = ma.Box(x=(-1, 1))
    for norm in (1, 2):
        layer = ma.compile(step, line, error=0.1, norm=norm, require=Statistical(range=(0, 1)), trace=False)
        drawn = layer.certificate.drawn
        assert drawn.share is None and drawn.integral <= 0.1 and f"in the L_{norm} norm, with confidence" in repr(layer)
        x = np.linspace(-1, 1, 400_001)[:, None]
        assert (2 * np.mean(np.abs(layer(x) - step(x)) ** norm)) ** (1 / norm) <= drawn.integral
        assert ma.Certificate.from_json(json.loads(json.dumps(layer.certificate.to_json()))) == layer.certificate
    with pytest.raises(ma.BadInput, match=r"`range` .* is contradicted: the function is"):
        ma.compile(step, line, error=0.1, norm=1, require=Statistical(range=(0, 0.5)), trace=False)
    with pytest.raises(ma.BadInput, match="where a range of the function is declared"):
        ma.compile(step, line, error=0.1, norm=1, require="statistical", trace=False)


@pytest.mark.parametrize("bad", [{"share": 0}, {"share": True}, {"confidence": 1}, {"range": (1, 0)}, {"range": 3}])
def test_what_makes_no_sense_is_refused(bad):
    with pytest.raises(ma.BadInput, match=f"`{next(iter(bad))}`"):
        ma.Statistical(**bad)


# -- the theorems, against chance


def test_the_number_of_points_is_the_least_that_serves_and_all_draws_share_delta():
    assert Statistical().points() == 13_809 and Statistical(1e-2, 0.99).points() == 459
    for share, confidence in ((1e-3, 1 - 1e-6), (0.05, 0.9), (1e-5, 0.999)):
        asked = Statistical(share, confidence)
        n = asked.points()
        assert share_of(n, asked.delta_of(0)) <= share < share_of(n - 1, asked.delta_of(0))
        assert math.fsum(asked.delta_of(j) for j in range(60)) <= asked.delta
        assert all(share_of(asked.points(j), asked.delta_of(j)) <= share for j in range(4))


def test_a_share_is_missed_as_often_as_stated_and_not_more():
    """Uniform errors: the share above the largest of N exceeds the stated one with probability delta, exactly."""
    rng, delta, n, trials = np.random.default_rng(5), 0.1, 12, 40_000
    missed = np.mean(1.0 - rng.random((trials, n)).max(axis=1) > share_of(n, delta))
    assert abs(missed - delta) < 5 * math.sqrt(delta * (1 - delta) / trials)


def test_a_mean_is_above_its_limit_rarely():
    rng, delta, n = np.random.default_rng(6), 0.05, 400
    for chance in (0.002, 0.05, 0.5):
        limits = [integral_limit(row, 1.0, delta) for row in (rng.random((2_000, n)) < chance).astype(float)]
        assert np.mean(np.array(limits) < chance) <= delta


def test_a_stated_draw_survives_its_record():
    drawn = Drawn(1e-3, 100, share_of(100, 0.01), 0.01, 0, 0, 5, 100)
    assert Drawn.from_json(json.loads(json.dumps(drawn.to_json()))) == drawn
