# SPDX-License-Identifier: Apache-2.0
"""Kernels of a module as the functions of one source text of the C family, a function a launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.intrinsic import Intrinsic, IntrinsicRule
from intarsia_ir.tir.passes.simplify import simplify
from intarsia_runtime.size import Dim

from ..codegen.c_functions import Functions
from ..codegen.c_source import expand_intrinsics, kernel_name, print_kernel
from ..codegen.spelling import Spelling
from .launches import KernelLaunch, split_launches
from .traits import GridTraits

_FAR = 1 << 30
"""Elements up to which 32 bits count positions."""


class LaunchSource(Struct, frozen=True, eq=False):
    """The launches of a module.

    Attributes:
        text: The small functions that they call, then the launches.
        launches: Kernel of the loop IR to its launches, in order.
    """

    text: str
    launches: Mapping[str, tuple[KernelLaunch, ...]]

    @property
    def kernels(self) -> tuple[tuple[str, KernelLaunch], ...]:
        """Every function that is started, by its name."""
        return tuple(
            (kernel_name(launch.function), launch)
            for launches in self.launches.values()
            for launch in launches
        )


class LaunchLanguage(Struct, frozen=True):
    """A language for launches.

    Attributes:
        spelling: ``spelling(wide)``: its names; ``wide`` if positions take 64 bits.
        head: ``head(launch)``: what stands in front of the function of a launch.
        functions: Small functions for which it has instructions, by the printer's names.
    """

    spelling: Callable[[bool], Spelling]
    head: Callable[[KernelLaunch], str]
    functions: Mapping[str, str]


def print_launches(
    functions: Sequence[PrimFunc],
    language: LaunchLanguage,
    traits: GridTraits,
    rules: Mapping[Intrinsic, IntrinsicRule],
) -> LaunchSource:
    """Cut kernels into launches and write each as a function.

    Args:
        functions: The kernels.
        language: What to write.
        traits: Of the device.
        rules: Of machine functions that are expressed in others.

    Raises:
        UnsupportedError: A kernel uses an operation that the language has not, or asks for blocks
            that the device has not.
    """
    simple = [simplify(expand_intrinsics(simplify(f), rules)) for f in functions]
    launches = {f.name: split_launches(f, traits) for f in simple}
    every = [launch for found in launches.values() for launch in found]
    words = language.spelling(not all(_near(launch) for launch in every))
    small = Functions(words, dict(language.functions))
    kernels: list[str] = []
    for launch in every:
        own = Functions(replace(words, kernel=language.head(launch)), small.texts)
        kernels.append(print_kernel(launch.function, own))
    called = "\n".join([*small.texts.values(), *kernels])
    used = [t for name, t in small.texts.items() if called.count(f"{name}(") > 1]
    return LaunchSource("\n".join([*used, *kernels]), launches)


def _near(launch: KernelLaunch) -> bool:
    """Whether 32 bits count every element and every thread; who knows of open sizes."""
    elements = [buffer.elements for buffer in launch.function.params]
    x, y, z, *_ = launch.dims
    counted = [x * y * z * launch.threads, *elements]
    return all(not isinstance(count, Dim) and count < _FAR for count in counted)
