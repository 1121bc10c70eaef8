# SPDX-License-Identifier: Apache-2.0
"""Asks the processor itself what it can do, besides the kernel.

A user-mode emulator shows programs the ``/proc/cpuinfo`` of the machine it runs on, and then
refuses the instructions listed there. NumPy asks the (emulated) processor when it is imported.
And Linux lends the registers of a matrix unit to processes that ask for them.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import cast

from msgspec.structs import replace

from .artifact.machine import Machine, detect_machine
from .hwcap import hwcap_features, known_names, with_implied

_NUMPY_NAMES = MappingProxyType({"fma": "fma3", "bmi1": "bmi", "abm": "lzcnt", "pni": "sse3"})


@cache
def this_machine() -> Machine:
    """Describe this machine; its features are those that kernel and processor agree on.

    Asks for the matrix unit, if there is one: whoever wants to know will use it.
    """
    machine = detect_machine()
    found = machine_features(machine, hwcap_features(machine.arch))
    if found is None:
        return machine
    features = confirmed_features(found, _processor_features())
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
        processor: Features as NumPy names them, and whether they are there; what is not among them
            is believed.
    """
    denied = {name.lower() for name, there in processor.items() if not there}
    return frozenset(name for name in kernel if _numpy_name(name) not in denied)


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


def _numpy_name(name: str) -> str:
    return _NUMPY_NAMES.get(name, name.replace("_", ""))


def _processor_features() -> Mapping[str, bool]:
    """Return what NumPy found; nothing if it no longer says, and then the kernel is believed."""
    try:
        umath = importlib.import_module("numpy._core._multiarray_umath")
    except ImportError:
        return {}
    features: object = vars(umath).get("__cpu_features__")
    return cast("Mapping[str, bool]", features) if isinstance(features, dict) else {}
