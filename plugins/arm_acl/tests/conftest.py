# SPDX-License-Identifier: Apache-2.0
"""The runner, compiled once a session; its tests skip where there is no toolchain."""

from __future__ import annotations

from pathlib import Path

import pytest

from .emulation import RUNNER, Emulated, compile_program, missing
from .regions import Bench


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    """Return the runner under emulation."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    return Emulated(compile_program(RUNNER, tmp_path_factory.mktemp("runner") / "runner"))


@pytest.fixture
def bench(emulated: Emulated, tmp_path: Path) -> Bench:
    """Return what compares functions with their definitions."""
    return Bench(emulated, tmp_path)
