# SPDX-License-Identifier: Apache-2.0
"""plugin.toml: what it says, and the message for every mistake in it."""

from __future__ import annotations

import pytest

from intarsia.host.manifest import AliasRow, KindRow, parse_manifest
from intarsia.target.kind import Role
from intarsia_runtime.errors import PluginError

GOOD = """
schema = 1
name = "npu"
api = ">=2.0,<3"
summary = "An accelerator"
hooks = "acme_npu.plugin"

[[target-kind]]
name = "npu"
role = "accelerator"
summary = "takes convolutions"

[[alias]]
name = "npu-fast"
target = "npu, loops"

[[hardware]]
file = "hardware.toml"
"""


def test_a_manifest_is_read_as_data() -> None:
    manifest = parse_manifest(GOOD)
    assert (manifest.name, manifest.api, manifest.hooks) == ("npu", ">=2.0,<3", "acme_npu.plugin")
    assert manifest.kinds == (KindRow("npu", Role.ACCELERATOR, "takes convolutions"),)
    assert manifest.aliases == (AliasRow("npu-fast", "npu, loops"),)
    assert manifest.hardware == ("hardware.toml",)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("schema = 1", "schema = 2", "has schema 2; this host reads 1"),
        ("schema = 1", "schema = true", "has schema True"),
        ("schema = 1", "", "has schema None"),
        (
            'name = "npu"\napi',
            'name = "Npu"\napi',
            "'name' of plugin.toml is not well-formed: 'Npu'",
        ),
        ('name = "npu"\napi', "name = 3\napi", "plugin.toml has no text 'name'"),
        ('api = ">=2.0,<3"', "", "plugin.toml has no text 'api'"),
        ("An accelerator", "", "plugin.toml has no text 'summary'"),
        (
            "An accelerator",
            "two\\nlines",
            "'summary' of plugin.toml is too long or is not one line",
        ),
        ("An accelerator", "x" * 501, "'summary' of plugin.toml is too long"),
        ("acme_npu.plugin", "acme-npu.plugin", "'hooks' of plugin.toml is not well-formed"),
        ("acme_npu.plugin", "os; import x", "'hooks' of plugin.toml is not well-formed"),
        ("api =", "apy =", "plugin.toml has an unknown key 'apy'"),
        ("role =", "rolle =", "[[target-kind]] 1 has an unknown key 'rolle'"),
        ('"accelerator"', '"host"', "'role' of [[target-kind]] 1 is 'host'"),
        ('name = "npu-fast"', 'name = "npu"', "gives the name 'npu' twice"),
        ('name = "npu-fast"', 'name = "composite"', "'composite' is reserved by the host"),
        ('name = "npu"\nrole', 'name = "composite"\nrole', "'composite' is reserved by the host"),
        ("[[alias]]", "[alias]", "'alias' in plugin.toml is not a list of tables"),
        ("[[hardware]]\nfile", "hardware = [3]\n#", "unknown key 'hardware'"),
        (
            'file = "hardware.toml"',
            'file = "../x.toml"',
            "'file' of [[hardware]] 1 is not well-formed",
        ),
        ("schema = 1", "schema = ", "plugin.toml does not parse"),
        ("schema = 1", "hardware = [3]\nschema = 1", "does not parse"),
        ("schema = 1", "# " + "x" * 70_000, "at most 65536 are read"),
        ("schema = 1", "a = " + "[" * 5000, "does not parse"),
    ],
)
def test_mistakes_are_told(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(PluginError) as caught:
        parse_manifest(GOOD.replace(old, new, 1))
    assert message in caught.value.message


def test_a_list_of_numbers_is_no_list_of_tables() -> None:
    text = GOOD.split("[[hardware]]")[0].replace("schema", "hardware = [3]\nschema")
    with pytest.raises(PluginError, match=r"'hardware' in plugin.toml is not a list of tables"):
        parse_manifest(text)
