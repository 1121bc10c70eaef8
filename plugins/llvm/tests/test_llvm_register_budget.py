# SPDX-License-Identifier: Apache-2.0
"""The register tiles fit the vector registers of the machines they are for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from intarsia_llvm.schedules.table import cpu_tiling
from intarsia_llvm.target import LlvmOptions, canonicalize, machine
from intarsia_loops.cpu.tiling import paired_width, registers_of
from intarsia_runtime.dtype import DType

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


def test_tiles_of_paired_rows_leave_registers_for_two_words_of_weights() -> None:
    options = LlvmOptions(mtriple="aarch64-unknown-linux-gnu", mcpu="neoverse-n2")
    plain = cpu_tiling(machine(canonicalize(options)), DType.INT32)
    assert plain.int8x4 is not None
    tiling = replace(plain, row_pairs=plain.int8x4.row_pairs)
    for vectors in range(1, 7):
        rows = tiling.rows_for(vectors)
        assert rows % 2 == 0
        assert rows * vectors + rows + 2 <= 30  # sums, two words of each pair, weights
    widths = {8: 8, 12: 12, 20: 20, 24: 24, 36: 20, 40: 20, 64: 24, 72: 24, 1000: 24}
    assert {outputs: paired_width(outputs, tiling) for outputs in widths} == widths
