# SPDX-License-Identifier: Apache-2.0
"""Windows over images and volumes of open sizes, compiled whole, as ONNX Runtime computes."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia

FLOAT = TensorProto.FLOAT


def model(
    op: str, x: list[object], *weights: tuple[int, ...], outputs: int = 1, opset: int = 17, **attrs
) -> bytes:
    rng = np.random.default_rng(3)
    stored = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), f"w{number}")
        for number, shape in enumerate(weights)
    ]
    results = [f"y{number}" for number in range(outputs)]
    node = helper.make_node(op, ["x", *(w.name for w in stored)], results, **attrs)
    inputs = [helper.make_tensor_value_info("x", FLOAT, x)]
    shown = [helper.make_empty_tensor_value_info(name) for name in results]
    graph = helper.make_graph([node], "g", inputs, shown, stored)
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def check(data: bytes, shapes: list[tuple[int, ...]]) -> None:
    """Compare a program of open sizes, and one for the first shape, with ONNX Runtime."""
    session = onnxruntime.InferenceSession(data)
    whole = [intarsia.build(data, "llvm"), intarsia.build(data, "llvm", shapes={"x": shapes[0]})]
    assert not any(built.passport.executor["kind"] == "vm" for built in whole)
    for built, sizes in zip(whole, (shapes, shapes[:1]), strict=True):
        with built.load(threads=1) as executable:
            for shape in sizes:
                x = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
                found = executable.run({"x": x}).values()
                for got, want in zip(found, session.run(None, {"x": x}), strict=True):
                    assert (got.shape, got.dtype) == (want.shape, want.dtype)
                    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


VOLUMES = [
    {"kernel": (3, 3, 3), "dilations": [2, 2, 2], "pads": [2] * 6},
    {"kernel": (3, 2, 1), "dilations": [1, 2, 2]},
    {"kernel": (3, 3, 3), "strides": [2, 1, 2], "pads": [0, 1, 2, 2, 0, 1], "group": 2},
    {"kernel": (1, 3, 3), "strides": [3, 2, 2]},
]


@pytest.mark.parametrize("attrs", VOLUMES)
def test_volumes(attrs: dict) -> None:
    kernel, groups = attrs["kernel"], attrs.get("group", 1)
    rest = {name: value for name, value in attrs.items() if name != "kernel"}
    data = model("Conv", ["N", 4, "D", "H", "W"], (6, 4 // groups, *kernel), (6,), **rest)
    check(data, [(1, 4, 5, 7, 6), (2, 4, 7, 5, 9), (1, 4, 12, 6, 5)])


TRANSPOSED = [
    {"kernel": (3, 3), "dilations": [2, 3]},
    {"kernel": (3, 2), "dilations": [3, 1], "pads": [3, 0, 2, 1], "group": 2},
    {"kernel": (3, 3), "dilations": [2, 2], "pads": [5, 0, 0, 0]},
    {"kernel": (5,), "dilations": [2], "pads": [4, 3]},
    {"kernel": (2, 3, 2), "dilations": [2, 1, 3], "pads": [1, 1, 0, 0, 2, 1]},
    {"kernel": (3, 3), "dilations": [2, 2], "strides": [2, 1]},
]


@pytest.mark.parametrize("attrs", TRANSPOSED)
def test_dilated_transposed_convolutions(attrs: dict) -> None:
    kernel, groups = attrs["kernel"], attrs.get("group", 1)
    rest = {name: value for name, value in attrs.items() if name != "kernel"}
    sizes = ["H", "W", "D"][: len(kernel)]
    data = model("ConvTranspose", ["N", 4, *sizes], (4, 6 // groups, *kernel), (6,), **rest)
    check(data, [(1, 4, *(7, 5, 6)[: len(kernel)]), (2, 4, *(4, 9, 3)[: len(kernel)])])


POOLS = [
    {"kernel_shape": [2, 2], "strides": [2, 2]},
    {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "storage_order": 1},
    {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1},
    {"kernel_shape": [2, 3], "dilations": [3, 2], "pads": [1, 2, 1, 1]},
    {"kernel_shape": [3], "strides": [2], "pads": [1, 1]},
    {"kernel_shape": [2, 1, 3], "strides": [1, 2, 1], "pads": [1, 0, 1, 0, 0, 1]},
]


@pytest.mark.parametrize("attrs", POOLS)
def test_places_of_the_largest_elements(attrs: dict) -> None:
    rank = len(attrs["kernel_shape"])
    data = model("MaxPool", ["N", 3, *"HWD"[:rank]], outputs=2, **attrs)
    check(data, [(1, 3, *(9, 7, 6)[:rank]), (2, 3, *(6, 12, 5)[:rank]), (1, 3, *(8, 8, 8)[:rank])])


MEANS = [
    {"pads": [1, 1, 1, 1], "count_include_pad": 1},
    {"pads": [1, 0, 1, 1]},
    {"count_include_pad": 1},
]


@pytest.mark.parametrize("attrs", MEANS)
def test_means_of_windows_that_are_rounded_up(attrs: dict) -> None:
    data = model(
        "AveragePool", ["N", 16, "H", "W"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1,
        **attrs,
    )  # fmt: skip
    check(data, [(1, 16, 8, 7), (2, 16, 5, 12), (1, 16, 3, 4)])


FOLDS = [
    {"blocks": (3, 3), "pads": [1, 1, 1, 1]},
    {"blocks": (2, 3), "strides": [2, 1], "dilations": [1, 2]},
]


@pytest.mark.parametrize("attrs", FOLDS)
def test_columns_put_back_into_an_image(attrs: dict) -> None:
    (high, wide), image = attrs["blocks"], (11, 20)
    rest = {name: value for name, value in attrs.items() if name != "blocks"}
    pads, strides, dilation = (
        rest.get(name, default)
        for name, default in (("pads", [0] * 4), ("strides", [1, 1]), ("dilations", [1, 1]))
    )
    counts = [
        (size + pads[d] + pads[d + 2] - dilation[d] * (taps - 1) - 1) // strides[d] + 1
        for d, (size, taps) in enumerate(zip(image, (high, wide), strict=True))
    ]
    shape = (2, 3 * high * wide, counts[0] * counts[1])
    stored = [
        numpy_helper.from_array(np.array(v), n) for n, v in (("i", image), ("b", (high, wide)))
    ]
    graph = helper.make_graph(
        [helper.make_node("Col2Im", ["x", "i", "b"], ["y"], **rest)], "g",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_empty_tensor_value_info("y")], stored,
    )  # fmt: skip
    imports = [helper.make_opsetid("", 18)]
    data = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    check(data, [shape])


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
def test_a_transposed_window_shorter_than_its_step_is_not_continued(auto: str) -> None:
    attrs = {"auto_pad": auto, "strides": [2, 3], "dilations": [1, 2]}
    data = model("ConvTranspose", ["N", 4, "H", "W"], (4, 3, 1, 2), **attrs)
    check(data, [(1, 4, 5, 7), (2, 4, 1, 3)])
    data = model("ConvTranspose", ["N", 4, "H", "W"], (4, 3, 1, 1), **attrs)
    check(data, [(1, 4, 5, 7), (2, 4, 1, 3)])


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_blocks_of_an_image_become_channels(mode: str) -> None:
    """Slow in the channels or fast, of any height and width that the block divides."""
    data = model("SpaceToDepth", ["N", "C", "H", "W"], opset=28, blocksize=2, mode=mode)
    check(data, [(1, 3, 4, 6), (2, 5, 8, 2), (1, 1, 2, 2)])
