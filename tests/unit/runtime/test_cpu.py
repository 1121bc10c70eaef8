# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from intarsia_runtime.artifact.machine import Machine, detect_machine
from intarsia_runtime.cpu import (
    confirmed_features,
    glibc_features,
    granted_features,
    machine_features,
    numpy_features,
    this_machine,
)
from intarsia_runtime.hwcap import AT_HWCAP, AT_HWCAP2, hwcap_features, with_implied


def test_what_the_processor_denies_is_not_there() -> None:
    kernel = frozenset({"sse4_2", "avx2", "avx512f", "avx512_vnni", "fma", "bmi1", "smep"})
    nehalem = {"sse4_2": True, "avx2": False, "avx512f": False, "avx512_vnni": False, "fma": False}
    assert confirmed_features(kernel, nehalem) == {"sse4_2", "bmi1", "smep"}
    assert confirmed_features(kernel, {}) == kernel


def test_glibc_and_numpy_agree_about_the_processor() -> None:
    processor = glibc_features()
    if processor is None:
        pytest.skip("only glibc of x86 keeps what CPUID said")
    asked = numpy_features(processor)
    assert asked
    assert {name: processor[name] for name in asked} == asked


def test_numpy_that_says_nothing_denies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy._core._multiarray_umath as umath  # where NumPy keeps it

    assert numpy_features(["no_such_feature"]) == {}
    monkeypatch.delattr(umath, "__cpu_features__")
    assert numpy_features(["avx2"]) == {}


def test_a_libc_without_cpuid_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intarsia_runtime.cpu.ctypes.CDLL", lambda name: object())
    assert glibc_features() is None


def test_a_real_machine_is_believed() -> None:
    machine, kernel = this_machine(), detect_machine()
    assert (machine.os, machine.arch) == (kernel.os, kernel.arch)
    if kernel.cpu_features is not None:
        assert machine.cpu_features is not None
        assert machine.cpu_features <= kernel.cpu_features


def test_a_matrix_unit_is_asked_for_and_may_be_refused():
    features = frozenset({"avx2", "amx_tile", "amx_int8"})
    assert granted_features(features, lambda: True) == features
    assert granted_features(features, lambda: False) == {"avx2"}
    assert granted_features(frozenset({"avx2"}), lambda: pytest.fail("asked")) == {"avx2"}


def vector(hwcap: int, hwcap2: int = 0) -> dict[int, int]:
    return {AT_HWCAP: hwcap, AT_HWCAP2: hwcap2}


@pytest.mark.parametrize(
    ("arch", "words", "features"),
    [
        ("aarch64", vector(0b11 | 1 << 8 | 1 << 22, 2), {"fp", "asimd", "atomics", "sve", "sve2"}),
        ("arm", vector(1 << 12 | 1 << 16, 1 << 4), {"neon", "vfpv4", "crc32"}),
        ("riscv64", vector(1 << 0 | 1 << 12 | 1 << 21), {"a", "m", "v"}),
    ],
)  # fmt: skip
def test_the_auxiliary_vector_names_features(
    arch: str, words: dict[int, int], features: set[str]
) -> None:
    assert hwcap_features(arch, words.__getitem__) == features


def test_a_vector_that_names_nothing_is_none() -> None:
    assert hwcap_features("x86_64", vector(1).__getitem__) is None
    assert hwcap_features("aarch64", vector(0).__getitem__) is None


def test_the_vector_is_believed_over_the_list_of_an_emulators_host() -> None:
    shown = Machine("linux", "aarch64", frozenset({"fp", "asimd", "sve", "new"}))
    assert machine_features(shown, frozenset({"fp", "asimd"})) == {"fp", "asimd", "new"}
    assert machine_features(shown, None) == shown.cpu_features
    nothing = Machine("linux", "aarch64", None)
    assert machine_features(nothing, frozenset({"fp"})) == {"fp"}
    assert machine_features(nothing, None) is None


def test_an_extension_has_what_it_includes() -> None:
    assert with_implied("riscv64", frozenset({"v"})) >= {"zve64d", "zve32f", "zve32x"}
    assert with_implied("aarch64", frozenset({"v"})) == {"v"}
