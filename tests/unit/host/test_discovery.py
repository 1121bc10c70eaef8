# SPDX-License-Identifier: Apache-2.0
"""Discovery reads metadata and data files, however installed, and imports nothing."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from intarsia.host.discovery import Found, State, find_plugins

from .installed import install


def only(found: list[Found]) -> Found:
    (plugin,) = found
    return plugin


def test_a_plugin_is_found_through_its_metadata(tmp_path: Path) -> None:
    install(tmp_path, "npu")
    plugin = only(find_plugins([str(tmp_path)]))
    assert (plugin.name, plugin.distribution, plugin.version) == ("npu", "intarsia-npu", "1.0")
    assert plugin.state is State.DISCOVERED
    assert plugin.manifest is not None
    assert plugin.manifest.hooks == "intarsia_npu.plugin"
    assert plugin.label == "plugin 'npu' (intarsia-npu 1.0)"
    assert "intarsia_npu" not in sys.modules


def test_plugins_come_in_one_order(tmp_path: Path) -> None:
    for name in ("b", "a"):
        install(tmp_path, name)
    install(tmp_path, "a", distribution="acme-a")
    names = [(p.name, p.distribution) for p in find_plugins([str(tmp_path)])]
    assert names == [("a", "acme-a"), ("a", "intarsia-a"), ("b", "intarsia-b")]


def test_of_two_copies_the_first_on_the_path_counts(tmp_path: Path) -> None:
    install(tmp_path / "new", "npu", version="2.0")
    install(tmp_path / "old", "npu", version="1.0")
    install(tmp_path / "old", "npu", distribution="Intarsia.npu", version="0.9")
    plugin = only(find_plugins([str(tmp_path / "new"), str(tmp_path / "old")]))
    assert plugin.version == "2.0"


def test_an_editable_install_is_found_by_its_url(tmp_path: Path) -> None:
    package = install(tmp_path, "npu")
    source = tmp_path / "project with space" / "src"
    source.mkdir(parents=True)
    shutil.move(tmp_path / package, source / package)
    info = tmp_path / f"{package}-1.0.dist-info"
    url = {"url": source.parent.as_uri(), "dir_info": {"editable": True}}
    (info / "direct_url.json").write_text(json.dumps(url))
    assert only(find_plugins([str(tmp_path)])).state is State.DISCOVERED
    (info / "direct_url.json").write_text('{"url": "https://example.org/x"}')
    assert only(find_plugins([str(tmp_path)])).state is State.BROKEN
    (info / "direct_url.json").write_text("{")
    assert "cannot be read" in only(find_plugins([str(tmp_path)])).reason


def test_an_editable_install_is_found_along_the_path(tmp_path: Path) -> None:
    package = install(tmp_path, "npu")
    (tmp_path / "src").mkdir()
    shutil.move(tmp_path / package, tmp_path / "src" / package)
    assert only(find_plugins([str(tmp_path), str(tmp_path / "src")])).state is State.DISCOVERED


def test_a_wheel_on_the_path_needs_no_unpacking(tmp_path: Path) -> None:
    install(tmp_path / "tree", "npu")
    wheel = tmp_path / "intarsia_npu-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in sorted((tmp_path / "tree").rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(tmp_path / "tree"))
    plugin = only(find_plugins([str(wheel)]))
    assert (plugin.state, plugin.version, plugin.reason) == (State.DISCOVERED, "1.0", "")


@pytest.mark.parametrize(
    "settings, state, reason",
    [
        ({"api": ">=1.0,<2"}, State.INCOMPATIBLE, "needs hook API >=1.0,<2; this intarsia has 2.0"),
        ({"api": "<1"}, State.INCOMPATIBLE, "needs hook API <1"),
        ({"api": "one"}, State.BROKEN, "not a version range: 'one'"),
        ({"value": "intarsia_npu"}, State.BROKEN, "not 'package:plugin.toml'"),
        ({"value": "intarsia_npu:../x.toml"}, State.BROKEN, "not 'package:plugin.toml'"),
        ({"value": "missing:plugin.toml"}, State.BROKEN, "missing/plugin.toml is not in"),
        ({"manifest": "schema = 7"}, State.BROKEN, "has schema 7"),
        ({"entry": "other"}, State.BROKEN, "another name than its manifest, 'npu'"),
    ],
)
def test_what_cannot_be_used_says_why(
    tmp_path: Path, settings: dict[str, str], state: State, reason: str
) -> None:
    install(tmp_path, "npu", **settings)
    plugin = only(find_plugins([str(tmp_path)]))
    assert plugin.state is state
    assert reason in plugin.reason
    assert plugin.remedy


def test_unreadable_files_do_not_stop_the_search(tmp_path: Path) -> None:
    package = install(tmp_path, "npu")
    (tmp_path / package / "plugin.toml").write_bytes(b"\xff\xff")
    stranger = tmp_path / "stranger-1.0.dist-info"
    stranger.mkdir()
    (stranger / "entry_points.txt").write_bytes(b"\xff intarsia.plugins")
    nameless = tmp_path / "nameless-1.0.dist-info"
    nameless.mkdir()
    (nameless / "entry_points.txt").write_text("[intarsia.plugins]\nx = y:plugin.toml\n")
    (nameless / "METADATA").write_bytes(b"\xff")
    found = find_plugins([str(tmp_path), str(tmp_path / "missing")])
    assert [(p.distribution, p.state) for p in found] == [
        ("intarsia-npu", State.BROKEN),
        ("unknown", State.BROKEN),
    ]
    assert "cannot be read" in found[0].reason
