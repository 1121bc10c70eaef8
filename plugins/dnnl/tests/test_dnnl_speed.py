# SPDX-License-Identifier: Apache-2.0
"""How fast the library is beside the fallback's code, by what both may use."""

from __future__ import annotations

from pathlib import Path

import pytest

from intarsia_dnnl import profitable, speed
from intarsia_dnnl.profitable import Strengths, keep_profitable
from intarsia_dnnl.speed import EVEN, lead, part_of_limits
from intarsia_dnnl.target import DnnlOptions
from intarsia_testkit.expressions import apply, function_of, var, weight

from .regions import region_of

SSE2 = frozenset({"pni"})
SSE41 = SSE2 | {"sse4_1"}
AVX2 = SSE41 | {"avx2", "fma"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512_vnni", "avx512_bf16"}
INTEL = "vendor_id\t: GenuineIntel\ncpu family\t: 6\n"
ZEN4, ZEN5 = (f"vendor_id\t: AuthenticAMD\ncpu family\t: {family}\n" for family in (25, 26))


def lead_of(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cpuinfo: str,
    ours: frozenset[str],
    theirs: frozenset[str] | None,
    options: DnnlOptions | None = None,
    *,
    bytewise: bool = False,
    both_narrow: bool = False,
) -> float:
    """Ask as on a processor with a list of the kernel's and features that the library may use."""
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    monkeypatch.setattr(speed, "usable_features", lambda: ours)
    chosen = options or DnnlOptions()
    cpuinfo_file = tmp_path / "cpuinfo"
    return lead(theirs, chosen, bytewise=bytewise, both_narrow=both_narrow, cpuinfo=cpuinfo_file)


@pytest.mark.parametrize(
    ("cpuinfo", "ours", "theirs", "found"),
    [
        (INTEL, AVX512, AVX512, 0.95),
        (INTEL, AVX512, AVX2, 1.9),  # with two units for 512 bits
        (INTEL, AVX512, SSE41, 5.85),
        (INTEL, AVX2, AVX2, 0.9),
        (INTEL, AVX2, AVX512, 0.45),  # a limit that the user sets for the library alone
        (INTEL, SSE41, SSE41, 1.03),
        (ZEN4, AVX512, AVX512, 0.95),
        (ZEN4, AVX512, AVX2, 0.95),  # which does 512 bits in halves
        (ZEN4, AVX512, SSE41, 2.92),
        (ZEN4, AVX512, SSE2, 3.8),
        (ZEN4, AVX2, SSE2, 3.6),
        (ZEN5, AVX512, AVX2, 1.9),
        ("", AVX512, AVX512, 0.95),
        (ZEN4, frozenset({"asimd"}), frozenset({"asimd"}), 1.06),  # never measured
    ],
)
def test_both_are_as_fast_as_their_instructions(
    tmp_path, monkeypatch, cpuinfo, ours, theirs, found
):
    made = lead_of(tmp_path, monkeypatch, cpuinfo, ours, theirs)
    assert made == pytest.approx(found, abs=0.01)


def test_a_fallback_that_says_nothing_uses_all_of_this_processor(tmp_path, monkeypatch):
    monkeypatch.setattr(speed, "this_machine", lambda: type("M", (), {"cpu_features": AVX2})())
    assert lead_of(tmp_path, monkeypatch, INTEL, AVX512, None) == pytest.approx(1.9)


def test_bytes_gain_where_the_fallback_adds_them_in_16_bits(tmp_path, monkeypatch):
    asked = (tmp_path, monkeypatch, ZEN4, AVX512)
    assert lead_of(*asked, AVX512, bytewise=True) == pytest.approx(0.95)
    assert lead_of(*asked, AVX2, bytewise=True) == pytest.approx(1.9)


def test_bfloat16_gains_where_the_library_multiplies_it(tmp_path, monkeypatch):
    narrow = DnnlOptions(fpmath_mode="bf16")
    wide = AVX512 - {"avx512_bf16"}
    asked = (tmp_path, monkeypatch, ZEN4)
    assert lead_of(*asked, AVX512, AVX512, narrow) == pytest.approx(1.8, abs=0.01)
    assert lead_of(*asked, wide, AVX512, narrow) == pytest.approx(0.95)


def test_bfloat16_gains_nothing_where_both_multiply_it(tmp_path, monkeypatch):
    asked = (tmp_path, monkeypatch, INTEL, AVX512)
    narrow = DnnlOptions(fpmath_mode="bf16")
    assert lead_of(*asked, AVX512, narrow, both_narrow=True) == pytest.approx(0.95)
    wide = AVX512 - {"avx512_bf16"}  # of a fallback that has to widen what it multiplies
    assert lead_of(*asked, wide, narrow, both_narrow=True) == pytest.approx(1.8, abs=0.01)


def test_limits_fall_with_the_lead():
    assert [part_of_limits(found) for found in (0.9, 1.0, EVEN)] == [1.0] * 3
    assert part_of_limits(1.12) == pytest.approx(0.5)
    assert part_of_limits(4.0) == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("faster", "least", "kept"),
    [(0.9, 2, False), (0.9, 0, True), (1.01, 2, False), (1.03, 2, True)],
)
def test_regions_that_gain_too_little_stay_with_the_fallback(monkeypatch, faster, least, kept):
    monkeypatch.setattr(profitable, "lead", lambda *_, **__: faster)
    region = region_of(function_of(apply("matmul", var("x", 64, 64), weight(64, 64))))
    left = keep_profitable(region, DnnlOptions(min_gain=least), Strengths())
    assert left == region if kept else f"{faster:.2f} times as fast" in left.why
