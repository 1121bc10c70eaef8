# SPDX-License-Identifier: Apache-2.0
"""Every plugin of this repository that is installed passes the conformance kit, all three tiers.

Minutes for each plugin, and it measures times: ``python3 noxfile.py kit`` runs it alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from intarsia.host.host import Host

from .kit import missing_device, run_kit, shipped


@pytest.mark.slow
@pytest.mark.parametrize("plugin", shipped())
def test_passes_the_kit(plugin: str, tmp_path: Path) -> None:
    installed = {info.name for info in Host().plugins()}
    if plugin not in installed:
        pytest.skip(f"the plugin {plugin} is not installed here")
    missing = missing_device(sys.executable, plugin)
    if missing:
        pytest.skip(f"{plugin} cannot run here: {missing}")
    result = run_kit(plugin, tmp_path)
    rows = [row for row in result["checks"] if row["outcome"] == "failed"]
    assert [f"{row['check']}: {row['detail']}" for row in rows] == []
    assert result["tier"] == 3, result["tiers"]
