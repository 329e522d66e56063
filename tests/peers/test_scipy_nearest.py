"""SciPy's tests of nearest-neighbour tables, put to hard layers that are compiled from the same tables.

Every case of scipy/interpolate/tests/test_rgi.py (SciPy 1.17) that runs `RegularGridInterpolator` or `interpn` with
method="nearest" is here under its own name: on the same grids and values, at the same points (or drawn like them), with SciPy
itself asked for the answer.  Cases that a layer cannot answer are here too, each with what is said instead;
docs/tables-and-data.md tells why.
"""

import ast
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.interpolate
from scipy.interpolate import NearestNDInterpolator, RegularGridInterpolator, interpn

import maxaffine as ma

PASSED, EXPLAINED = 23, 20


def sum_of_digits(*axes: Any) -> np.ndarray:
    """Values u_0 + 10 u_1 + 100 u_2 + .. over axes whose entries count as u = 0, 1/2, 1, ..: every entry has its own."""
    halves = np.meshgrid(*(np.arange(len(axis)) / 2.0 for axis in axes), indexing="ij")
    return np.asarray(sum(10.0**place * part for place, part in enumerate(halves)))


UNIT = [(0.0, 0.5, 1.0)] * 4
WIDE = [(0.0, 0.5, 1.0)] * 2 + [(0.0, 5.0, 10.0)] * 2
SEVEN = [tuple(np.arange(7) / 2.0)] * 4
UNEVEN = (np.array([0.5, 2, 3, 4, 5.5, 6]), np.array([0.5, 2, 3, 4, 5.5, 6]))
BUMPS = np.array([[1, 2, middle, 2, 1, 1] for middle in (1, 1, 3, 2, 1, 2)])
THREE = [[0.1, 0.1, 1.0, 0.9], [0.2, 0.1, 0.45, 0.8], [0.5, 0.5, 0.5, 0.5]]
SCATTERED = np.array([[1, 1], [2.3, 3.3], [5.3, 1.2], [0.5, 4], [3.3, 5], [1.2, 1], [3, 3]])


def compiled(axes: Any, values: Any) -> Any:
    """A hard layer of the table."""
    return ma.compile(ma.Table(axes, values), error=1e-6, method="nearest")


def agree(axes: Any, values: Any, points: Any, outside: str = "error", scipy_says: Any = None) -> None:
    """The hard layer of the table and SciPy say the same numbers at the points."""
    queries = np.asarray(points, dtype=np.float64).reshape(-1, len(axes))
    found = compiled(axes, values)(queries, outside=outside)
    if scipy_says is None:
        clamped = {"bounds_error": False, "fill_value": None} if outside == "clamp" else {}
        scipy_says = RegularGridInterpolator(axes, values, method="nearest", **clamped)(queries)
    np.testing.assert_array_equal(found, np.asarray(scipy_says).reshape(found.shape))


def same_from_lists() -> None:
    values = sum_of_digits(*SEVEN)
    agree(SEVEN, values.tolist(), THREE)
    agree(SEVEN, values, THREE)


def nearest_at(point: list[float], wanted: float) -> Callable[[], None]:
    def run() -> None:
        agree(UNIT, sum_of_digits(*UNIT), [point], scipy_says=[wanted])
        agree(UNIT, sum_of_digits(*UNIT), [point])

    return run


def beyond(axes: Any) -> Callable[[], None]:
    far = [[-0.1] * 4, [1.1] * 4, [21, 2.1, -1.1, -11], [2.1, 2.1, -1.1, -1.1]]
    return lambda: agree(axes, sum_of_digits(*axes), far, outside="clamp")


def same_as_a_search_among_all_entries() -> None:
    values = sum_of_digits(*UNIT)
    entries = np.stack(np.meshgrid(*UNIT, indexing="ij"), axis=-1).reshape(-1, 4)
    agree(UNIT, values, THREE, scipy_says=NearestNDInterpolator(entries, values.ravel())(THREE))
    samples = ma.compile(ma.Samples(entries, values.ravel()), error=1e-6, method="nearest")
    np.testing.assert_array_equal(samples(np.asarray(THREE)), NearestNDInterpolator(entries, values.ravel())(THREE))


def descending(dimension: int) -> Callable[[], None]:
    def run() -> None:
        up = [np.linspace(1, 5, 12)] * dimension
        down = [axis[::-1] for axis in up]
        points = np.random.default_rng(42).uniform(1, 5, size=(2, dimension))

        def values(axes: Any) -> np.ndarray:
            x, y, *others = np.meshgrid(*axes, indexing="ij")
            z, a, b = (*others, 0.0, 0.0, 1.0)[:3] if len(others) < 2 else (*others, 1.0)[:3]
            return np.asarray(2 * x**3 + 3 * y**2 - z + a * b)

        agree(up, values(up), points)
        agree(down, values(down), points)
        np.testing.assert_array_equal(compiled(up, values(up))(points), compiled(down, values(down))(points))

    return run


def eight_values_per_entry() -> None:
    axes = [tuple(np.arange(6) / 2.0)] * 2 + [tuple(np.arange(6) * 5.0)] * 2
    rng = np.random.default_rng(1234)
    values, points = rng.random((6, 6, 6, 6, 8)), rng.random((7, 3, 4)).reshape(-1, 4)
    agree(axes, values, points)
    together = compiled(axes, values)(points)
    for k in (0, 7):
        np.testing.assert_array_equal(together[:, k], compiled(axes, values[..., k])(points))


def a_matrix_per_entry(turned: bool = False) -> Callable[[], None]:
    def run() -> None:
        axes: list[Any] = [np.arange(6) / 2, np.arange(7) / 2, [0, 5, 10, 15, 20, 25, 35, 36], [0, 5, 10, 15, 20, 25, 35, 36, 47]]
        axes = [np.asarray(axis, dtype=float)[:: -1 if turned else 1] for axis in axes]
        rng = np.random.default_rng(1234)
        values, point = rng.random((6, 7, 8, 9, 3, 2)), rng.random(4)
        # A table has one dimension of values per entry: the matrix is flattened.
        wanted = RegularGridInterpolator(axes, values, method="nearest")(point)
        agree(axes, values.reshape(6, 7, 8, 9, 6), point, scipy_says=wanted)

    return run


def several_threads() -> None:
    points = np.asarray([*THREE, [0.3, 0.1, 0.2, 0.4]])
    layer = compiled(UNIT, sum_of_digits(*UNIT))
    wanted = RegularGridInterpolator(UNIT, sum_of_digits(*UNIT), method="nearest")(points)
    with ThreadPoolExecutor(10) as pool:
        for found in pool.map(lambda _: layer(points), range(10)):
            np.testing.assert_array_equal(found, wanted)


def from_lists_through_interpn() -> None:
    wanted = interpn(UNEVEN, BUMPS, SCATTERED, method="nearest")
    agree([axis.tolist() for axis in UNEVEN], BUMPS.tolist(), SCATTERED.tolist(), scipy_says=wanted)


def through_interpn(points: Any) -> Callable[[], None]:
    values = sum_of_digits(*WIDE)
    return lambda: agree(WIDE, values, points, scipy_says=interpn(WIDE, values, points, method="nearest"))


def from_a_matrix() -> None:
    axes = np.linspace(0, 2, 6), np.linspace(0, 1, 7)
    rng = np.random.default_rng(5)
    values, points = rng.random((6, 7)), rng.random((3, 7, 2))
    with pytest.warns(PendingDeprecationWarning):
        old = np.matrix(values)
    agree(axes, old, points, scipy_says=interpn(axes, values, points, method="nearest"))


# -- what a layer does not do: each says so


def refused(axes: Any, values: Any, words: str) -> Callable[[], None]:
    def run() -> None:
        with pytest.raises(ma.BadInput, match=words):
            compiled(axes, values)

    return run


def query_refused(axes: Any, values: Any, points: Any, words: str) -> Callable[[], None]:
    def run() -> None:
        with pytest.raises(ma.BadInput, match=words):
            compiled(axes, values)(np.asarray(points, dtype=np.float64))

    return run


class Indexed:
    """A grid of values that can be indexed and is no array."""

    ndim, shape = 2, (5, 7)

    def __getitem__(self, index: Any) -> Any:
        return np.arange(35).reshape(5, 7)[index]

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("not an array")


def complex_values(axes: Any, values: Any, points: Any) -> Callable[[], None]:
    def run() -> None:
        refused(axes, values - 2j * values, "real numbers")()
        # Both parts as two values per entry are a table, and SciPy's answer.
        found = compiled(axes, np.stack([values, -2 * values], axis=-1))(np.asarray(points))
        wanted = RegularGridInterpolator(axes, values - 2j * values, method="nearest")(points)
        np.testing.assert_array_equal(found[:, 0] + 1j * found[:, 1], wanted)

    return run


def single(axes: Any) -> Callable[[], None]:
    return refused(axes, np.ones([len(axis) for axis in axes]), "two numbers or more")


def left_out(axes: Any, one: int, values: Any, points: Any) -> Callable[[], None]:
    """An axis of one entry is refused; without it the table says what SciPy says, whatever the point's coordinate there."""

    def run() -> None:
        refused(axes, values, "two numbers or more")()
        others = [axis for d, axis in enumerate(axes) if d != one]
        found = compiled(others, np.squeeze(values, axis=one))(np.delete(points, one, axis=1), outside="clamp")
        beyond_too = RegularGridInterpolator(axes, values, method="nearest", bounds_error=False, fill_value=None)
        np.testing.assert_array_equal(found, beyond_too(points))

    return run


def one_entry_everywhere(dimension: int, dtype: str) -> Callable[[], None]:
    return single([np.array([d], dtype=dtype) for d in range(dimension)])


FIVE_BY_SEVEN = np.linspace(0, 2, 5), np.linspace(0, 1, 7)
SQUARES = [[0.0, 1, 2], [1.0, 3, 7]]
ROUND = np.linspace(0, 2 * np.pi, 20)
ONE_BY_TEN = ([[1.0], np.arange(1.0, 11)], 0, np.arange(2.0, 12)[None], np.array([[1.5, 1.8], [-4, 5.1]]))
SINE = ([ROUND, [0.0]], 1, np.sin(ROUND)[:, None], np.stack([np.linspace(-1, 2 * np.pi + 1, 100), np.ones(100)], axis=1))
OUTSIDE, NOT_FINITE = "outside", "finite"


@dataclass(frozen=True)
class Case:
    """A case of SciPy: its class, test and parameters; what is run here; why it cannot pass, if it cannot."""

    kind: str
    test: str
    parameters: str
    run: Callable[[], None]
    why: str | None = None

    @property
    def name(self) -> str:
        return f"{self.kind}.{self.test}" + (f"[{self.parameters}]" if self.parameters else "")


RGI, N = "TestRegularGridInterpolator", "TestInterpN"
NEAREST = {
    "1100": ([0.1, 0.1, 0.9, 0.9], 1100.0), "low": ([0.1] * 4, 0.0), "first": ([0.0] * 4, 0.0), "last": ([1.0] * 4, 1111.0),
    "1055": ([0.1, 0.4, 0.6, 0.9], 1055.0),
}  # fmt: skip

CASES = [
    Case(RGI, "test_list_input", "nearest", same_from_lists),
    Case(RGI, "test_complex", "nearest", complex_values(SEVEN, sum_of_digits(*SEVEN), THREE), "complex"),
    *(Case(RGI, "test_nearest", name, nearest_at(*asked)) for name, asked in NEAREST.items()),
    Case(RGI, "test_out_of_bounds_extrap", "", beyond(UNIT)),
    Case(RGI, "test_out_of_bounds_extrap2", "", beyond(WIDE)),
    Case(RGI, "test_out_of_bounds_fill", "", query_refused(UNIT, sum_of_digits(*UNIT), [[-0.1] * 4], OUTSIDE), "fill"),
    Case(RGI, "test_nearest_compare_qhull", "", same_as_a_search_among_all_entries),
    Case(RGI, "test_duck_typed_values", "nearest", refused(FIVE_BY_SEVEN, Indexed(), "array"), "duck"),
    *(
        Case(RGI, "test_length_one_axis_all", f"nearest-{D}-{dtype}", one_entry_everywhere(D, dtype), "one entry")
        for D in (1, 2, 3) for dtype in ("float32", "float64")
    ),
    Case(RGI, "test_length_one_axis", "", left_out(*ONE_BY_TEN), "one entry"),
    *(
        Case(RGI, "test_length_one_axis2", f"nearest-{fill}", left_out(*SINE), "one entry")
        for fill in ("None", "nan", "pi")
    ),
    Case(RGI, "test_nan_x_1d", "nearest", query_refused([[1.0, 2, 3]], [10.0, 20, 30], [[np.nan]], NOT_FINITE), "nan"),
    Case(
        RGI, "test_nan_x_2d", "nearest",
        query_refused(SQUARES, np.add.outer([0.0, 1, 4], [1.0, 9, 49]), [[1.5, np.nan], [1, 1]], NOT_FINITE), "nan",
    ),
    *(Case(RGI, "test_descending_points_nd", f"nearest-{D}", descending(D)) for D in (2, 3, 4, 5)),
    Case(RGI, "test_fill_value", "nearest", query_refused([np.arange(6.0)], np.ones(6), [[10.0]], OUTSIDE), "fill"),
    Case(RGI, "test_nonscalar_values", "nearest", eight_values_per_entry),
    Case(RGI, "test_nonscalar_values_2", "nearest-False", a_matrix_per_entry()),
    Case(RGI, "test_nonscalar_values_2", "nearest-True", a_matrix_per_entry(turned=True)),
    Case(RGI, "test_concurrency", "", several_threads),
    Case(N, "test_list_input", "nearest", from_lists_through_interpn),
    Case(N, "test_nearest_4d", "", through_interpn([[0.1, 0.1, 10.0, 9.0]])),
    Case(N, "test_4d_nearest_outofbounds", "", query_refused(WIDE, sum_of_digits(*WIDE), [[0.1, -0.1, 10, 9]], OUTSIDE), "fill"),
    Case(N, "test_xi_nd", "", through_interpn(np.random.default_rng(1234).random((2, 3, 4)).reshape(-1, 4))),
    Case(N, "test_xi_broadcast", "nearest", query_refused(UNEVEN, BUMPS, [[0.0, 0.0], [1.0, 1.5]], OUTSIDE), "fill"),
    Case(N, "test_nonscalar_values", "nearest", eight_values_per_entry),
    Case(N, "test_nonscalar_values_2", "nearest", a_matrix_per_entry()),
    Case(N, "test_complex", "nearest", complex_values(UNEVEN, BUMPS.astype(float), SCATTERED), "complex"),
    Case(N, "test_duck_typed_values", "nearest", refused(FIVE_BY_SEVEN, Indexed(), "array"), "duck"),
    Case(N, "test_matrix_input", "nearest", from_a_matrix),
]  # fmt: skip


@pytest.mark.parametrize("case", [case for case in CASES if case.why is None], ids=lambda case: case.name)
def test_a_hard_layer_answers_a_case_as_scipy_does(case: Case) -> None:
    case.run()


@pytest.mark.parametrize("case", [case for case in CASES if case.why is not None], ids=lambda case: case.name)
def test_a_case_that_no_layer_answers_is_refused_in_words(case: Case) -> None:
    case.run()


def test_the_stated_number_of_cases_passes_and_every_other_is_explained() -> None:
    assert len({case.name for case in CASES}) == len(CASES) == PASSED + EXPLAINED
    assert sum(case.why is None for case in CASES) == PASSED


@pytest.mark.parametrize("seed", range(20))
def test_a_hard_layer_decides_as_scipy_in_the_middle_between_entries_and_one_float_beside_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axes, columns = [], []
    for _ in range(rng.integers(1, 4)):
        axis = np.unique(rng.normal(size=rng.integers(3, 12)) * 10.0 ** rng.integers(-6, 6) + rng.choice([0.0, 1000.0]))
        axis = np.arange(len(axis)) * 0.1 if rng.random() < 0.3 else axis
        middle = (axis[1:] + axis[:-1]) / 2
        pool = [middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf), axis, rng.uniform(axis[0], axis[-1], 20)]
        axes.append(axis)
        columns.append(np.clip(rng.choice(np.concatenate(pool), 300), axis[0], axis[-1]))
    agree(axes, rng.normal(size=[len(axis) for axis in axes]), np.stack(columns, axis=1))


@cache
def _asked_by_scipy() -> set[str]:
    """Class and name of every test of SciPy's file that runs method "nearest"."""
    path = Path(scipy.interpolate.__file__).parent / "tests" / "test_rgi.py"
    if not path.is_file() or not scipy.__version__.startswith("1.17."):
        pytest.skip("the tests of SciPy 1.17 are not installed")
    text = path.read_text()
    found = set()
    for group in ast.parse(text).body:
        for test in getattr(group, "body", []):
            if isinstance(group, ast.ClassDef) and isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
                first = min([test.lineno, *(mark.lineno for mark in test.decorator_list)])
                body = "\n".join(text.splitlines()[first - 1 : test.end_lineno])
                if re.search(r"""['"]nearest['"]|parametrize_rgi_interp_methods""", body):
                    found.add(f"{group.name}.{test.name}")
    return found


def test_no_nearest_case_of_scipy_is_left_out() -> None:
    assert {f"{case.kind}.{case.test}" for case in CASES} == _asked_by_scipy()


def test_the_documentation_lists_every_case_with_its_outcome() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tables-and-data.md").read_text()
    table = page.partition("<!-- scipy -->")[2].partition("<!-- /scipy -->")[0]
    rows = re.findall(r"^\| `([\w.]+)` \| (\d+) \| ([\w ]+)", table, re.MULTILINE)
    told = {name: (int(count), outcome.strip()) for name, count, outcome in rows}
    counted: dict[str, tuple[int, str]] = {}
    for case in CASES:
        name = f"{case.kind}.{case.test}"
        counted[name] = (counted.get(name, (0, ""))[0] + 1, case.why or "same")
    assert told == counted
    assert f"in {len(CASES)} cases" in page and f"{PASSED} are\nanswered" in page and f"{EXPLAINED} are refused" in page
