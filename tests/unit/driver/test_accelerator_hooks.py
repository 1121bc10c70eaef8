# SPDX-License-Identifier: Apache-2.0
"""Accelerators may rewrite the graph before they are asked, and get their regions as loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from intarsia.driver.build import build, request_build
from intarsia.driver.model_partition import partition_model
from intarsia.driver.place import rules_of
from intarsia.driver.stages import partition_module, read_target
from intarsia.plugin import (
    CompiledUnit,
    Region,
    Role,
    Support,
    SupportRow,
    SupportTable,
    Target,
    TargetKind,
    hookimpl,
    op,
)
from intarsia_ir.graph.expr import Call, Expr, Function, Var, call, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import rewrite_function
from intarsia_ir.ops.activation import Relu
from intarsia_ir.ops.nn import Matmul
from intarsia_ir.tir.module import Lowered, TensorModule
from intarsia_ir.tir.space import Tuned
from intarsia_loops.lower import lower
from intarsia_runtime.artifact.unit_plan import read_unit_plan
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import PluginError, UnsupportedError, UsageError

from .toy import Accelerator, Backend, NoOptions, accept, host_of


def model() -> IRModule:
    """max(x @ w, 0), with the weights the wrong way round."""
    x = Var("x", TensorType((4, 5), DType.FLOAT32))
    weights = constant(np.arange(15, dtype=np.float32).reshape(3, 5), name="w")
    product = call(Matmul, x, weights, attrs=Matmul.Attrs(transpose_b=True))
    return IRModule.from_function(Function((x,), call(Relu, product), ("y",)))


class Turning(Accelerator):
    """Takes products without transposed operands, and has a way to make some."""

    def __init__(self, rule: Any = None) -> None:
        self.rule = rule or turned

    @hookimpl
    def annotate(self, target: Target) -> SupportTable:
        def plain(match: Any) -> Any:
            return accept(match) if match.root.attrs == Matmul.Attrs() else NO

        return SupportTable((SupportRow("matmul", op("matmul"), plain),))

    @hookimpl
    def rewrite_relay(self, function: Function, target: Target) -> Function:
        return rewrite_function(function, self.rule)


NO = Support.no("unsupported-attribute", "transposed")


def turned(node: Expr) -> Expr | None:
    if isinstance(node, Call) and node.name == "matmul":
        data = node.args[1].data.T.copy()  # type: ignore[attr-defined]
        return call(Matmul, node.args[0], constant(data, name="w"), attrs=Matmul.Attrs())
    return None


def mistyped(node: Expr) -> Expr | None:
    if isinstance(node, Call) and node.name == "matmul":
        return replace(node, attrs=Matmul.Attrs())
    return None


def test_an_accelerator_rewrites_the_graph_before_it_is_asked() -> None:
    host = host_of(accelerator=Turning())
    built = build(model(), "fast, toy", host=host)
    assert [row.op for row in built.placement.verdicts if row.verdict == "yes"] == ["matmul"]
    placed = partition_model(request_build(model(), "fast, toy", host=host))
    assert placed.placement == built.placement
    assert partition_module(host, model(), read_target(host, "fast, toy", None)).regions == ()


def test_a_rewrite_that_breaks_the_graph_names_the_plugin() -> None:
    with pytest.raises(PluginError, match=r"rewrite_relay\(\) of 'fast' made a broken graph"):
        build(model(), "fast, toy", host=host_of(accelerator=Turning(mistyped)))


class Loops(Accelerator):
    """Gets its regions as loops."""

    def __init__(self, generate: Any) -> None:
        self.generate = generate

    @hookimpl
    def register_target_kind(self) -> list[TargetKind]:
        return [TargetKind("fast", Role.ACCELERATOR, NoOptions)]

    @hookimpl
    def relay_codegen(self, region: Region, target: Target) -> None:
        """Nothing: the region comes as loops."""

    @hookimpl
    def lower(
        self,
        main: Function,
        regions: Sequence[Region],
        target: Target,
        alignment: int,
        tuned: Tuned | None,
        name: str,
    ) -> Lowered:
        return lower(main, regions, target=target, alignment=alignment, tuned=tuned, name=name)

    @hookimpl
    def tir_codegen(self, module: TensorModule, target: Target) -> CompiledUnit:
        return self.generate(module, target)


def test_a_region_is_lowered_for_a_kind_that_compiles_loops() -> None:
    seen: list[TensorModule] = []

    def generate(module: TensorModule, target: Target) -> CompiledUnit:
        seen.append(module)
        return CompiledUnit(module.name, "fast", {"code": b"1"})

    built = build(model(), "fast, toy", host=host_of(accelerator=Loops(generate)))
    (module,) = seen
    assert module.name == "fast_0"
    assert [spec.shape for spec in module.plan.inputs] == [(4, 5)]
    unit = next(unit for unit in built.units if unit.name == "fast_0")
    sizes = {name: array.nbytes for name, array in unit.constants.items()}
    assert sizes == {"fast_0.w": 60}
    entry = built.passport.unit("fast_0")
    plan = read_unit_plan(
        unit.files["plan.json"],
        name="fast_0",
        inputs=entry.inputs,
        outputs=entry.outputs,
        constants=sizes,
    )
    assert plan == module.plan


def test_loops_that_an_accelerator_cannot_compile_are_its_error() -> None:
    def generate(module: TensorModule, target: Target) -> CompiledUnit:
        raise UnsupportedError("no loops today")

    with pytest.raises(PluginError, match=r"'fast' took region 'fast_0'.*no loops today"):
        build(model(), "fast, toy", host=host_of(accelerator=Loops(generate)))


def test_place_says_in_python_what_place_says_on_the_command_line() -> None:
    rules = rules_of({"a*": "npu", "b": "!npu"})
    assert [(r.nodes, r.kind, r.forbid) for r in rules] == [
        ("a*", "npu", False),
        ("b", "npu", True),
    ]
    with pytest.raises(UsageError, match="is not a mapping of nodes to a kind"):
        rules_of({"a": 5})  # type: ignore[dict-item]
    for kind in ("fast", "toy"):
        built = build(model(), "fast, toy", host=host_of(), place={"matmul": kind})
        assert built.placement.offloaded == (kind == "fast")
    with pytest.raises(UsageError, match="names 'fat', which is not in the target"):
        build(model(), "fast, toy", host=host_of(), place={"matmul": "fat"})
    with pytest.raises(UnsupportedError, match=r"'nn\.relu' cannot go to 'fast'"):
        build(model(), "fast, toy", host=host_of(), place={"nn.relu": "fast"})


def test_a_node_may_be_sent_to_the_backend_that_drives_a_device() -> None:
    """Here a device whose code is loaded elsewhere, and the host beside it."""
    made: list[str] = []

    def generate(module: TensorModule, target: Target) -> CompiledUnit:
        made.append(f"{target.kind.name} {module.name}")
        return CompiledUnit(module.name, "plain", {"code": b"1"})

    device = Backend(generate, device=2)
    device.kind = replace(device.kind, main_loader="elsewhere")
    host = host_of(device)
    built = build(model(), "toy, plain", host=host, place={"matmul": "plain"})
    assert [(row.accelerator, row.nodes) for row in built.placement.regions] == [
        ("plain", ("matmul",))
    ]
    assert made == ["toy main"]
    rest = next(row for row in built.placement.verdicts if row.node == "nn.relu")
    assert rest.detail == "'plain' gets only what --place sends there"
    with_others = build(model(), "fast, toy, plain", host=host, place={"nn.relu": "plain"})
    assert {row.accelerator for row in with_others.placement.regions} == {"fast", "plain"}
