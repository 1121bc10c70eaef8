# SPDX-License-Identifier: Apache-2.0
"""The program in the artifact, and the loader that runs it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from intarsia_ethos_u.codegen import emit
from intarsia_ethos_u.loader import load, simulate
from intarsia_ethos_u.tosa.program import FILE, parse_program, print_program
from intarsia_runtime.artifact.plan import TensorSpec
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError, WorkerLost
from intarsia_runtime.loading import LoadRequest
from intarsia_testkit.expressions import expected
from intarsia_testkit.quantized_expressions import inputs_for

from .cases import chain, unsigned_conv
from .quantized import region_of


def request(files: dict[str, bytes], constants: dict[str, np.ndarray], shape: tuple[int, ...]):
    inputs = (TensorSpec("x", shape, DType.UINT8),)
    outputs = (TensorSpec("y", (1, 4, 6, 6), DType.UINT8),)
    return LoadRequest("ethos_u_0", files, constants, inputs, outputs, 1, 0)


def test_printing_and_parsing_are_inverses() -> None:
    program, _ = emit(region_of(chain()))
    assert parse_program(print_program(program)) == program


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"schema":1,"tensors":3}'])
def test_a_damaged_program(data: bytes) -> None:
    with pytest.raises(ArtifactError, match="damaged"):
        parse_program(data)


def test_a_program_of_another_schema() -> None:
    with pytest.raises(ArtifactError, match="schema 99"):
        parse_program(json.dumps({"schema": 99}).encode())


def test_the_simulator_gives_the_reference_result() -> None:
    region = region_of(unsigned_conv())
    program, constants = emit(region)
    run = simulate(request({FILE: print_program(program)}, constants, (1, 3, 6, 6)))
    inputs = inputs_for(region.function)
    output = np.zeros((1, 4, 6, 6), np.uint8)
    run(*inputs, output)
    (right,) = expected(region.function, inputs)
    assert np.abs(output.astype(int) - right).max() <= 1


def test_a_region_for_the_device_is_not_run_here() -> None:
    program, constants = emit(region_of(unsigned_conv()))
    with pytest.raises(WorkerLost, match="no driver for it is here") as caught:
        load(request({FILE: print_program(program)}, constants, (1, 3, 6, 6)))
    assert "-simulate" in (caught.value.hint or "")


def test_a_unit_without_its_program() -> None:
    with pytest.raises(ArtifactError, match=r"has no program\.json"):
        simulate(request({}, {}, (1, 3, 6, 6)))


def test_a_unit_of_another_signature() -> None:
    program, constants = emit(region_of(unsigned_conv()))
    with pytest.raises(ArtifactError, match=r"called with \[\(1, 3, 7, 6\)"):
        simulate(request({FILE: print_program(program)}, constants, (1, 3, 7, 6)))
