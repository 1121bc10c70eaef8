# SPDX-License-Identifier: Apache-2.0
"""`doctor` fails only when asked to, or about a plugin that is named."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from intarsia.cli import doctor
from intarsia_runtime.errors import PluginError


@pytest.mark.parametrize("words", [("npu",), ("--check",), ()])
def test_a_broken_plugin_fails_what_asks_for_it(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def examine(names: tuple[str, ...]) -> tuple[SimpleNamespace, ...]:
        return (SimpleNamespace(name="npu", broken=True, to_json=dict),)

    host = SimpleNamespace(examine=examine)
    session = SimpleNamespace(host=lambda: host)
    monkeypatch.setattr(doctor, "_environment", dict)
    run = CliRunner().invoke(doctor.command, [*words, "--json"], obj=session)
    if not words:
        assert run.exit_code == 0
        return
    assert isinstance(run.exception, PluginError)
    assert run.exception.message == "broken: npu"
    assert "plugins why" in run.exception.hint
