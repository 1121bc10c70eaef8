# SPDX-License-Identifier: Apache-2.0
"""Regions as programs: one step for each match, and a place for every operand."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np

from intarsia_ir.graph.expr import Var, constant, get_item
from intarsia_ir.graph.pattern import ANY, op
from intarsia_ir.partition.cost import Plan
from intarsia_ir.partition.partition import partition
from intarsia_ir.regions.program import region_program
from intarsia_ir.regions.support import SupportRow, SupportTable
from intarsia_runtime.dtype import DType

_spec = importlib.util.spec_from_file_location("graphs", Path(__file__).with_name("graphs.py"))
assert _spec is not None
assert _spec.loader is not None
graphs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(graphs)
node, main_of, takes = graphs.node, graphs.main_of, graphs.takes

X, Y = Var("x", graphs.VECTOR), Var("y", graphs.VECTOR)


def program_of(module, *fused: SupportRow, names: tuple[str, ...] = ()):
    table = SupportTable([*fused, *takes(*names).rows])
    (region,) = partition(module, [("npu", table)], plan=Plan.GREEDY).regions
    return region_program(region)


def test_a_pattern_is_one_step_that_reads_the_inner_operands_first():
    pattern = op("negative", op("subtract", ANY, op("divide", ANY, ANY)))
    weight = constant(np.ones(4, np.float32), name="w")
    inner = node("subtract", X, node("divide", Y, weight))
    program = program_of(
        main_of([X, Y], node("negative", inner)), SupportRow("fused", pattern, graphs.yes)
    )
    assert program.to_json() == {
        "steps": [
            {
                "kernel": "fused",
                # The inner call comes first in the region, so what it reads is the first input.
                "operands": (("input", 0), ("constant", "npu_0_0"), ("input", 1)),
                "attrs": {},
            }
        ],
        "outputs": (("step", 0),),
    }
    np.testing.assert_array_equal(program.constants["npu_0_0"], np.ones(4))


def test_steps_read_steps_and_constants_are_stored_once():
    weight = constant(np.ones(4, np.float32), name="w")
    first = node("add", X, weight)
    second = node("multiply", first, weight)
    program = program_of(main_of([X], second, first), names=("add", "multiply"))
    assert [step.row for step in program.steps] == ["add", "multiply"]
    assert program.steps[1].operands == (("step", 0), ("constant", "npu_0_0"))
    assert program.outputs == (("step", 0), ("step", 1))
    assert list(program.constants) == ["npu_0_0"]


def test_one_of_several_results_is_a_field():
    parts = node("split", X, sections=(2, 2), axis=0)
    module = main_of([X], node("negative", get_item(parts, 1)))
    program = program_of(module, names=("split", "negative"))
    assert program.steps[0].call.attrs.sections == (2, 2)
    assert program.steps[1].operands == (("field", 0, 1),)


def test_attributes_are_json():
    program = program_of(main_of([X], node("cast", X, dtype=DType.FLOAT16)), names=("cast",))
    assert json.loads(json.dumps(program.to_json()))["steps"][0]["attrs"] == {"dtype": "float16"}
