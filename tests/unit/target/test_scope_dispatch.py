# SPDX-License-Identifier: Apache-2.0
"""The current target, dispatch on keys, overrides, defaults, deprecation, and lists of targets."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

import pytest

from intarsia.target.kind import Role, TargetKind
from intarsia.target.kind_table import KindTable, Origin, make_target
from intarsia.target.options import option
from intarsia.target.parse import parse_target
from intarsia.target.read import read_spec
from intarsia.target.target import Target
from intarsia.target.universal import Tag
from intarsia_loops.dispatch import dispatch
from intarsia_runtime.errors import TargetError

from .target_kinds import KINDS

LOOPS = parse_target("loops", KINDS)
NPU = parse_target("npu, loops", KINDS)


def test_scopes_nest_and_end() -> None:
    assert Target.current() is None
    with LOOPS as outer:
        assert Target.current() is outer
        with NPU.fallback as inner:
            assert Target.current() is inner
        with pytest.raises(ZeroDivisionError), NPU:
            _ = 1 // 0
        assert Target.current() is LOOPS
    assert Target.current() is None


def test_threads_and_tasks_have_their_own() -> None:
    seen: list[object] = []

    async def task(target: object) -> None:
        with target:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
            seen.append(Target.current() is target)

    async def both() -> None:
        await asyncio.gather(task(LOOPS), task(NPU))

    with LOOPS:
        thread = threading.Thread(target=lambda: seen.append(Target.current() is None))
        thread.start()
        thread.join()
        asyncio.run(both())
    assert seen == [True, True, True]


def test_the_most_special_key_wins() -> None:
    kind = TargetKind("avr", Role.BACKEND, LOOPS.fallback.kind.options, default_keys=("cpu", "mcu"))
    target = make_target(kind, {})
    assert target.keys == ("avr", "mcu", "cpu")
    assert LOOPS.fallback.keys == ("loops", "cpu")
    rows = {"cpu": 1, "mcu": 2, "default": 0}
    assert dispatch(rows, target, "a schedule") == 2
    assert dispatch(rows | {"avr": 3}, target, "a schedule") == 3
    assert dispatch(rows, LOOPS.fallback, "a schedule") == 1
    assert dispatch({"default": 0}, target, "a schedule") == 0
    with pytest.raises(TargetError, match="a schedule for none of the keys of the target: avr"):
        dispatch({"gpu": 1}, target, "a schedule")


OVERRIDES = Origin(overrides={"loops": {"mcpu": "native", "num-threads": 2}})


@pytest.mark.parametrize(
    "text, origin, canonical",
    [
        ("loops", OVERRIDES, "loops -mcpu=host-cpu -num-threads=2"),
        ("loops -num-threads=2", OVERRIDES, "loops -mcpu=host-cpu -num-threads=2"),
        ("cpu", OVERRIDES, "loops -mcpu=host-cpu -num-threads=2"),  # wins over the alias
        ("loops -num-threads=3", OVERRIDES.named("a file"), "loops -mcpu=host-cpu -num-threads=2"),
        ("gpu", OVERRIDES, "gpu, loops -mcpu=host-cpu -num-threads=2"),
        ('{"kind": "loops"}', OVERRIDES, "loops -mcpu=host-cpu -num-threads=2"),
        ("loops", Origin(defaults={"loops": {"num_threads": 5}}), "loops -num-threads=5"),
        ("loops -num-threads=1", Origin(defaults={"loops": {"num-threads": 5}}),
         "loops -num-threads=1"),
        ("c99", Origin(defaults={"loops": {"num-threads": 5}}), "c99"),
    ],
)  # fmt: skip
def test_options_may_be_set_beside_the_target(text: str, origin: Origin, canonical: str) -> None:
    assert str(read_spec(text, KINDS, None, origin)) == canonical


@pytest.mark.parametrize(
    "text, origin, message",
    [
        ("loops -num-threads=3", OVERRIDES, "given in the target, and another value on the"),
        ("c99", OVERRIDES, "-mcpu of 'loops' is set on the command line, but 'loops' is not in"),
        ("loops", Origin(defaults={"loops": {"x": 1}}, default_setter="f.toml"), "f.toml: .*opt"),
        ("loops", Origin(defaults={"loops": {"mcpu": 1}}), "-mcpu is a string, not 1"),
    ],
)  # fmt: skip
def test_options_beside_the_target_are_checked(text: str, origin: Origin, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        read_spec(text, KINDS, None, origin)


def test_every_option_knows_who_set_it() -> None:
    origin = Origin(overrides={"loops": {"num-threads": 2}}, defaults={"loops": {"scale": 2}},
                    default_setter="f.toml")  # fmt: skip
    target = read_spec("npu -level=2, loops -mcpu=native -fast-math", KINDS, None, origin)
    assert dict(target.fallback.origins) == {
        "mcpu": "detection",
        "num-threads": "command line",
        "fast-math": "given",
        "scale": "f.toml",
    }
    assert dict(read_spec("fast", KINDS).accelerators[0].origins) == {"variant": "alias fast"}
    assert dict(target.accelerators[0].origins) == {"level": "given"}


def test_a_list_of_targets_and_a_host() -> None:
    one = parse_target("npu -level=2, gpu, loops -num-threads=2", KINDS)
    host = "loops -num-threads=2"
    for spec in (
        ["npu -level=2", "gpu", host],
        [one.accelerators[0], {"kind": "gpu"}, host],
        ("npu -level=2, gpu", {"kind": "loops", "num-threads": 2}),
    ):
        assert read_spec(spec, KINDS) == one  # type: ignore[arg-type]
    assert read_spec(["npu -level=2", "gpu"], KINDS, host) == one
    assert read_spec([], KINDS, "loops") == parse_target("loops", KINDS)
    with pytest.raises(TargetError, match="the target is empty"):
        read_spec([], KINDS)
    with pytest.raises(TargetError, match=r"target\[1\]: expected an object, not int"):
        read_spec(["npu", 3], KINDS)  # type: ignore[list-item]


BOARD, GPU = "-hardware=acme/board", "-hardware=acme/gpu"
TAGS = KindTable(
    KINDS.kinds,
    KINDS.aliases,
    {
        "acme/board": Tag(
            "acme/board", "npu -variant=n77, loops -mcpu=a72 -num-threads=4", ("wide", "wider")
        ),
        "board": Tag("acme/board", "npu -variant=n77, loops -mcpu=a72 -num-threads=4"),
        "acme/gpu": "gpu, c99",
        "acme/old": "vulcan -x=1, loops -mcpu=a72",
    },
)


@pytest.mark.parametrize(
    "text, canonical",
    [
        ("acme/board", f"npu -variant=n77 {BOARD}, loops -mcpu=a72 -num-threads=4 {BOARD}"),
        (
            "acme/board -num-threads=2 -level=2",
            f"npu -variant=n77 -level=2 {BOARD}, loops -mcpu=a72 -num-threads=2 {BOARD}",
        ),
        ("acme/board, c99", f"npu -variant=n77 {BOARD}, c99"),
        ("acme/gpu -mcpu=x", f"gpu -mcpu=x {GPU}, c99 {GPU}"),
        ("npu,acme/gpu", f"npu, gpu {GPU}, c99 {GPU}"),
        ("gpu/acme/gpu", f"gpu {GPU}, c99 {GPU}"),
        ("c99/acme/gpu", f"c99 {GPU}"),
        ("loops/acme/gpu -mcpu=x", f"loops -mcpu=x {GPU}"),
        ("loops -hardware=acme/board", f"loops -mcpu=a72 -num-threads=4 {BOARD}"),
        ("loops -hardware=acme/board -mcpu=y", f"loops -mcpu=y -num-threads=4 {BOARD}"),
        (
            "loops -hardware=acme/board -num-threads=0",
            f"loops -mcpu=a72 -num-threads=0 {BOARD}",
        ),
        ("loops -hardware=acme/gpu -keys=b,a", f"loops -keys='b,a' {GPU}"),
    ],
)
def test_a_tag_implies_targets_and_takes_options(text: str, canonical: str) -> None:
    target = parse_target(text, TAGS)
    assert str(target) == canonical
    assert parse_target(canonical, TAGS) == target
    assert parse_target(target.json_text(), TAGS) == target
    assert str(parse_target(target.json_text(), TAGS)) == canonical


def test_a_tag_is_an_origin() -> None:
    target = parse_target("acme/board -num-threads=2", TAGS)
    assert dict(target.fallback.origins) == {
        "mcpu": "tag acme/board",
        "num-threads": "given",
        "hardware": "tag acme/board",
    }
    written = parse_target("loops -hardware=acme/board", TAGS).fallback
    assert dict(written.origins)["mcpu"] == "tag acme/board"
    assert dict(written.origins)["hardware"] == "given"
    with pytest.raises(TargetError, match="column 12: target kind 'loops' has no option '-x'"):
        parse_target("acme/board -x=1", TAGS)


def test_keys_of_the_user_and_of_a_tag_are_dispatched_on_first() -> None:
    target = parse_target("loops -hardware=acme/board -keys=mine", TAGS).fallback
    assert target.keys == ("mine", "wider", "wide", "loops", "cpu")
    assert dispatch({"cpu": 1, "loops": 2, "wide": 3}, target, "a schedule") == 3
    assert dispatch({"cpu": 1, "loops": 2}, target, "a schedule") == 2
    with pytest.raises(TargetError, match="-keys: 'Mine' is not a key"):
        parse_target("loops -keys=Mine", TAGS)


def test_two_names_of_one_device_give_one_target() -> None:
    assert parse_target("board", TAGS) == parse_target("acme/board", TAGS)
    assert str(parse_target("loops -hardware=board", TAGS).fallback).endswith(BOARD)


def test_hardware_of_a_backend_that_is_not_there_says_which() -> None:
    with pytest.raises(TargetError, match="'acme/old' is driven by the backend 'vulcan', which no"):
        parse_target("acme/old", TAGS)
    assert str(parse_target("loops -hardware=acme/old", TAGS)) == (
        "loops -mcpu=a72 -hardware=acme/old"
    )
    with pytest.raises(TargetError, match="-hardware: no hardware is called 'acme/new'"):
        parse_target("loops -hardware=acme/new", TAGS)
    with pytest.raises(TargetError, match="-hardware: no hardware is called 'new'"):
        parse_target("loops/new", TAGS)


@dataclass(frozen=True, kw_only=True)
class Ageing:
    old: int = option(0, doc="d", deprecated="use -new")
    new: int = option(0, doc="d")


def test_a_deprecated_option_warns_when_it_is_set() -> None:
    kinds = KindTable.of(TargetKind("k", Role.BACKEND, Ageing))
    with pytest.warns(FutureWarning, match="-old of target kind 'k' is deprecated: use -new"):
        assert str(parse_target("k -old=1", kinds)) == "k -old=1"
    parse_target("k -new=1", kinds)  # warnings are errors where nobody expects them
