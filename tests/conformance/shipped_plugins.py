# SPDX-License-Identifier: Apache-2.0
"""Every plugin of this repository that is installed passes the conformance kit, all three tiers.

Minutes for each plugin, and it measures times: ``python3 noxfile.py kit`` runs it alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from intarsia_testkit.blocks import choose_blocks, sample_graph
from intarsia_testkit.running import compile_module
from intarsia_testkit.subject import open_subject

from intarsia.errors import WorkerLost
from intarsia.host.host import Host

from .kit import run_kit, shipped


def missing_device(plugin: str) -> str:
    """Why what the plugin compiles cannot run on this machine; empty if it can."""
    subject = open_subject(plugin)
    own = subject.table(subject.host()) if subject.is_accelerator else None
    try:
        compile_module(subject, sample_graph(choose_blocks(own))).load(threads=1).close()
    except WorkerLost as error:
        return error.message
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("plugin", shipped())
def test_passes_the_kit(plugin: str, tmp_path: Path) -> None:
    installed = {info.name for info in Host().plugins()}
    if plugin not in installed:
        pytest.skip(f"the plugin {plugin} is not installed here")
    missing = missing_device(plugin)
    if missing:
        pytest.skip(f"{plugin} cannot run here: {missing}")
    result = run_kit(plugin, tmp_path)
    rows = [row for row in result["checks"] if row["outcome"] == "failed"]
    assert [f"{row['check']}: {row['detail']}" for row in rows] == []
    assert result["tier"] == 3, result["tiers"]
