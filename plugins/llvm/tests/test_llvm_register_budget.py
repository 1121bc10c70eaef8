# SPDX-License-Identifier: Apache-2.0
"""The register tiles fit the vector registers of the machines they are for."""

from __future__ import annotations

import pytest

from intarsia_llvm.schedules.table import cpu_tiling
from intarsia_llvm.target import LlvmOptions, canonicalize, machine
from intarsia_loops.cpu.tiling import registers_of

LINUX = {"mtriple": "x86_64-unknown-linux-gnu"}


@pytest.mark.parametrize(
    ("options", "registers", "of_two_vectors"),
    [
        ({**LINUX, "mcpu": "haswell"}, 16, 15),
        ({**LINUX, "mcpu": "skylake-avx512"}, 32, 31),
        ({"mtriple": "aarch64-unknown-linux-gnu", "mcpu": "generic"}, 32, 32),
    ],
)
def test_accumulators_and_operands_of_a_tile_fit_the_registers(
    options: dict[str, str], registers: int, of_two_vectors: int
) -> None:
    model = machine(canonicalize(LlvmOptions(**options)))
    tiling = cpu_tiling(model)
    assert model.registers == registers
    for vectors in (1, 2, 3, 4):
        rows = tiling.rows_for(vectors)
        # By lanes each row has a register of A, else all share one (lane_loop.py).
        operands = rows - 1 if tiling.left_lanes is not None else 0
        needed = registers_of(rows, vectors) + operands
        assert needed <= registers
        assert vectors != 2 or needed == of_two_vectors
    assert tiling.neighbours + 1 <= registers  # of a depthwise tile: accumulators and weights
