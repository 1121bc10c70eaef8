# SPDX-License-Identifier: Apache-2.0
"""The text of all kernels: one source, for NVRTC and for a C++ compiler alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

from intarsia.codegen.c_functions import Functions
from intarsia.codegen.c_source import expand_intrinsics, kernel_name, print_kernel
from intarsia.tir.func import PrimFunc
from intarsia.tir.passes.simplify import simplify

from .intrinsics import RULES
from .launches import Launch, split_launches
from .spelling import spelling
from .target import CudaOptions

HEADER = "intarsia_device.h"
"""What the source includes: ``include/device.h`` for a GPU, ``include/emulate.h`` for a CPU."""

_FAR = 1 << 30
"""Elements up to which 32 bits count positions."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """The kernels of a module.

    Attributes:
        text: CUDA C++.
        launches: Kernel of the loop IR to its launches, in order.
    """

    text: str
    launches: Mapping[str, tuple[Launch, ...]]

    @property
    def kernels(self) -> tuple[tuple[str, Launch], ...]:
        """Every ``__global__`` function by its name."""
        return tuple(
            (kernel_name(launch.function), launch)
            for launches in self.launches.values()
            for launch in launches
        )


def print_source(functions: Sequence[PrimFunc], options: CudaOptions) -> Source:
    """Write kernels as CUDA C++.

    Raises:
        UnsupportedError: A kernel uses an operation that CUDA has not.
    """
    simple = [simplify(expand_intrinsics(simplify(f), RULES)) for f in functions]
    launches = {f.name: split_launches(f, options) for f in simple}
    every = [launch for found in launches.values() for launch in found]
    index = "int32_t" if all(_near(launch) for launch in every) else "int64_t"
    words = spelling(index=index)
    small = Functions(words)
    kernels: list[str] = []
    for launch in every:
        head = f"{words.kernel} __launch_bounds__({launch.threads})"
        own = Functions(replace(words, kernel=head), small.texts)
        kernels.append(print_kernel(launch.function, own))
    text = "\n".join([f'#include "{HEADER}"\n', *small.texts.values(), *kernels])
    return Source(text, launches)


def _near(launch: Launch) -> bool:
    """Whether 32 bits count every element and every thread."""
    elements = [buffer.elements for buffer in launch.function.params]
    x, y, z, *_ = launch.dims
    return max([x * y * z * launch.threads, *elements]) < _FAR


def device_header() -> str:
    """Return the header for a GPU."""
    return _header("device.h")


def emulation_header() -> str:
    """Return the header for a CPU."""
    return _header("emulate.h")


def _header(name: str) -> str:
    return files("intarsia_cuda").joinpath("include", name).read_text(encoding="utf-8")
