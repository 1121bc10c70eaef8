# SPDX-License-Identifier: Apache-2.0
"""The hooks, the manifest, the hardware tags."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib import resources

import pytest

from intarsia.plugin import Target
from intarsia_ethos_u import plugin
from intarsia_ethos_u.environment import environment_version
from intarsia_ethos_u.target import ETHOS_U, EthosUOptions, canonicalize
from intarsia_ir.hardware.tag_file import read_hardware
from intarsia_ir.regions.region import Region
from intarsia_runtime.errors import TargetError

from .cases import chain, requantized
from .quantized import region_of


def target(**options: object) -> Target:
    return Target(ETHOS_U, EthosUOptions(**options))


def kept_of(regions: Sequence[Region], wanted: Target) -> tuple[Region, ...]:
    """The regions that are not given back; why one is must be said."""
    answer = plugin.partition(regions, wanted)
    assert len(answer) == len(regions)
    return tuple(region for region in answer if not region.why)


def test_the_manifest_declares_what_is_registered() -> None:
    text = resources.files("intarsia_ethos_u").joinpath("plugin.toml").read_text()
    manifest = tomllib.loads(text)
    (kind,) = plugin.register_target_kind()
    assert [row["name"] for row in manifest["target-kind"]] == [kind.name]
    assert manifest["target-kind"][0]["role"] == kind.role.value
    assert manifest["hooks"] == plugin.__name__
    assert manifest["alias"] == [{"name": "ethosu", "target": "ethos-u, c"}]


def test_hardware_tags_name_a_configuration() -> None:
    raw = resources.files("intarsia_ethos_u").joinpath("hardware.toml").read_bytes()
    tags = read_hardware(raw, file="hardware.toml")
    assert {"arm/corstone-300", "arm/corstone-320"} <= {tag.name for tag in tags}
    for tag in tags:
        assert tag.source


def test_light_regions_are_left_to_the_fallback() -> None:
    heavy, light = region_of(chain()), region_of(requantized())
    assert kept_of([heavy, light], target()) == (heavy,)
    assert kept_of([heavy, light], target(min_macs=0)) == (heavy, light)


def test_a_configuration_file_is_needed() -> None:
    with pytest.raises(TargetError, match="-config is empty"):
        canonicalize(EthosUOptions(config=""))
    assert canonicalize(EthosUOptions()) == EthosUOptions()


def test_the_build_depends_on_the_program_and_vela() -> None:
    assert environment_version().startswith("program 1, vela ")


def test_every_row_is_offered() -> None:
    assert "qnn.conv" in [row.name for row in plugin.annotate(target()).rows]


def test_probe_says_what_there_is_or_why_not() -> None:
    missing = plugin.probe(target(vela="/nowhere/vela"))
    assert not missing.usable
    assert "/nowhere/vela" in missing.detail
    found = plugin.probe(target())
    assert "-simulate" in found.detail if found.usable else "vela" in found.detail
