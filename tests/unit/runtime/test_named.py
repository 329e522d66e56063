"""Inputs by name: matched by name or refused, never read by position; answers keep index and coordinates."""

import numpy as np
import pytest

import maxaffine as ma

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
xr = pytest.importorskip("xarray")

BOX = ma.Box(a=(0, 1), b=(0, 1))
TRUTH = 1.0  # a + 10 b^2 at a = 0.9, b = 0.1; with the columns swapped 8.2


@pytest.fixture(scope="module")
def layer(tmp_path_factory):
    path = tmp_path_factory.mktemp("named") / "f.safetensors"
    ma.compile("a + 10*b*b", BOX, error=1e-4).save(path)
    return ma.load(path)


@pytest.fixture(scope="module")
def two():
    return ma.compile("a + 10*b*b, a - b", BOX, error=1e-4)


SWAPPED = {
    "pandas": pd.DataFrame({"b": [0.1], "a": [0.9]}),
    "pandas, an extra column": pd.DataFrame({"id": ["u"], "b": [0.1], "a": [0.9]}),
    "a row of pandas": pd.DataFrame({"b": [0.1], "a": [0.9]}).iloc[0],
    "polars": pl.DataFrame({"b": [0.1], "id": ["u"], "a": [0.9]}),
    "a dictionary": {"b": 0.1, "a": 0.9, "c": "more"},
    "a dataset": xr.Dataset({"b": ("i", [0.1]), "a": ("i", [0.9]), "c": 3}),
    "labels along a dimension": xr.Dataset({"b": ("i", [0.1]), "a": ("i", [0.9])}).to_array(),
    "labels, turned": xr.Dataset({"b": ("i", [0.1]), "a": ("i", [0.9])}).to_array().T,
    "a structured array": np.array([(0.1, 0.9)], dtype=[("b", float), ("a", float)]),
}


@pytest.mark.parametrize("given", SWAPPED.values(), ids=SWAPPED.keys())
def test_swapped_names_give_the_value_of_the_names(layer, given):
    assert np.asarray(layer(given)).item() == pytest.approx(TRUTH, abs=1e-4)


def test_keywords_are_numbers_or_arrays_that_broadcast(layer):
    assert layer(b=0.1, a=0.9) == pytest.approx(TRUTH, abs=1e-4) and np.ndim(layer(a=0.9, b=0.1)) == 0
    assert np.allclose(layer(a=[[0.9], [0.8]], b=[0.1, 0.0]), [[1.0, 0.9], [0.9, 0.8]], atol=1e-4)
    assert layer.attention(a=0.9, b=0.1).shape == (layer.tokens,)


def test_the_index_and_the_coordinates_stay(layer, two):
    frame = pd.DataFrame({"b": [0.1, 0.2], "a": [0.9, 0.3]}, index=["p", "q"])
    found = layer(frame)
    assert isinstance(found, pd.Series) and list(found.index) == ["p", "q"] and found.name == "f"
    assert np.allclose(found, [1.0, 0.7], atol=1e-4)
    several = two(frame)
    assert list(several.columns) == ["f1", "f2"] and list(several.index) == ["p", "q"]
    assert np.allclose(several["f2"], [0.8, 0.1], atol=1e-4)
    assert layer(a=frame.a, b=frame.b).equals(found)
    a, b = (xr.DataArray(v, dims=n, coords={n: v}) for n, v in (("a", [0.9, 0.3]), ("b", [0.1, 0.2, 0.5])))
    grid = layer(b=b, a=a)
    assert grid.sizes == {"b": 3, "a": 2} or grid.sizes == {"a": 2, "b": 3}
    assert float(grid.sel(a=0.9, b=0.1)) == pytest.approx(TRUTH, abs=1e-4) and grid.coords["b"].equals(b.coords["b"])
    assert layer((a * b).coords).transpose(*grid.dims).equals(grid)
    assert two(a=a, b=0.1).dims == ("a", "output")
    assert isinstance(two(pl.DataFrame({"b": [0.1], "a": [0.9]})), pl.DataFrame)


def test_one_variable_keeps_its_index_whatever_the_column_is_called():
    line = ma.compile("sin(x)", ma.Box(x=(0, 1)), error=1e-6)
    found = line(pd.Series([0.1, 0.2], index=["p", "q"], name="temperature"))
    assert list(found.index) == ["p", "q"] and np.allclose(found, np.sin([0.1, 0.2]), atol=1e-6)
    assert line(pd.Series({"x": 0.5, "y": 7.0})) == pytest.approx(np.sin(0.5), abs=1e-6)
    times = xr.DataArray([0.1, 0.2], dims="t", coords={"t": [4, 5]})
    assert line(times).coords["t"].equals(times.coords["t"])
    with pytest.raises(ma.BadInput, match=r"a coordinate 'x': layer\(array.coords\)"):
        line(xr.DataArray([0.1, 0.2], dims="x", coords={"x": [0.4, 0.5]}))


def test_two_inputs_go_by_name_together_or_each_by_its_own():
    pair = ma.compile("q_x*k_x", (ma.Box(x=(-1, 1)), ma.Box(x=(-1, 1))), error=0.1)
    exact = pair([0.5], [0.25])[0]
    assert pair(k_x=0.25, q_x=0.5) == exact
    assert pair(pd.DataFrame({"x": [0.5]}), pd.DataFrame({"x": [0.25]}))[0] == exact
    with pytest.raises(ma.BadInput, match="either both or neither have names"):
        pair(pd.DataFrame({"x": [0.5]}), [0.25])


@pytest.mark.parametrize(
    ("given", "by_name", "said"),
    [
        ((pd.DataFrame({"a": [0.1], "id": [1]}),), {}, "the frame has no 'b': the layer's variables are a, b, and it has a, id"),
        ((pd.DataFrame([[0.1, 0.2]]),), {}, "the frame has no 'a'"),
        ((pd.DataFrame([[0.1, 0.2, 0.3]], columns=["a", "b", "a"]),), {}, "has 'a' twice"),
        ((pd.DataFrame({"a": ["u"], "b": [1.0]}),), {}, "`a` must hold numbers, and str came"),
        ((pd.DataFrame({"a": pd.to_datetime(["2020-01-01"]), "b": [1.0]}),), {}, "`a` must hold numbers, and datetime64"),
        ((pd.DataFrame({"a": [np.nan], "b": [1.0]}),), {}, "queries must be finite"),
        ((xr.DataArray(np.zeros((2, 2)), dims=("b", "a"), coords={"b": [0, 1], "a": [0, 1]}),), {}, r"layer\(array.coords\)"),
        ((), {"a": 0.1}, "the call has no 'b'"),
        ((), {"a": 0.1, "b": 0.2, "c": 0.3}, "`c` is no variable of this layer; they are a, b"),
        (([0.1, 0.2],), {"a": 0.1}, "by position and by name"),
        ((), {"a": [0.1, 0.2], "b": [0.1, 0.2, 0.3]}, "do not broadcast"),
        ((), {"a": 1.5, "b": 0.2}, 'query 0 has a = 1.5, outside .0, 1.; pass outside="clamp"'),
        ((), {"a": pd.Series([0.1]), "b": pd.Series([0.1], index=[7])}, "different indexes"),
        ((), {"a": xr.DataArray([0.1], coords={"i": [0]}), "b": xr.DataArray([0.1], coords={"i": [1]})}, "do not go together"),
    ],
)
def test_what_cannot_be_matched_is_refused(layer, given, by_name, said):
    with pytest.raises(ma.BadInput, match=said):
        layer(*given, **by_name)


def test_float32_columns_may_lie_on_an_edge_by_their_own_rounding():
    line = ma.compile("sin(x)", ma.Box(x=(-np.pi, np.pi)), error=1e-4)
    assert np.isfinite(line(pd.DataFrame({"x": np.array([np.pi], dtype=np.float32)}))).all()
    with pytest.raises(ma.BadInput, match="outside"):
        line(pd.DataFrame({"x": np.array([np.pi], dtype=np.float32).astype(np.float64)}))


def test_a_tensor_by_name_is_refused(layer):
    torch = pytest.importorskip("torch")
    with pytest.raises(ma.BadInput, match="tensors go by position"):
        layer(a=torch.tensor(0.9), b=0.1)


def test_tables_and_samples_come_from_labelled_data():
    x, t = np.linspace(0, 1, 5), np.array([3.0, 2.0, 1.0])
    array = xr.DataArray(x[:, None] + t, dims=("x", "t"), coords={"x": x, "t": t}, name="heat")
    table = ma.Table.from_xarray(array)
    assert table.names == ("x", "t") and table.name == "heat" and table.axes[1].tolist() == [1.0, 2.0, 3.0]
    assert table.nearest([[0.25, 3.0]])[0, 0] == 3.25
    both = xr.Dataset({"u": array, "v": -array}).to_array("what")
    assert ma.Table.from_xarray(both, outputs="what").output_shape == (2,)
    with pytest.raises(ma.BadInput, match="'t' has no coordinate"):
        ma.Table.from_xarray(array.drop_vars("t"))
    with pytest.raises(ma.BadInput, match="must be an xarray DataArray"):
        ma.Table.from_xarray(both.to_dataset("what"))
    for kind in (pd.DataFrame, pl.DataFrame):
        frame = kind({"z": [1.0, 2.0, 4.0], "p": [0.0, 1.0, 2.0], "q": [1.0, 0.0, 5.0], "id": ["u", "v", "w"]})
        samples = ma.Samples.from_frame(frame, "z", ["q", "p"])
        assert samples.names == ("q", "p") and samples.X[2].tolist() == [5.0, 2.0] and samples.y[:, 0].tolist() == [1.0, 2.0, 4.0]
        with pytest.raises(ma.BadInput, match="one column 'w'"):
            ma.Samples.from_frame(frame, "w")
        with pytest.raises(ma.BadInput, match="`id` must be an array of real numbers"):
            ma.Samples.from_frame(frame, "z")
    values, coords = ma.compile(table, error=0.1)(array.coords), array
    assert values.dims == coords.dims and float(np.abs(values - coords).max()) <= 0.1
