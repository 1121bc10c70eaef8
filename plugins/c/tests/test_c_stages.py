# SPDX-License-Identifier: Apache-2.0
"""Sizes that the run computes, in C sources: results as ONNX Runtime's, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

import intarsia
from intarsia_runtime.errors import ModelError, ResourceError

HEAD = '<ir_version: 9, opset_import: ["" : 18]>\n'
FOUND = """g (float[n,4] x) => (int64[2,k] p, float[k] v, float[n,4] z, float r) {
    m = Greater (x, half) p = NonZero (m) t = Transpose <perm = [1, 0]> (p)
    v = GatherND (x, t) w = Mul (v, v) z = ScatterND (x, t, w) r = ReduceSum <keepdims = 0> (w)
}"""
NAMED = "g (int64[n] x) => (int64[k] u, int64[k] c) { u, , , c = Unique (x) }"
RESHAPED = "g (float[2,6] x, int64[2] s) => (float[a,b] y) { y = Reshape (x, s) }"
FILLED = "g (int64[2] s) => (float[a,b] y) { y = ConstantOfShape (s) }"


def model(text: str, **weights: object) -> bytes:
    made = parser.parse_model(HEAD + text)
    made.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()
    )
    onnx.checker.check_model(made)
    return made.SerializeToString()


def check(data: bytes, *sets: Mapping[str, np.ndarray]) -> None:
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    artifact = intarsia.build(data, "c")
    assert artifact.passport.executor["kind"] == "aot"
    with artifact.load(threads=1) as executable:
        for feeds in [*sets, *sets[::-1]]:  # sizes change, and come again
            wanted = session.run(None, feeds)
            for mine, theirs in zip(executable.run(feeds).values(), wanted, strict=True):
                assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
                np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)


def test_what_is_found_and_what_follows() -> None:
    rng = np.random.default_rng(0)
    sets = [{"x": rng.standard_normal((n, 4)).astype(np.float32)} for n in (1, 6, 0, 90)]
    check(model(FOUND, half=np.float32(0.5)), *sets, {"x": np.ones((3, 4), np.float32)})


def test_unique_values() -> None:
    rng = np.random.default_rng(0)
    check(model(NAMED), *({"x": rng.integers(-3, 3, n)} for n in (1, 5, 200)))


@pytest.mark.parametrize("sizes", [(5, 2), (5, -1), (-2, 6)])
def test_sizes_that_do_not_go_together(sizes: tuple[int, int]) -> None:
    feeds = {"x": np.zeros((2, 6), np.float32), "s": np.array(sizes)}
    with intarsia.build(model(RESHAPED), "c").load(threads=1) as executable:
        with pytest.raises(ModelError, match=r"number of elements|computes -2"):
            executable.run(feeds)
        feeds["s"] = np.array([4, 3])
        assert executable.run(feeds)["y"].shape == (4, 3)


@pytest.mark.parametrize("sizes", [(1 << 40, 1 << 20), (1 << 62, 1 << 62), (1 << 33, 1 << 33)])
def test_sizes_beyond_all_memory(sizes: tuple[int, int]) -> None:
    refused = pytest.raises(ResourceError, match=r"larger than any memory|no memory")
    with intarsia.build(model(FILLED), "c").load(threads=1) as executable, refused:
        executable.run({"s": np.array(sizes)})


def test_a_negative_size() -> None:
    refused = pytest.raises(ModelError, match="computes -3 for the size")
    with intarsia.build(model(FILLED), "c").load(threads=1) as executable, refused:
        executable.run({"s": np.array([4, -3])})
