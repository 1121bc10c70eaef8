# SPDX-License-Identifier: Apache-2.0
"""What the plugin finds on this machine."""

from __future__ import annotations

from intarsia.host.host import Host
from intarsia_llvm import plugin


def test_the_probe_names_version_processor_and_linker() -> None:
    found = plugin.probe(Host().target("llvm").fallback)
    assert found.usable
    assert found.sdk.count(".") == 2
    assert found.device
    assert "ld" in found.detail
