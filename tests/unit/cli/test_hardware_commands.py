# SPDX-License-Identifier: Apache-2.0
"""`hardware check` and `hardware export`: what they refuse."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from intarsia.artifact import archive
from intarsia.cli.hardware import command
from intarsia.errors import ArtifactError, UnsupportedError
from intarsia.target.hardware import HardwareTable, HardwareTag

BARE = HardwareTag("acme/bare", "core", "words", "a data sheet", target="loops")
ZEN = replace(BARE, name="acme/zen", microarchitecture="zen3")


@dataclass(frozen=True)
class Devices:
    """Stands for a session and for its host."""

    table: HardwareTable

    def host(self) -> Devices:
        return self

    def hardware(self) -> HardwareTable:
        return self.table


def failure(*words: str, tags: tuple[HardwareTag, ...] = (BARE, ZEN)) -> BaseException | None:
    obj = Devices(HardwareTable(list(tags)))
    return CliRunner().invoke(command, list(words), obj=obj).exception


@pytest.mark.parametrize(
    "device, arch, features, kind, message",
    [
        ("acme/bare", "x86_64", (), UnsupportedError, "the processor of 'acme/bare' can do is not"),
        ("acme/zen", "aarch64", (), ArtifactError, "is for aarch64, which 'acme/zen' is not"),
        ("acme/zen", "x86_64", ("avx2", "amx_tile"), ArtifactError, "'acme/zen' has no amx_tile,"),
    ],
)
def test_an_artifact_that_a_device_cannot_run(
    device: str,
    arch: str,
    features: tuple[str, ...],
    kind: type[Exception],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def passport(_: Path) -> SimpleNamespace:
        return SimpleNamespace(arch=arch, cpu_features=features)

    monkeypatch.setattr(archive, "read_passport", passport)
    path = tmp_path / "m.intarsia"
    path.write_bytes(b"")
    error = failure("check", str(path), "--on", device)
    assert type(error) is kind, error
    assert message in str(error)


def test_a_machine_without_a_tag_needs_a_target() -> None:
    error = failure("export", tags=())
    assert isinstance(error, UnsupportedError)
    assert "no tag describes this machine" in str(error)
    assert "--target" in error.hint
