# SPDX-License-Identifier: Apache-2.0
"""The story of a build: its stages in order, and how often the model is read and imported."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia.driver import story
from intarsia.driver.build import build, build_request, request_build
from intarsia.driver.model_partition import partition_model
from intarsia.driver.request import BUILD_OPTIONS
from intarsia_ir.partition.recorded import recorded_regions
from intarsia_ir.passes.base import Remarks
from intarsia_ir.passes.prepare import PREPARE
from intarsia_ir.size_values import SizeValues
from intarsia_onnx import from_onnx, reader
from intarsia_onnx.dynamic.planner import Planner
from intarsia_onnx.importer import Importer
from intarsia_runtime.errors import UsageError

from .toy import Accelerator, host_of

F = TensorProto.FLOAT


def net(*shape: int | str, op: str = "Relu") -> bytes:
    """``op(x @ w)``, or an operator whose result has a size that the run finds."""
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "first"),
        helper.make_node(op, ["m"], ["y"], "second"),
    ]
    weight = numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
    graph = helper.make_graph(nodes, "g", [info("x", F, shape)], [info("y", F, None)], [weight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return made.SerializeToString()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a model is read, and imported for which shape of ``x``."""
    found: Counter[str] = Counter()

    def count(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            shape = args[0]._inputs["x"].shape if name != "read" else ""
            found[f"{name} {shape}".strip()] += 1
            return function(*args, **named)

        return call

    monkeypatch.setattr(reader, "read_model", count("read", reader.read_model))
    monkeypatch.setattr(Importer, "run", count("import", Importer.run))
    monkeypatch.setattr(Planner, "plan", count("plan", Planner.plan))
    return found


def test_the_story_has_one_line_for_each_stage() -> None:
    (function,) = ast.parse(inspect.getsource(story.compile_model)).body
    assert isinstance(function, ast.FunctionDef)
    made = [node.value for node in function.body if isinstance(node, ast.Assign)]
    names = [ast.unparse(value.func) for value in made if isinstance(value, ast.Call)]
    assert names == [
        "import_model", "prepare", "partition", "compile_regions", "lower", "compile_kernels",
    ]  # fmt: skip
    last = function.body[-1]
    assert isinstance(last, ast.Return)
    assert ast.unparse(last).startswith("return pack_units(request,")
    assert len(names) + 1 == len(story.STAGES)


def test_a_model_of_fixed_sizes_is_imported_once(counted: Counter[str]) -> None:
    build(net(2, 4), "toy", host=host_of())
    assert counted == {"read": 1, "import (2, 4)": 1}


def test_a_model_of_several_sizes_is_imported_once_for_each(counted: Counter[str]) -> None:
    build(net("N", 4), "toy", host=host_of(), shapes={"x": (SizeValues((1, 3)), 4)})
    assert counted == {"read": 1, "import (1, 4)": 1, "import (3, 4)": 1}


def test_a_program_is_read_once(counted: Counter[str]) -> None:
    build(net(2, 4, op="Unique"), "toy", host=host_of())
    assert counted == {"read": 1, "import (2, 4)": 1, "plan (2, 4)": 1}


def test_a_request_has_all_options_and_nothing_twice() -> None:
    request = request_build(
        net(2, 4), "toy", mod_name="net", host=host_of(), place={"first": "!toy"}
    )
    assert {"shapes", "plan", "rules", "place", "dump_ir", "measure"} <= set(BUILD_OPTIONS)
    assert [rule.text for rule in request.rules] == ["first!=toy"]
    assert (request.name, request.given_executor, request.executor.kind) == ("net", None, "aot")
    assert build_request(request).passport.name == "net"
    with pytest.raises(UsageError, match="build\\(\\) has no option 'plann'"):
        request_build(net(2, 4), "toy", host=host_of(), plann="cost")


def test_a_model_is_partitioned_as_it_is_built(counted: Counter[str]) -> None:
    host = host_of(accelerator=Accelerator())
    request = request_build(net("N", 4), "fast, toy", host=host, shapes={"x": (8, 4)})
    placed = partition_model(request)
    assert counted["read"] == 1
    assert str(placed.placement) == str(build(net(8, 4), "fast, toy", host=host).placement)


def test_the_regions_of_a_passport_are_those_that_were_built() -> None:
    host = host_of(accelerator=Accelerator())
    request = request_build(net(2, 4), "fast, toy", host=host)
    placed = partition_model(request)
    module, built = placed.pieces["main"], placed.partitions["main"]
    record = built.placement.summary()
    found = recorded_regions(module, record)
    assert found is not None
    assert list(found) == [region.name for region in built.regions]
    for region in built.regions:
        again = found[region.name]
        assert (again.kind, again.nodes) == (region.kind, built.placement.regions[0].nodes)
        assert [p.type for p in again.function.params] == [p.type for p in region.function.params]
        assert again.function.body.type == region.function.body.type
    imported = from_onnx(net(2, 4).replace(b"first", b"other"))
    other = PREPARE.run(imported, remarks=Remarks())
    assert recorded_regions(other, record) is None
