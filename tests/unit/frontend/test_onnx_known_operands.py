# SPDX-License-Identifier: Apache-2.0
"""ONNX's own tests give axes, counts and sizes as inputs; models have them as weights, as here."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import onnx
import pytest
from onnx.backend.test.case import node as node_cases

from intarsia_ir.graph.module import IRModule
from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx.dynamic import plan_onnx
from intarsia_runtime.errors import UnsupportedError

FAMILIES = (
    *("resize_", "top_k", "cumsum", "cumprod", "scatter", "tensorscatter", "reversesequence"),
    *("scan9", "triu", "tril", "onehot"),
)
# Importing all of ONNX's modules takes four seconds, in each process that collects the tests.
MODULES = (
    *("cumprod", "cumsum", "onehot", "resize", "reversesequence", "scan", "scatter"),
    *("tensorscatter", "topk", "trilu"),
)


@cache
def cases() -> dict[str, object]:
    """The tests of the families that need no host once their operands are known."""
    for module in iter_modules(node_cases.__path__, f"{node_cases.__name__}."):
        if module.name.rpartition(".")[2].startswith(MODULES):
            import_module(module.name)
    found = {case.name.removeprefix("test_"): case for case in node_cases._NodeTestCases}
    return {
        name: case
        for name, case in sorted(found.items())
        if name.startswith(FAMILIES) and "expanded" not in name
    }


@pytest.mark.parametrize("name", list(cases()))
def test_known_operands_leave_nothing_to_the_host(name: str) -> None:
    case = cases()[name]
    model, (given, wanted) = case.model, case.data_sets[0]
    names = [info.name for info in model.graph.input]
    values = {name: np.asarray(value) for name, value in zip(names, given, strict=True)}
    known = {key: values[key] for key in names[1:] if _is_setting(values[key])}
    try:
        module = plan_onnx(model.SerializeToString(), constants=known)
    except UnsupportedError as error:
        pytest.fail(f"refused: {error}")
    assert isinstance(module, IRModule), module.reasons
    params = {param.name: values[param.name] for param in module.main.params}
    for mine, expected in zip(evaluate(module.main, params), wanted, strict=True):
        assert mine.dtype == expected.dtype
        np.testing.assert_allclose(mine, expected, rtol=1e-3, atol=1e-5)


def _is_setting(value: np.ndarray) -> bool:
    return value.ndim < 2


def test_an_image_is_filtered_as_on_the_host() -> None:
    """Whole numbers are rounded; what is outside of a region has the value that is given."""
    info, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    image = np.random.default_rng(0).integers(0, 255, (1, 1, 9, 7)).astype(np.uint8)
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    for attrs in ({"antialias": 1}, {"antialias": 1, "mode": "cubic"}, crop):
        resize = node("Resize", ["x", "r", "", "s"], ["y"], **{"mode": "linear", **attrs})
        graph = onnx.helper.make_graph(
            [resize],
            "g",
            [
                info("x", onnx.TensorProto.UINT8, image.shape),
                info("r", onnx.TensorProto.FLOAT, [8]),
                info("s", onnx.TensorProto.INT64, [4]),
            ],
            [onnx.helper.make_empty_tensor_value_info("y")],
        )
        made = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 19)], ir_version=9
        )
        given = {
            "x": image,
            "r": np.float32([0, 0, 0.2, -0.5, 1, 1, 0.6, 1.25]),
            "s": np.array([1, 1, 4, 5]),
        }
        fixed = {name: value for name, value in given.items() if name != "x"}
        module = plan_onnx(made, constants=fixed)
        assert isinstance(module, IRModule)
        (mine,) = evaluate(module.main, {"x": image})
        held = plan_onnx(made)
        assert not isinstance(held, IRModule)
        (host,) = _run(held, given)
        assert np.abs(mine.astype(int) - host.astype(int)).max() <= 1
        assert mine.shape == host.shape == (1, 1, 4, 5)


def _run(held: object, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    from intarsia_onnx.dynamic import load
    from intarsia_onnx.dynamic.program_json import print_program
    from intarsia_runtime.loading import ProgramRequest

    return load(ProgramRequest(print_program(held.program), {})).run(tuple(given.values()))
