# SPDX-License-Identifier: Apache-2.0
"""A plugin whose declared dependency is not installed says what to install, wherever it fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from intarsia.host.host import Host
from intarsia.host.requirements import missing_requirements
from intarsia_runtime.errors import PluginError

from .installed import install

NEEDS = """Requires-Dist: acme-vendor-sdk>=2
Requires-Dist: numpy
Requires-Dist: acme-plots; extra == "plots"
Requires-Dist: numpy<0.1
Requires-Dist: not a requirement
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path with a plugin that imports what it declares."""
    package = install(tmp_path, "npx", kind="npx")
    (tmp_path / package / "__init__.py").touch()
    (tmp_path / package / "plugin.py").write_text("import acme_vendor_sdk\n")
    metadata = tmp_path / f"{package}-1.0.dist-info" / "METADATA"
    head, _, body = metadata.read_text().partition("\n\n")
    metadata.write_text(f"{head}\n{NEEDS}\n{body}")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("INTARSIA_NO_PROBE", "1")
    return tmp_path


def test_what_is_missing_is_listed_as_pip_takes_it(site: Path) -> None:
    assert missing_requirements("intarsia-npx") == ["acme-vendor-sdk>=2", "numpy<0.1"]
    assert missing_requirements("acme-nobody") == []


def test_an_import_that_fails_for_want_of_it_says_pip_install(site: Path) -> None:
    host = Host(env={"INTARSIA_NO_PROBE": "1"}, path=[str(site)])
    with pytest.raises(PluginError) as caught:
        host.kind("npx")
    assert "needs acme-vendor-sdk>=2, numpy<0.1, which is not installed" in caught.value.message
    assert caught.value.hint == "pip install 'acme-vendor-sdk>=2' 'numpy<0.1'"
    (plugin,) = host.plugins()
    assert (plugin.state, plugin.remedy) == ("broken", caught.value.hint)


def test_doctor_and_why_say_it_too(site: Path) -> None:
    (finding,) = Host(env={}, path=[str(site)]).examine(["npx"])
    assert finding.remedy == "pip install 'acme-vendor-sdk>=2' 'numpy<0.1'"
