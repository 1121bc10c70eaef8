# SPDX-License-Identifier: Apache-2.0
"""Every plugin of this repository that is installed passes the conformance kit, all three tiers.

One whose device is not on this machine is checked with its stand-in, else compiled and not run.
Minutes for each plugin, and it measures times: ``python3 noxfile.py kit`` runs it alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from intarsia.host.host import Host

from .kit import means, run_kit, shipped


@pytest.mark.slow
@pytest.mark.parametrize("plugin", shipped())
def test_passes_the_kit(plugin: str, tmp_path: Path) -> None:
    installed = {info.name for info in Host().plugins()}
    if plugin not in installed:
        pytest.skip(f"the plugin {plugin} is not installed here")
    found = means(sys.executable, plugin)
    if found.missing:
        pytest.skip(f"{plugin} compiles nothing here: {found.missing}")
    result = run_kit(plugin, tmp_path, found)
    rows = [row for row in result["checks"] if row["outcome"] == "failed"]
    assert [f"{row['check']}: {row['detail']}" for row in rows] == []
    reached = result["compiled_tier" if found.compile_only else "tier"]
    assert reached == 3, result["tiers"]
