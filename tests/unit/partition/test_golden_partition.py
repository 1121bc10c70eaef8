# SPDX-License-Identifier: Apache-2.0
"""Whole modules through preparation and partitioning, text in and text out."""

from __future__ import annotations

from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.pattern import ANY, CONST, Match, op
from intarsia_ir.graph.text import parse_module, print_module
from intarsia_ir.ops import OPERATORS
from intarsia_ir.partition.cost import Plan
from intarsia_ir.partition.partition import partition
from intarsia_ir.passes.prepare import PREPARE
from intarsia_ir.regions.support import Support, SupportRow, SupportTable


def yes(_match: Match) -> Support:
    return Support.yes()


def parsed(text: str) -> IRModule:
    return parse_module(text, operators=OPERATORS)


def cut(text: str, *rows: SupportRow, plan: Plan = Plan.GREEDY) -> str:
    return print_module(partition(parsed(text), [("npu", SupportTable(rows))], plan=plan).module)


RELU = SupportRow("relu", op("nn.relu"), yes)
ADD = SupportRow("add", op("add"), yes)
MATMUL = SupportRow("matmul", op("matmul", ANY, CONST), yes)


def test_keeps_a_region_convex(golden):
    golden(
        cut(
            """
            fn(%x: Tensor[(1, 8), float32]) -> Tensor[(1, 8), float32] {
              %a = nn.relu(%x);
              %b = sigmoid(%a);
              add(%a, %b)
            }""",
            RELU,
            ADD,
        )
    )


def test_takes_light_neighbours_along_and_leaves_light_regions(golden):
    golden(
        cut(
            """
            fn(%x: Tensor[(2, 2), float32]) -> Tensor[(2, 2), float32] {
              %a = nn.relu(%x);  // alone
              %b = sigmoid(%a);  // host
              %c = matmul(%b, const([[1.0, 2.0], [3.0, 4.0]], float32));  // heavy
              %d = nn.relu(%c);  // along
              tanh(%d)  // out
            }""",
            RELU,
            MATMUL,
            plan=Plan.COST,
        )
    )


def test_outlines_several_results(golden):
    golden(
        cut(
            """
            fn(%x: Tensor[(4,), float32], %y: Tensor[(4,), float32])
                -> (Tensor[(4,), float32], Tensor[(4,), float32]) as ("p", "q") {
              %a = add(%x, %y);
              %b = nn.relu(%a);
              %c = tanh(%a);
              %d = add(%c, %b);
              (%b, %d)
            }""",
            RELU,
            ADD,
        )
    )


def test_regions_stay_inside_branches(golden):
    golden(
        cut(
            """
            fn(%x: Tensor[(4,), float32], %c: Tensor[(), bool]) -> Tensor[(4,), float32] {
              %a = nn.relu(%x);
              %i = if (%c) {
                %t = nn.relu(%a);
                add(%t, %a)
              } else {
                tanh(%a)
              };
              nn.relu(%i)
            }""",
            RELU,
            ADD,
        )
    )


def test_prepares_a_quantized_layer(golden):
    golden(
        print_module(
            PREPARE.run(
                parsed("""
            fn(%x: Tensor[(1, 1, 4, 4), float32]) -> Tensor[(1, 1, 4, 4), float32] {
              %w = cast(const "w"([[[[2]]]], int8), dtype=float32);
              %k = multiply(%w, const(0.25, float32));
              %0 = nn.conv(%x, %k, strides=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1));
              %1 = divide(%0, const(0.5, float32));  // q
              %2 = round(%1);  // q
              %3 = clip(%2, min=0.0, max=255.0);  // q
              %4 = cast(%3, dtype=uint8);  // q
              %5 = cast(%4, dtype=float32);  // dq
              multiply(%5, const(0.5, float32))  // dq
            }"""),
                check=True,
            )
        )
    )
