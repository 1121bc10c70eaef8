# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from intarsia.artifact.machine import detect_machine
from intarsia.runtime.cpu import confirmed_features, granted_features, this_machine


def test_what_the_processor_denies_is_not_there() -> None:
    kernel = frozenset({"sse4_2", "avx2", "avx512f", "avx512_vnni", "fma", "bmi1", "smep"})
    nehalem = {"SSE42": True, "AVX2": False, "AVX512F": False, "AVX512VNNI": False, "FMA3": False}
    assert confirmed_features(kernel, nehalem) == {"sse4_2", "bmi1", "smep"}
    assert confirmed_features(kernel, {}) == kernel


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
