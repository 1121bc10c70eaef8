# SPDX-License-Identifier: Apache-2.0
"""Asks the processor itself what it can do, besides the kernel.

A user-mode emulator shows programs the ``/proc/cpuinfo`` of the machine it runs on, and then
refuses the instructions listed there. The dynamic linker of glibc executes CPUID when a process
starts and keeps the answers (``sys/platform/x86.h``, since glibc 2.33); elsewhere NumPy does so
when it is imported. And Linux lends the registers of a matrix unit to processes that ask for them.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import cast

from msgspec.structs import replace

from .artifact.machine import Machine, detect_machine
from .hwcap import hwcap_features, known_names, with_implied

_NUMPY_NAMES = MappingProxyType({"fma": "fma3", "bmi1": "bmi", "abm": "lzcnt", "pni": "sse3"})

_CPUID = (
    (0, 2, "pni:0 ssse3:9 fma:12 sse4_1:19 sse4_2:20 movbe:22 popcnt:23 avx:28 f16c:29"),
    (1, 1, "bmi1:3 avx2:5 bmi2:8 avx512f:16 avx512dq:17 avx512ifma:21 avx512cd:28 avx512bw:30"),
    (1, 1, "avx512vl:31"),
    (1, 2, "avx512vbmi:1 avx512_vbmi2:6 avx512_vnni:11 avx512_bitalg:12 avx512_vpopcntdq:14"),
    (1, 3, "amx_bf16:22 avx512_fp16:23 amx_tile:24 amx_int8:25"),
    (2, 2, "abm:5"),
    (6, 0, "avx_vnni:4 avx512_bf16:5"),
)
"""glibc's index of a CPUID leaf (1, 7, 0x80000001, 7.1), register (EAX is 0), ``feature:bit``."""


@cache
def this_machine() -> Machine:
    """Describe this machine; its features are those that kernel and processor agree on.

    Asks for the matrix unit, if there is one: whoever wants to know will use it.
    """
    machine = detect_machine()
    found = machine_features(machine, hwcap_features(machine.arch))
    if found is None:
        return machine
    processor = glibc_features()
    features = confirmed_features(found, numpy_features(found) if processor is None else processor)
    return replace(machine, cpu_features=granted_features(features, _ask_for_tiles))


def machine_features(machine: Machine, hwcap: frozenset[str] | None) -> frozenset[str] | None:
    """Return what list and auxiliary vector say together; ``None`` if neither says anything.

    The vector is believed where both could name a feature: an emulator shows the list of another
    machine.

    Args:
        machine: As the kernel's list of processors describes it.
        hwcap: What the auxiliary vector names.
    """
    if hwcap is None:
        return machine.cpu_features
    listed = (machine.cpu_features or frozenset[str]()) - known_names(machine.arch)
    return with_implied(machine.arch, listed | hwcap)


def confirmed_features(kernel: frozenset[str], processor: Mapping[str, bool]) -> frozenset[str]:
    """Return the features without those that the processor denies.

    Args:
        kernel: Features as the Linux kernel names them.
        processor: The same names, and whether the feature is there; what is not among them is
            believed.
    """
    return frozenset(name for name in kernel if processor.get(name, True))


def granted_features(features: frozenset[str], ask: Callable[[], bool]) -> frozenset[str]:
    """Return the features without the matrix unit if the kernel does not lend it.

    Args:
        features: Features as the Linux kernel names them.
        ask: Asks the kernel for the registers of the unit; it is called if there is one.
    """
    if "amx_tile" not in features or ask():
        return features
    return frozenset(name for name in features if not name.startswith("amx_"))


def _ask_for_tiles() -> bool:
    """Ask for AMX (Linux: ``Documentation/arch/x86/xstate.rst``); all threads may use it then."""
    arch_prctl, request, tile_data = 158, 0x1023, 18
    return ctypes.CDLL(None).syscall(arch_prctl, request, tile_data) == 0


def glibc_features() -> Mapping[str, bool] | None:
    """Return what CPUID said when this process started; ``None`` if no glibc of x86 keeps it."""
    try:
        leaf_of = ctypes.CDLL(None).__x86_get_cpuid_feature_leaf
    except (OSError, AttributeError, TypeError):  # no such function on this system
        return None
    leaf_of.restype, leaf_of.argtypes = ctypes.POINTER(ctypes.c_uint32 * 4), (ctypes.c_uint,)
    found: dict[str, bool] = {}
    for leaf, register, row in _CPUID:
        word = int(leaf_of(leaf).contents[register])
        for name, _, bit in (feature.partition(":") for feature in row.split()):
            found[name] = bool(word >> int(bit) & 1)
    return found


def numpy_features(names: Iterable[str]) -> Mapping[str, bool]:
    """Return what NumPy found of the features, by the kernel's names; nothing if it does not say.

    Args:
        names: Features as the Linux kernel names them.
    """
    try:
        umath = importlib.import_module("numpy._core._multiarray_umath")
    except ImportError:
        return {}
    features: object = vars(umath).get("__cpu_features__")
    if not isinstance(features, dict):
        return {}
    table = cast("dict[object, object]", features)
    found = {str(name).lower(): bool(there) for name, there in table.items()}
    short = {name: _NUMPY_NAMES.get(name, name.replace("_", "")) for name in names}
    return {name: found[numpy] for name, numpy in short.items() if numpy in found}
