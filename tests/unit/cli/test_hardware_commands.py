# SPDX-License-Identifier: Apache-2.0
"""`hardware check` and `hardware export`: what they refuse."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from intarsia.cli.hardware import command
from intarsia.target.kind import Role, TargetKind
from intarsia.target.target import CompositeTarget, Target
from intarsia_ir.hardware.tags import HardwareTable, HardwareTag
from intarsia_runtime.artifact import archive
from intarsia_runtime.artifact.machine import Machine
from intarsia_runtime.errors import ArtifactError, UnsupportedError

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

    def hardware_of(self, target: CompositeTarget) -> HardwareTag | None:
        return self.table.find(target.fallback.options)

    def target(self, name: str) -> CompositeTarget:
        """A backend that says itself what its code for the tag may use."""
        loops = Target(TargetKind("loops", Role.BACKEND, str), name)
        return CompositeTarget((), loops, loops)

    def ask(self, hook: str, kind: str, **_: object) -> Machine:
        assert (hook, kind) == ("machine", "loops")
        return Machine("linux", "x86_64", frozenset({"sse3"}))


def failure(*words: str, tags: tuple[HardwareTag, ...] = (BARE, ZEN)) -> BaseException | None:
    obj = Devices(HardwareTable(list(tags)))
    return CliRunner().invoke(command, list(words), obj=obj).exception


@pytest.mark.parametrize(
    "device, arch, features, message, lacking",
    [
        ("acme/bare", "x86_64", ("sse3", "avx2"), "'acme/bare' cannot run it: it needs", "avx2"),
        ("acme/zen", "aarch64", (), "'acme/zen' cannot run it: it is for linux/aarch64", ""),
        ("acme/zen", "x86_64", ("avx2", "amx_tile"), "it needs the CPU features", "amx_tile"),
    ],
)
def test_an_artifact_that_a_device_cannot_run(
    device: str,
    arch: str,
    features: tuple[str, ...],
    message: str,
    lacking: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def passport(_: Path) -> SimpleNamespace:
        return SimpleNamespace(os="linux", arch=arch, cpu_features=features)

    monkeypatch.setattr(archive, "read_passport", passport)
    path = tmp_path / "m.intarsia"
    path.write_bytes(b"")
    error = failure("check", str(path), "--on", device)
    assert isinstance(error, ArtifactError)
    assert message in str(error)
    assert error.message.endswith(lacking)


def test_a_machine_without_a_tag_needs_a_target() -> None:
    error = failure("export", tags=())
    assert isinstance(error, UnsupportedError)
    assert "no tag describes this machine" in str(error)
    assert "--target" in error.hint
