# SPDX-License-Identifier: Apache-2.0
"""How fast target strings are read, and how quick the help of composed commands is."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import pytest

from intarsia.host.host import Host
from intarsia.target.parse import parse_target

STRINGS = 10_000
MICROSECONDS = 500.0
"""Budget of one composite string, on a slow machine."""

pytestmark = pytest.mark.bench


def test_ten_thousand_composites(capsys: pytest.CaptureFixture[str]) -> None:
    host = Host()
    texts = [
        f"dnnl -num-threads={n % 8}, "
        f"llvm -mcpu=skylake-avx512 -mattr=+avx512f,+fma -num-threads={n % 9}"
        for n in range(STRINGS)
    ]  # fmt: skip
    parse_target(texts[0], host)
    start = time.perf_counter()
    for text in texts:
        parse_target(text, host)
    each = 1e6 * (time.perf_counter() - start) / STRINGS
    with capsys.disabled():
        print(f"\n{STRINGS} composite strings: {each:.0f} µs each")
    assert each < MICROSECONDS


def test_help_is_quick(capsys: pytest.CaptureFixture[str]) -> None:
    def seconds(*words: str) -> float:
        times: list[float] = []
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run([sys.executable, *words], check=True, capture_output=True)
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    bare = seconds("-c", "import click")
    with capsys.disabled():
        for command in (("compile", "--help"), ("compile", "--help-all"), ("targets", "list")):
            extra = 1e3 * (seconds("-m", "intarsia", *command) - bare)
            print(f"\nintarsia {' '.join(command)}: {extra:.0f} ms more than click alone")
            assert extra < 1000, "also on a machine with other work to do"
