# SPDX-License-Identifier: Apache-2.0
"""Reference results against the operators' definitions, and against Arm's TOSA reference model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from intarsia_ethos_n.codegen import emit
from intarsia_ethos_n.execute import execute
from intarsia_ethos_n.network import Network, NetworkBorder, NetworkOperation, NetworkTensor
from intarsia_ir.graph.expr import Expr
from intarsia_ir.regions.region import Region
from intarsia_runtime.errors import ArtifactError
from intarsia_testkit.expressions import expected
from intarsia_testkit.quantized_expressions import inputs_for

from .cases import CASES, doubled, parts, spread, widened, widened_far
from .quantized import region_of


def by_reference_model(region: Region, inputs: list[np.ndarray], folder: Path) -> list[np.ndarray]:
    """Run a region's TOSA form, which the plugin for Ethos-U writes, on Arm's reference model."""
    tool = os.environ.get("TOSA_REFERENCE_MODEL") or shutil.which("tosa_reference_model")
    if not tool:
        pytest.skip("no tosa_reference_model: install tosa-tools elsewhere and put it on the PATH")
    codegen = pytest.importorskip("intarsia_ethos_u.codegen", reason="no intarsia-ethos-u")
    from intarsia_ethos_u.tosa import execute as tosa
    from intarsia_ethos_u.tosa.flatbuffer import to_flatbuffer

    program, constants = codegen.emit(region)
    (folder / "region.tosa").write_bytes(to_flatbuffer(program, constants))
    for border, array in zip(program.inputs, inputs, strict=True):
        np.save(folder / f"{border.name}.npy", tosa.inwards(border, array))
    names = [border.name for border in program.outputs]
    description = {
        "tosa_file": "region.tosa",
        "ifm_name": [border.name for border in program.inputs],
        "ifm_file": [f"{border.name}.npy" for border in program.inputs],
        "ofm_name": names,
        "ofm_file": [f"out_{name}.npy" for name in names],
        "expected_failure": False,
    }
    (folder / "desc.json").write_text(json.dumps(description))
    command = [tool, f"--test_desc={folder / 'desc.json'}"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
    return [
        tosa.outwards(border, np.load(folder / f"out_{border.name}.npy").astype(np.int8))
        for border in program.outputs
    ]


def compare(found: list[np.ndarray], right: list[np.ndarray]) -> None:
    for mine, theirs in zip(found, right, strict=True):
        assert mine.shape == theirs.shape
        assert mine.dtype == theirs.dtype
        away = np.abs(mine.astype(int) - theirs.astype(int))
        assert away.max() <= 1
        # Ties are rounded up here and to even there; means over few elements have many.
        assert np.mean(away != 0) < 0.06


@pytest.mark.parametrize("make", CASES)
def test_results_are_within_one_quantum_of_the_definitions(make: Callable[[], Expr]) -> None:
    region = region_of(make())
    network, constants = emit(region)
    inputs = inputs_for(region.function)
    compare(execute(network, constants, inputs), expected(region.function, inputs))


OWN = (spread, doubled, parts, widened, widened_far)
"""What has no TOSA form in the other plugin."""


@pytest.mark.parametrize("make", [make for make in CASES if make not in OWN])
def test_the_tosa_reference_model_agrees(make: Callable[[], Expr], tmp_path: Path) -> None:
    region = region_of(make())
    network, constants = emit(region)
    inputs = inputs_for(region.function)
    compare(execute(network, constants, inputs), by_reference_model(region, inputs, tmp_path))


def test_an_operation_of_a_later_release() -> None:
    tensor = NetworkTensor((1, 1, 1, 1), "s8")
    border = NetworkBorder("a", (1,), False)
    network = Network(
        {"a": tensor, "b": tensor}, (), (NetworkOperation("fold", ("a",), "b"),), (border,), ()
    )
    with pytest.raises(ArtifactError, match="operation 'fold'"):
        execute(network, {}, [np.zeros(1, np.int8)])
