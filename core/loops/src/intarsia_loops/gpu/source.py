# SPDX-License-Identifier: Apache-2.0
"""Kernels of a module as the functions of one source text of the C family, a function a launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.tir.expr import IntImm
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.intrinsic import Intrinsic, IntrinsicRule
from intarsia_ir.tir.passes.simplify import simplify
from intarsia_ir.tir.walk import expr_nodes, statements
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
        most_elements: No tensor of open sizes may have more when the launches run; 0 for no limit.
    """

    text: str
    launches: Mapping[str, tuple[KernelLaunch, ...]]
    most_elements: int = 0

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
        pool: Bytes that the arrays of a block lie in where they are too large to declare.
    """

    spelling: Callable[[bool], Spelling]
    head: Callable[[KernelLaunch], str]
    functions: Mapping[str, str]
    pool: str = ""


def print_launches(
    functions: Sequence[PrimFunc],
    language: LaunchLanguage,
    traits: GridTraits,
    rules: Mapping[Intrinsic, IntrinsicRule],
    *,
    wide: bool = False,
) -> LaunchSource:
    """Cut kernels into launches and write each as a function.

    Args:
        functions: The kernels.
        language: What to write.
        traits: Of the device.
        rules: Of machine functions that are expressed in others.
        wide: Whether positions in tensors of open sizes take 64 bits; 32 suffice for most.

    Raises:
        UnsupportedError: A kernel uses an operation that the language has not, or asks for blocks
            that the device has not.
    """
    simple = [simplify(expand_intrinsics(simplify(f), rules)) for f in functions]
    launches = {f.name: split_launches(f, traits) for f in simple}
    every = [launch for found in launches.values() for launch in found]
    is_open = any(launch.function.sizes or _is_open(launch) for launch in every)
    near = all(_near(launch) for launch in every) and not (is_open and wide)
    words = language.spelling(not near)
    small = Functions(words, dict(language.functions))
    kernels: list[str] = []
    for launch in every:
        pool = language.pool if launch.pooled_bytes else ""
        own = Functions(replace(words, kernel=language.head(launch), pool=pool), small.texts)
        kernels.append(print_kernel(launch.function, own))
    called = "\n".join([*small.texts.values(), *kernels])
    used = [t for name, t in small.texts.items() if called.count(f"{name}(") > 1]
    most = _FAR if near and is_open else 0
    return LaunchSource("\n".join([*used, *kernels]), launches, most)


def _is_open(launch: KernelLaunch) -> bool:
    """Whether a launch works on a tensor of an open size."""
    return any(isinstance(buffer.elements, Dim) for buffer in launch.function.params)


def _near(launch: KernelLaunch) -> bool:
    """Whether 32 bits count every element and every thread; of open sizes the host does.

    Sizes may be computed with numbers that are larger: a slice ends at ``min(N, 2**63 - 1)``.
    """
    elements = [buffer.elements for buffer in launch.function.params]
    x, y, z, *_ = launch.dims
    counted = [x * y * z * launch.threads, *elements]
    if any(not isinstance(count, Dim) and count >= _FAR for count in counted):
        return False
    nodes = expr_nodes(statements(launch.function.body)) if launch.function.sizes else ()
    return all(abs(node.value) < _FAR for node in nodes if isinstance(node, IntImm))
