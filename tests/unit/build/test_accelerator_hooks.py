# SPDX-License-Identifier: Apache-2.0
"""Accelerators may rewrite the graph before they are asked, and get their regions as loops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from intarsia.artifact.unit_plan import read_unit_plan
from intarsia.build.build import build
from intarsia.build.place import place_model, rules_of
from intarsia.build.stages import cut, read_target
from intarsia.dtype import DType
from intarsia.errors import PluginError, UnsupportedError, UsageError
from intarsia.ir.expr import Call, Expr, Function, Var, call, constant
from intarsia.ir.module import IRModule
from intarsia.ir.types import TensorType
from intarsia.ir.walk import rewrite_function
from intarsia.lower.kernels import TensorModule
from intarsia.ops.activation import Relu
from intarsia.ops.nn import Matmul
from intarsia.plugin import (
    CompiledUnit,
    Role,
    Support,
    SupportRow,
    SupportTable,
    Target,
    TargetKind,
    hookimpl,
    op,
)

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
    placed = place_model(host, model(), read_target(host, "fast, toy", None))
    assert placed.placement == built.placement
    assert cut(host, model(), read_target(host, "fast, toy", None)).regions == ()


def test_a_rewrite_that_breaks_the_graph_names_the_plugin() -> None:
    with pytest.raises(PluginError, match=r"rewrite_relay\(\) of 'fast' made a broken graph"):
        build(model(), "fast, toy", host=host_of(accelerator=Turning(mistyped)))


class Loops(Accelerator):
    """Gets its regions as loops."""

    def __init__(self, generate: Any) -> None:
        self.generate = generate

    @hookimpl
    def register_target_kind(self) -> list[TargetKind]:
        return [
            TargetKind("fast", Role.ACCELERATOR, NoOptions, tir_codegen=self.generate)
        ]  # fmt: skip


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
