# SPDX-License-Identifier: Apache-2.0
"""Features of processors from their names, without a backend."""

from __future__ import annotations

import pytest

from intarsia.target.features import features, target_features
from intarsia.target.kinds import make_target

from .target_kinds import KINDS

X86 = "x86_64-unknown-linux-gnu"
ARM = "aarch64-unknown-linux-gnu"
M4 = "thumbv7em-none-eabihf"
M55 = "thumbv8.1m.main-none-eabihf"


@pytest.mark.parametrize(
    "triple, cpu, attributes, has, lacks",
    [
        (X86, "x86-64", (), "is_x86_64", "has_sse42 has_avx"),
        (X86, "haswell", (), "has_avx2 has_fma has_f16c", "has_avx512 has_avx_vnni"),
        (X86, "skylake-avx512", (), "has_avx512 has_avx2", "has_avx512_vnni"),
        (X86, "znver4", (), "has_avx512_vnni has_avx512_bf16", "has_amx_int8 has_avx512_fp16"),
        (X86, "sapphirerapids", (), "has_amx_int8 has_amx_bf16 has_avx512_fp16", "has_sve"),
        (X86, "skylake-avx512", ("-avx512f",), "has_avx2", "has_avx512"),
        (X86, "skylake-avx512", ("-avx",), "has_sse42", "has_avx2 has_fma has_avx512"),
        (X86, "unheard-of", ("+avx512vnni",), "has_avx2 has_avx512_vnni", "has_avx512"),
        (X86, "haswell", ("+avx2", "-avx2", "odd"), "has_avx", "has_avx2"),
        (ARM, "cortex-a72", (), "is_aarch64 has_asimd", "has_dotprod has_fp16_simd"),
        (ARM, "cortex-a76", (), "has_dotprod has_fp16_simd", "has_sve has_matmul_i8"),
        (ARM, "neoverse-v1", (), "has_sve has_matmul_i8 has_bf16", "has_sve2 has_sme"),
        (ARM, "neoverse-v2", ("-sve",), "has_matmul_i8", "has_sve has_sve2"),
        ("arm64-apple-darwin", "apple-m4", (), "has_sme has_asimd", "has_sve"),
        (ARM, "unheard-of", ("+sve2",), "has_asimd has_sve has_sve2", "has_sme"),
        (M4, "cortex-m4", (), "is_cortex_m has_dsp has_fpu", "has_mve has_fp64"),
        (M4, "cortex-m4", ("-vfp4d16sp",), "has_dsp", "has_fpu"),
        (M4, "cortex-m7", ("-fp64",), "has_dsp has_fpu", "has_fp64"),
        (M55, "cortex-m55", (), "has_dsp has_mve has_mve_fp", "is_aarch64"),
        (M55, "cortex-m55+nomve", (), "has_dsp has_fpu", "has_mve has_mve_fp"),
        (M55, "cortex-m55+nodsp", (), "has_fpu", "has_dsp has_mve has_mve_fp"),
        ("thumbv6m-none-eabi", "cortex-m0", (), "is_cortex_m", "has_dsp has_fpu"),
        ("armv7-unknown-linux-gnueabihf", "cortex-a7", (), "", "has_asimd is_aarch64"),
    ],
)
def test_what_a_processor_has(triple, cpu, attributes, has, lacks):
    names = features(triple, cpu, attributes).names()
    assert set(has.split()) <= set(names)
    assert not set(lacks.split()) & set(names)


def test_an_unknown_feature_is_a_mistake_of_the_asker():
    with pytest.raises(AttributeError):
        features(X86, "haswell").has_avx3  # noqa: B018


def test_features_of_a_target():
    target = make_target(KINDS.kind("loops"), {"mcpu": "cortex-m4", "mattr": ("-dsp",)})
    found = target_features(target)
    assert found.has_fpu
    assert not found.has_dsp
