# SPDX-License-Identifier: Apache-2.0
"""What ``-march`` and ``-mcpu`` mean for the compiler."""

from __future__ import annotations

import pytest

from intarsia.plugin import TargetError
from intarsia_c import target
from intarsia_c.target import COptions, canonicalize
from intarsia_c.toolchain import processor_flags


@pytest.fixture
def machine(monkeypatch, request):
    """Another machine than this one."""
    monkeypatch.setattr(target, "this_machine", lambda: request.param)
    monkeypatch.setattr("intarsia_c.toolchain.this_machine", lambda: request.param)


@pytest.mark.parametrize(
    ("machine", "options", "flags"),
    [
        ("x86_64", COptions(march="x86-64-v3"), ("-march=x86-64-v3",)),
        ("x86_64", COptions(mcpu="haswell"), ("-march=haswell",)),
        ("aarch64", COptions(march="armv8.2-a", mcpu="cortex-a76"),
         ("-march=armv8.2-a", "-mcpu=cortex-a76")),
        ("x86_64", COptions(), ()),
    ],
    indirect=["machine"],
)  # fmt: skip
def test_flags_of_the_processor(machine, options, flags):
    assert processor_flags(canonicalize(options)) == flags


@pytest.mark.parametrize("machine", ["x86_64"], indirect=True)
def test_two_instruction_sets_are_refused(machine):
    with pytest.raises(TargetError, match="-march: x86-64 compilers read -mcpu as -march"):
        canonicalize(COptions(march="x86-64-v3", mcpu="haswell"))


@pytest.mark.parametrize(
    ("march", "small", "vectors"),
    [
        ("armv6-m", True, False),
        ("armv6s-m", True, False),
        ("armv7-m", True, False),
        ("armv7e-m", True, False),
        ("armv8-m.main", True, False),
        ("armv8.1-m.main+mve", True, True),
        ("armv7-a", False, False),
        ("armv8.1-a", False, False),
        ("x86-64-v3", False, False),
    ],
)
def test_the_m_profile_is_sources(march, small, vectors):
    options = COptions(march=march)
    assert (options.is_microcontroller, options.has_mve) == (small, vectors)
    assert options.sources_only is small
