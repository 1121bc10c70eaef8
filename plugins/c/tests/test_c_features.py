# SPDX-License-Identifier: Apache-2.0
"""CPU features that a compiler's flags allow, as the Linux kernel names them."""

from __future__ import annotations

import shutil

import pytest

from intarsia.plugin import Target
from intarsia_c import plugin
from intarsia_c.features import aarch64_features, named_features, read_macros
from intarsia_c.target import COptions
from intarsia_c.toolchain import needed_features

CROSS = "aarch64-linux-gnu-gcc"


@pytest.mark.skipif(shutil.which(CROSS) is None, reason=f"no {CROSS} to ask")
@pytest.mark.parametrize(
    ("flag", "needed", "not_needed"),
    [
        ("-march=armv8-a", set[str](), {"atomics", "asimddp"}),
        ("-mcpu=cortex-a76", {"atomics", "asimddp", "asimdrdm", "fphp", "lrcpc"}, {"sve"}),
        ("-mcpu=neoverse-v1", {"sve", "i8mm", "bf16", "ilrcpc", "uscat", "fcma"}, {"sve2"}),
        ("-mcpu=neoverse-n2", {"sve2", "sve", "flagm2", "frint", "lrcpc"}, set[str]()),
    ],
)
def test_flags_of_aarch64_name_features(flag: str, needed: set[str], not_needed: set[str]) -> None:
    found = set(needed_features(COptions(cc=CROSS, cflags=(flag,))))
    assert needed <= found
    assert not not_needed & found


def machine_of(**options: object) -> object:
    (kind,) = plugin.register_target_kind()
    return plugin.machine(Target(kind, COptions(**options)))  # pyright: ignore[reportArgumentType]


def test_the_machine_of_code_has_what_flags_allow() -> None:
    made = plugin.machine(Target(plugin.register_target_kind()[0], COptions()))
    assert made is not None
    assert made.cpu_features == frozenset(needed_features(COptions()))


def test_code_for_nobody_here_has_no_machine() -> None:
    assert machine_of(freestanding=True) is None
    assert machine_of(mtriple="thumbv7em-none-eabi") is None
    assert machine_of(cc="no-such-compiler") is None


def test_macros_of_risc_v_are_its_extensions() -> None:
    macros = read_macros(
        "#define __riscv 1\n#define __riscv_xlen 64\n#define __riscv_i 2001000\n"
        "#define __riscv_m 2000000\n#define __riscv_v 1000000\n#define __riscv_v_min_vlen 128\n"
        "#define __riscv_zba 1000000\n#define __riscv_zicsr 2000000\n"
        "#define __riscv_zve32x 1000000\n"
    )
    assert named_features(macros) == ("m", "v", "zba")


def test_macros_of_32_bit_arm() -> None:
    macros = read_macros("#define __arm__ 1\n#define __ARM_NEON 1\n#define __ARM_FEATURE_FMA 1\n")
    assert set(named_features(macros)) == {"neon", "vfpv4"}


def test_a_version_of_the_architecture_names_what_has_no_macro() -> None:
    assert aarch64_features({}, "\t.arch armv8.2-a+crc+rcpc\n") == ("lrcpc",)
    assert aarch64_features({}, "\t.arch armv8-a\n") == ()
    assert {"lrcpc", "uscat", "frint"} <= {*aarch64_features({}, "\t.arch armv9-a+crc\n")}
    assert aarch64_features({}, "no such line") == ()
