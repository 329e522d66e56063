"""Small layers of every structure, made directly, for the tests of tensors and kernels."""

import numpy as np

from maxaffine.heads.lookup.grid import axis_sites, grid_keys
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys, Coordinates, ListedKeys
from maxaffine.layer.layer import Layer
from maxaffine.layer.spectral_keys import bernstein, gaussian


def keys(count: int, delta: float = 1.5) -> AxisKeys:
    return bernstein(count, delta, "float64").keys


def _grouped(groups: list, D: int, centre: float = 0.0, half: float = 1.0, tilt=None) -> GroupedLayer:
    middle = np.full(D, centre)
    return GroupedLayer(middle, tuple(groups), 40.0, middle - half, middle + half, ((D, 1),), "float64", tilt)


def grouped_layers() -> dict[str, GroupedLayer]:
    rng = np.random.default_rng(5)
    eye = np.eye(3)
    found = {}
    first = Group(np.array([[1 / 3.0, 0.0]]), (keys(8),), rng.normal(size=(8, 1)))
    second = Group(np.array([[1 / 6.0, 1 / 6.0]]), (gaussian(9, 2, 0.6, "float64").keys,), rng.normal(size=(9, 1)))
    found["sum of a variable and a mixed direction"] = _grouped([first, second], 2, 0.7, 3.0)
    factors = tuple(rng.normal(size=(7, 3)) for _ in range(2))
    found["three products"] = _grouped([Group(eye[:2, :2], (keys(7), keys(7, 2.0)), None, factors)], 2)
    smooth = np.add.outer(rng.normal(size=6), rng.normal(size=7))[..., None] + 1e-3 * rng.normal(size=(6, 7, 1))
    found["listed values of two directions"] = _grouped([Group(eye[:2, :2], (keys(6), keys(7)), smooth)], 2)
    found["two outputs"] = _grouped([Group(eye[:2, :2], (keys(5), keys(4)), rng.normal(size=(5, 4, 2)))], 2)
    found["one variable, three outputs"] = _grouped([Group(np.eye(1), (keys(12, 3.0),), rng.normal(size=(12, 3)))], 1)
    found["three coupled directions"] = _grouped([Group(eye, (keys(4), keys(5), keys(4)), rng.normal(size=(4, 5, 4, 1)))], 3)
    even = np.cos(np.linspace(-3, 3, 11))[:, None]
    found["an even function"] = _grouped([Group(np.eye(1), (keys(11),), even)], 1)
    matrices = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.0, 0.5, -0.5]])

    def values(*shape: int) -> np.ndarray:
        return 0.6 * rng.normal(size=shape)

    triple = values(5, 3), values(4, 3), values(5, 3)
    found["three complex products"] = _grouped(
        [Group(matrices, (keys(5), keys(4), keys(5)), None, triple, None, tuple(values(*one.shape) for one in triple))], 3
    )
    pair = values(4, 2), values(3, 4, 2)
    found["a block of two directions"] = _grouped([Group(eye, (keys(4), keys(3), keys(4)), None, pair)], 3)
    found["a complex block"] = _grouped(
        [Group(eye, (keys(4), keys(3), keys(4)), None, pair, None, tuple(values(*one.shape) for one in pair))], 3
    )
    return found


def other_layers() -> dict[str, Layer | GroupedLayer]:
    """Layers that no kernel takes."""
    rng = np.random.default_rng(6)
    affine = Group(np.eye(2), (keys(4), keys(3)), rng.normal(size=(4, 3, 1)), None, rng.normal(size=(4, 3, 1, 2)))
    found: dict[str, Layer | GroupedLayer] = {
        "affine values and a tilt": _grouped([affine], 2, tilt=np.array([[0.5, -2.0]]))
    }
    clusters = []
    for k in range(3):
        shape = (2 + k, 2)
        axes = tuple(AxisKeys(rng.normal(size=n), rng.normal(size=n)) for n in shape)
        slopes = rng.normal(size=(*shape, 1, 2))
        clusters.append(Cluster(rng.normal(size=2), np.array([0.5, 0.7]), axes, rng.normal(size=(*shape, 1)), slopes))
    group = ClusterGroup(np.eye(2), 3.0 * rng.normal(size=(3, 2)), rng.normal(size=3), tuple(clusters))
    found["clusters"] = _grouped([group], 2)
    listed = ListedKeys(rng.normal(size=(9, 2)), rng.normal(size=9))
    box = -np.ones(2), np.ones(2)
    found["listed keys, affine values"] = Layer(
        Coordinates(np.zeros(2), np.eye(2)), listed, 4.0, rng.normal(size=(9, 2, 1)), *box, ((2, 1),), "float64",
        rng.normal(size=(9, 2, 1, 2)),
    )  # fmt: skip
    return found


def lookups() -> dict[str, Layer]:
    rng = np.random.default_rng(7)
    found = {}
    cases = (((41,), 12.0, "float64"), ((9, 12), 20.0, "float32"), ((5, 3, 4), 120.0, "float64"), ((2, 30), 8.0, "float64"))
    for counts, rho, dtype in cases:
        D = len(counts)
        low, high = np.linspace(-1.0, 2.0, D), np.linspace(-1.0, 2.0, D) + 1.5
        scale = np.array(counts) / (high - low) * (1 - 2.0**-48)
        values = rng.normal(size=(*counts, 1, 2))
        assert len(axis_sites(counts[0])) == counts[0]
        found[" x ".join(map(str, counts))] = Layer(
            Coordinates((low + high) / 2, np.diag(scale)), grid_keys(counts), rho, values, low, high, ((D, 1),), dtype
        )
    return found
