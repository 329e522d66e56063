"""The examples run to their end, and what they print is true of the files they leave."""

import ast
import io
import json
import re
import runpy
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest

import maxaffine as ma

pytest.importorskip("torch")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """Run an example as a user does, with --out in a fresh folder: its names, what it printed, the folder."""

    def one(name: str, *options: str) -> tuple[dict[str, object], str, Path]:
        monkeypatch.setattr("sys.argv", [name, "--out", str(tmp_path), *options])
        space = runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        for picture in tmp_path.glob("*.png"):
            assert picture.read_bytes()[:4] == b"\x89PNG" and 20_000 < picture.stat().st_size < 600_000
        assert list(tmp_path.glob("*.png"))
        return space, capsys.readouterr().out, tmp_path

    return one


def test_a_transformer_prices_better_around_the_compiled_black_scholes_block(run) -> None:  # type: ignore[no-untyped-def]
    space, said, folder = run("black_scholes.py", "--seeds", "2")
    rows = re.findall(r"^ +\d  +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)% +([\d.]+)% +([\d.]+)$", said, re.MULTILINE)
    assert len(rows) == 2
    for inside, without, _, below, below_without, _ in rows:
        assert float(inside) < 0.75 * float(without) and float(below) == 0.0 < float(below_without)
    assert "same bits as before: True" in said
    layer = ma.load(folder / "black_scholes.safetensors")
    x = np.random.default_rng(1).uniform(layer.box.low, layer.box.high, size=(50_000, 2))
    assert layer.bound is not None and layer.bound <= 1e-6 and layer.certificate.kind == "proved"
    assert np.abs(layer(x) - space["call"](*x.T)).max() <= layer.bound  # type: ignore[operator]


def test_four_million_densities_of_water_fit_into_a_layer_a_thousand_times_smaller(run) -> None:  # type: ignore[no-untyped-def]
    space, said, folder = run("water_density.py")
    file = folder / "water_density.safetensors"
    layer = ma.load(file)
    assert layer.bound is not None and layer.bound <= space["ERROR"] and layer.certificate.kind == "proved"  # type: ignore[operator]
    T, p = np.linspace(273.15, 373.15, 2000), np.linspace(0.2, 100.0, 2000)
    rho = space["density"](T[:, None], p)  # type: ignore[operator]
    assert rho.nbytes == 32_000_000 and 1000 * file.stat().st_size <= rho.nbytes
    worst = max(np.abs(layer(np.column_stack([np.full(2000, t), p])) - row).max() for t, row in zip(T, rho, strict=True))
    assert worst <= layer.bound, "every entry, by a fresh reading of the file"
    stated = float(re.search(r"^proved +error <= (\S+) kg/m\^3 at every one of the 4,000,000 entries$", said, re.MULTILINE)[1])  # type: ignore[index]
    assert stated == pytest.approx(layer.bound, rel=0.01)
    assert "collapsed" in layer.runtimes(), "there is room for polynomials, which make it tens of times faster"
    index = re.search(r"The layer has (\d+) tokens and (\d+) bytes", (EXAMPLES / "README.md").read_text())
    assert index and layer.tokens <= int(index[1]) and layer.weights.nbytes <= int(index[2]), "the index must not promise more"


def test_a_trained_head_is_read_as_a_voronoi_diagram(run) -> None:  # type: ignore[no-untyped-def]
    _, said, folder = run("head_opened.py")
    half = float(re.search(r"coefficient of \|p\|\^2 is (-[\d.]+) beta", said)[1])  # type: ignore[index]
    agree = float(re.search(r"agree on ([\d.]+)% of the square", said)[1])  # type: ignore[index]
    assert abs(half + 0.5) < 0.02 and agree > 96 and "In words:" in said and "inverse temperature" in said
    assert {picture.name for picture in folder.glob("*.png")} == {"head_opened.png", "head_opened_inspect.png"}


def test_a_compiled_layer_improves_on_itself_when_it_is_fine_tuned(run) -> None:  # type: ignore[no-untyped-def]
    _, said, _ = run("fine_tune.py", "--seeds", "4")
    number = r"(\d\.\d{4})"
    before = re.search(rf"^as compiled +{number} +{number}$", said, re.MULTILINE)
    after = re.search(rf"^trained from the compiled start +{number} \+- {number} +{number} \+- {number}$", said, re.MULTILINE)
    random = re.search(rf"^trained from the random start +{number} \+- {number} +{number} \+- {number}$", said, re.MULTILINE)
    assert before and after and random
    assert float(after[1]) < 0.5 * float(before[1]) and float(after[3]) < float(before[2])
    assert float(after[1]) < float(random[1]) and float(after[3]) < float(random[3])


def test_data_correct_a_constant_inside_a_stack_and_a_frozen_stack_helps_a_transformer(run) -> None:  # type: ignore[no-untyped-def]
    _, said, _ = run("stack_in_training.py", "--seeds", "1")
    before, after = re.search(r"right formula: ([\d.]+)% before, ([\d.]+)% after", said).groups()  # type: ignore[union-attr]
    inside, without = re.search(r"bars: ([\d.]+) with the block, ([\d.]+) without", said).groups()  # type: ignore[union-attr]
    assert float(after) < 0.1 * float(before) and float(inside) < 0.8 * float(without)
    assert "not covered: the module's numbers were changed" in said and "numbers are the same: True" in said


def test_the_index_names_every_example_and_its_command() -> None:
    index = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f"({path.name})" in index and f"python examples/{path.name}" in index, path.name
        assert path.read_text().count('"""') >= 2 and f"python examples/{path.name}" in path.read_text()
    for name in re.findall(r"examples/(\w+\.py)", index):
        assert (EXAMPLES / name).is_file(), name
    for word in ("/work/", "/tmp/", "/home/", "session"):
        assert word not in index


def test_the_notebook_says_what_its_cells_print() -> None:
    """Its code cells run in order; what they print is what is stored beside them, numbers aside, and layers show a picture."""
    notebook = json.loads((EXAMPLES / "tour.ipynb").read_text())
    space: dict[str, object] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        said = io.StringIO()
        statements = ast.parse("".join(cell["source"])).body
        with redirect_stdout(said):
            for statement in statements[:-1]:
                exec(compile(ast.Module([statement], []), "tour", "exec"), space)  # noqa: S102
            last = statements[-1]
            shown = None
            if isinstance(last, ast.Expr) and not isinstance(last.value, ast.Tuple):
                shown = eval(compile(ast.Expression(last.value), "tour", "eval"), space)  # noqa: S307
            else:
                exec(compile(ast.Module([last], []), "tour", "exec"), space)  # noqa: S102
        stored = "".join("".join(one["text"]) for one in cell["outputs"] if one["output_type"] == "stream")
        masked = [re.sub(r"[\d.]+(?:e[-+]?\d+)?", "#", text) for text in (stored, said.getvalue())]
        assert masked[0] == masked[1], "".join(cell["source"])
        if isinstance(shown, ma.Compiled):
            pictures = ["".join(one.get("data", {}).get("text/html", "")) for one in cell["outputs"]]
            assert any("data:image/png;base64," in picture for picture in pictures)
            assert "data:image/png;base64," in shown._repr_html_()
