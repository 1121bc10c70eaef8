# SPDX-License-Identifier: Apache-2.0
"""Arm's tools, where they are installed: Vela, and the reference model of TOSA."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from intarsia_ethos_u.tosa.execute import inwards, outwards
from intarsia_ethos_u.tosa.flatbuffer import to_flatbuffer
from intarsia_ethos_u.tosa.program import TosaProgram
from intarsia_ethos_u.vela import installed_version

needs_vela = pytest.mark.skipif(
    not installed_version(), reason="vela is not installed: pip install 'intarsia-ethos-u[vela]'"
)


def reference_model() -> str:
    """Return the program of Arm's reference model, or skip the test.

    ``tosa-tools`` wants other versions of NumPy than this project, so it is installed in an
    environment of its own, which ``TOSA_REFERENCE_MODEL`` or the PATH names.
    """
    program = os.environ.get("TOSA_REFERENCE_MODEL") or shutil.which("tosa_reference_model")
    if not program:
        pytest.skip("no tosa_reference_model: install tosa-tools elsewhere and put it on the PATH")
    return program


def by_reference_model(
    program: TosaProgram, constants: dict[str, np.ndarray], inputs: list[np.ndarray], folder: Path
) -> list[np.ndarray]:
    """Run a program on Arm's reference model."""
    tool = reference_model()
    (folder / "region.tosa").write_bytes(to_flatbuffer(program, constants))
    for border, array in zip(program.inputs, inputs, strict=True):
        np.save(folder / f"{border.name}.npy", inwards(border, array))
    outputs = [border.name for border in program.outputs]
    description = {
        "tosa_file": "region.tosa",
        "ifm_name": [border.name for border in program.inputs],
        "ifm_file": [f"{border.name}.npy" for border in program.inputs],
        "ofm_name": outputs,
        "ofm_file": [f"out_{name}.npy" for name in outputs],
        "expected_failure": False,
    }
    (folder / "desc.json").write_text(json.dumps(description))
    command = [tool, f"--test_desc={folder / 'desc.json'}"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
    return [
        outwards(border, np.load(folder / f"out_{border.name}.npy").astype(np.int8))
        for border in program.outputs
    ]
