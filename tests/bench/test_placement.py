# SPDX-License-Identifier: Apache-2.0
"""Placing by cost: 2 000 nodes among 4 accelerators in under 10 seconds."""

from __future__ import annotations

import random
import time

import pytest

from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.expr import Expr, Function, Var, call
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.pattern import ANY, Match, op
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops import OPERATORS
from intarsia_ir.partition.cost import Plan, Prices
from intarsia_ir.partition.partition import partition
from intarsia_ir.performance import Performance
from intarsia_ir.regions.support import Support, SupportRow, SupportTable
from intarsia_runtime.dtype import DType

LIMIT = 10.0  # seconds
NODES = 2000
NAMES = ("matmul", "nn.relu", "tanh", "add", "multiply", "sigmoid")


def module(rng: random.Random) -> IRModule:
    """Operands come from the last few nodes; what nothing reads is added up at the end."""
    x = Var("x", TensorType((64, 64), DType.FLOAT32))
    pool: list[Expr] = [x]
    unread: dict[Expr, None] = {}

    def add_node(name: str, operands: list[Expr]) -> None:
        operator = OPERATORS[name]
        made = call(operator, *operands, attrs=operator.Attrs(), span=Span(f"n{len(pool)}"))
        for operand in operands:
            unread.pop(operand, None)
        pool.append(made)
        unread[made] = None

    while len(pool) + len(unread) <= NODES + 1:
        name = rng.choice(NAMES)
        count = 2 if name in ("matmul", "add", "multiply") else 1
        add_node(name, [pool[-1 - rng.randrange(8) % len(pool)] for _ in range(count)])
    while len(unread) > 1:
        add_node("add", [*unread][:2])
    return IRModule.from_function(Function((x,), pool[-1]))


def table(rng: random.Random) -> SupportTable:
    """Most operators, one pattern, and a cost of its own for each match."""

    seed = rng.random()

    def takes(match: Match) -> Support:
        chance = random.Random(f"{seed} {match.root.span.name}").random()
        if chance < 0.15:
            return Support.no("unsupported-shape", "not this one")
        return Support.yes(seconds=chance * 2e-5)

    rows = [SupportRow("fused", op("nn.relu", op("add", ANY, ANY)), takes)]
    return SupportTable([*rows, *(SupportRow(n, op(n), takes) for n in rng.sample(NAMES, 5))])


@pytest.mark.bench
@pytest.mark.parametrize("seed", range(3))
def test_two_thousand_nodes_and_four_accelerators(seed):
    rng = random.Random(seed)
    main = module(rng)
    kinds = ["a", "b", "c", "d"]
    tables = [(kind, table(rng)) for kind in kinds]
    speeds = {
        kind: Performance(flops=4e10, launch=rng.random() * 1e-5, copy_bandwidth=1e10,
                          copy_latency=rng.random() * 1e-6)
        for kind in kinds
    }  # fmt: skip
    start = time.perf_counter()
    made = partition(main, tables, plan=Plan.COST, prices=Prices(Performance(), speeds))
    took = time.perf_counter() - start
    cost = made.report.cost
    assert cost is not None
    print(f"{made.report.nodes} nodes: {took:.2f} s; {made.report}; {cost}")
    assert cost.chosen <= min(cost.greedy, cost.fallback)
    assert took < LIMIT
