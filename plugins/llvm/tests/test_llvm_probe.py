# SPDX-License-Identifier: Apache-2.0
"""What the plugin finds on this machine."""

from __future__ import annotations

import pytest

from intarsia.errors import ToolchainError
from intarsia.host.host import Host
from intarsia_llvm import plugin


def test_the_probe_names_version_processor_and_linker() -> None:
    found = plugin.probe(Host().target("llvm").fallback)
    assert found.usable
    assert found.sdk.count(".") == 2
    assert found.device
    assert "ld" in found.detail


def test_without_a_linker_it_is_not_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(triple: str) -> tuple[str, ...]:
        raise ToolchainError(f"no linker for {triple}")

    monkeypatch.setattr(plugin, "find_linker", nothing)
    found = plugin.probe(Host().target("llvm").fallback)
    assert not found.usable
    assert "no linker" in found.detail
