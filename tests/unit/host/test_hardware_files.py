# SPDX-License-Identifier: Apache-2.0
"""Files of hardware: a plugin's bad one is a problem told, the user's own is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from intarsia.host.discovery import Found
from intarsia.host.manifest import Manifest
from intarsia.target.hardware import load_hardware, own_hardware
from intarsia_runtime.errors import ModelError

MANIFEST = Manifest("npu", ">=2.0,<3", "words", "", (), (), ("npu.toml",))


@pytest.mark.parametrize(
    "inside, problem",
    [
        (False, "npu.toml: the plugin is not installed and has no folder"),
        (True, "npu.toml: the file cannot be read: "),
    ],
)
def test_a_plugin_without_its_file_is_a_problem(tmp_path: Path, inside: bool, problem: str) -> None:
    plugin = Found("npu", "acme-npu", "1", MANIFEST, folder=tmp_path if inside else None)
    table = load_hardware([plugin], ())
    assert len(table.problems) == 1
    assert problem in table.problems[0]
    assert "acme-npu" in table.problems[0]


def test_a_file_of_the_user_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the hardware file cannot be read: ") as caught:
        own_hardware({"INTARSIA_HARDWARE": str(tmp_path / "none.toml")})
    assert caught.value.where == f"INTARSIA_HARDWARE, {tmp_path / 'none.toml'}"
