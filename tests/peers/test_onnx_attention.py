"""onnx's own backend tests of the Attention operator, answered head by head by our dense runtime.

Cases without mask, past cache, soft cap, causal mask, window or second output: every head is a layer whose keys are the listed
keys of the case, and every query of it a point.
"""

import warnings

import numpy as np
import pytest

from maxaffine.layer.keys import Coordinates, ListedKeys
from maxaffine.layer.layer import Layer
from maxaffine.runtime import chooser

onnx = pytest.importorskip("onnx")


def _plain_cases():  # type: ignore[no-untyped-def]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = {}
        for case in collect_testcases("Attention"):
            node = case.model.graph.node[0]
            if not case.name.startswith("test_attention") or node.op_type != "Attention":
                continue
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            extra = {"softcap", "is_causal", "left_window_size", "right_window_size"} & set(attributes)
            if len([i for i in node.input if i]) == 3 and len([o for o in node.output if o]) == 1 and not extra:
                found[case.name] = (attributes, *case.data_sets[0], case.rtol, case.atol)
        return found


CASES = _plain_cases()


def _split(x: np.ndarray, heads: int | None) -> np.ndarray:
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def _head(queries: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float) -> np.ndarray:
    E = keys.shape[1]
    low, high = queries.min(axis=0) - 1.0, queries.max(axis=0) + 1.0
    listed = ListedKeys(keys, np.zeros(len(keys)))
    layer = Layer(Coordinates(np.zeros(E), np.eye(E)), listed, scale, values[:, :, None], low, high, ((E, 1),))
    return np.asarray(chooser.evaluate(layer, queries, "dense"))[:, :, 0]


def test_there_are_as_many_plain_cases_as_in_onnx_1_23() -> None:
    assert len(CASES) >= 14


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_case_of_onnx_is_answered_head_by_head(name: str) -> None:
    attributes, (Q, K, V), (expected,), rtol, atol = CASES[name]
    q = _split(Q, attributes.get("q_num_heads")).astype(np.float64)
    k, v = (_split(part, attributes.get("kv_num_heads")).astype(np.float64) for part in (K, V))
    scale = float(attributes.get("scale", 1.0 / np.sqrt(q.shape[-1])))
    shared = q.shape[1] // k.shape[1]
    out = np.stack([
        [_head(q[b, h], k[b, h // shared], v[b, h // shared], scale) for h in range(q.shape[1])] for b in range(len(q))
    ])  # fmt: skip
    if expected.ndim == 3:
        out = out.transpose(0, 2, 1, 3).reshape(expected.shape)
    np.testing.assert_allclose(out, expected.astype(np.float64), rtol=rtol, atol=atol)
