# SPDX-License-Identifier: Apache-2.0
"""Typed columns of the table of target kinds: one plugin gives values, another reads them."""

from __future__ import annotations

from typing import Any

import pytest

from intarsia.host.host import Host
from intarsia.host.manager import LocalPlugin
from intarsia.host.manifest import AttributeRow, KindRow, Manifest, parse_manifest
from intarsia.plugin import (
    KindAttribute,
    KindAttributeValue,
    Role,
    SupportTable,
    Target,
    TargetKind,
    hookimpl,
)
from intarsia_runtime.errors import DuplicateName, PluginError

from .local_plugins import LOOPS, Options, host_of

POWER = KindAttribute("acme.power", float, doc="watts at full load")


class Meter:
    """Says of kinds of others what they take."""

    def __init__(self, *values: Any) -> None:
        self.values = values

    @hookimpl
    def register_kind_attribute(self) -> list[KindAttributeValue]:
        return list(self.values)


class Reader:
    """An accelerator that reads what another plugin says of its kind."""

    seen: float | str | None = None

    @hookimpl
    def register_target_kind(self) -> list[TargetKind]:
        return [TargetKind("npu", Role.ACCELERATOR, Options)]

    @hookimpl
    def annotate(self, target: Target) -> SupportTable:
        self.seen = POWER.get(target.kind)
        return SupportTable(())


def meter(hooks: object, *kinds: str, name: str = "meter") -> LocalPlugin:
    rows = tuple(AttributeRow("acme.power", kind, "watts") for kind in kinds)
    manifest = Manifest(name, ">=2.0,<3", "words", "", (), (), (), (), (), rows)
    return LocalPlugin(manifest, hooks, f"acme-{name}")


def reader(hooks: Reader) -> LocalPlugin:
    row = KindRow("npu", Role.ACCELERATOR, "words")
    return LocalPlugin(Manifest("npu", ">=2.0,<3", "", "", (row,), (), ()), hooks, "acme-npu")


def states(host: Host) -> dict[str, str]:
    return {plugin.name: plugin.state for plugin in host.plugins()}


def test_a_plugin_reads_what_another_says_of_its_kind() -> None:
    hooks = Reader()
    giver = meter(Meter(POWER.of("npu", 2.5), POWER.of("absent", 1.0)), "npu", "absent")
    host = host_of(LOOPS, reader(hooks), giver)
    target = host.target("npu, loops").accelerators[0]
    assert states(host)["meter"] == "discovered"
    host.call("annotate", "npu", target=target)
    assert hooks.seen == 2.5
    assert states(host)["meter"] == "loaded"
    assert list(host.kind("npu").attributes) == ["acme.power"]
    assert dict(host.kind("npu").attributes) == {"acme.power": 2.5}
    assert POWER.get(host.kind("loops")) is None
    assert POWER.get(host.kind("loops"), 0.5) == 0.5
    with pytest.raises(KeyError):
        host.kind("npu").attributes["acme.size"]


def test_a_column_of_another_type_is_refused_where_it_is_read() -> None:
    host = host_of(LOOPS, meter(Meter(POWER.of("loops", 9.0)), "loops"))
    with pytest.raises(PluginError, match=r"'acme.power' of target kind 'loops' is float, not str"):
        KindAttribute("acme.power", str).get(host.kind("loops"))


@pytest.mark.parametrize(
    "values, message",
    [
        ((), "registers the attributes none, but its manifest declares acme.power of loops"),
        ((POWER.of("npu", 1.0),), "registers the attributes acme.power of npu, but"),
        ((POWER.of("loops", "much"),), "'acme.power' of 'loops' as str, not float"),  # type: ignore[arg-type]
        ((3,), "a list that holds int, not only KindAttributeValue"),
    ],
)
def test_a_plugin_that_gives_what_it_does_not_declare_is_broken(values: Any, message: str) -> None:
    host = host_of(LOOPS, meter(Meter(*values), "loops"))
    kind = host.kind("loops")
    assert kind.name == "loops"  # the kind itself works
    for _ in range(2):
        with pytest.raises(PluginError, match=message):
            POWER.get(kind)
    assert states(host)["meter"] == "broken"


def test_two_plugins_that_say_it_of_one_kind_are_named() -> None:
    hooks = Meter(POWER.of("loops", 9.0))
    host = host_of(LOOPS, meter(hooks, "loops"), meter(hooks, "loops", name="other"))
    with pytest.raises(DuplicateName, match="of target kind 'loops' is claimed by"):
        POWER.get(host.kind("loops"))


def test_a_manifest_declares_attributes_and_aliases_of_executors() -> None:
    text = """
        schema = 1
        name = "web"
        api = ">=1"
        summary = "s"
        hooks = "web"
        [[kind-attribute]]
        name = "acme.power"
        kind = "loops"
        summary = "watts"
        [[executor-kind]]
        name = "wasm"
        aliases = ["web-assembly"]
        summary = "bytecode"
        """
    manifest = parse_manifest(text)
    assert manifest.attributes == (AttributeRow("acme.power", "loops", "watts"),)
    assert manifest.executors[0].names == ("wasm", "web-assembly")
    with pytest.raises(PluginError, match="gives the name 'wasm' twice"):
        parse_manifest(text.replace('["web-assembly"]', '["wasm"]'))
    with pytest.raises(PluginError, match=r"'aliases' of \[\[executor-kind\]\] 1 is not a list"):
        parse_manifest(text.replace('["web-assembly"]', '"web"'))
    with pytest.raises(PluginError, match=r"'name' of \[\[kind-attribute\]\] 1 is not well-formed"):
        parse_manifest(text.replace('"acme.power"', '"acme power"'))
