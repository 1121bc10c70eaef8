# SPDX-License-Identifier: Apache-2.0
"""Stores the weights of a region as the library wants them, if it is there when compiling.

The primitives are made as the loader will make them, and what it would have reordered is kept.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from intarsia.plugin.accelerator import PluginError, UnsupportedError
from intarsia_runtime.plugin import available_threads

from .assembly import Assembly, MemoryTensor
from .names import BYTES
from .packed import PackedWeight
from .primitives import build_node
from .program import PrimitiveProgram
from .sdk import Dnnl
from .specialize import without_empty

SMALLEST = 4096
"""Bytes of a constant below which it is not worth a description of its layout."""


def pack_weights(
    program: PrimitiveProgram, constants: Mapping[str, np.ndarray]
) -> tuple[PrimitiveProgram, dict[str, np.ndarray]]:
    """Return the program and its constants, large ones as its products read them.

    They come back as they are where there is no library, or it has no kernel for a node.
    """
    if program.fpmath_mode != "strict":
        return program, dict(constants)  # products may read them in bfloat16
    try:
        dnnl = Dnnl(program.library)
    except PluginError:
        return program, dict(constants)
    try:
        dnnl.set_threads(program.threads or available_threads())
        # Of open sizes, the layouts are those of typical ones.
        assembly = Assembly(dnnl, without_empty(program), constants, build_node)
        for node in assembly.program.nodes:
            build_node(assembly, node)
        assembly.commit()
        return _packed(assembly, program, constants)
    except UnsupportedError:
        return program, dict(constants)
    finally:
        dnnl.close()


def _packed(
    assembly: Assembly, program: PrimitiveProgram, constants: Mapping[str, np.ndarray]
) -> tuple[PrimitiveProgram, dict[str, np.ndarray]]:
    moved: dict[int, list[tuple[MemoryTensor, MemoryTensor]]] = defaultdict(list)
    for source, target in assembly.moved:
        moved[source.buffer.number].append((source, target))
    used = {
        tensor.buffer.number
        for execution in assembly.executions
        for _, tensor in execution.arguments
    }
    readers = Counter(program.constants.values())
    packed: dict[int, PackedWeight] = {}
    stored = dict(constants)
    for value, name in program.constants.items():
        number = assembly.values[value].buffer.number
        moves = moved.get(number, [])
        if len(moves) != 1 or number in used or readers[name] != 1:
            continue
        source, target = moves[0]
        weight = _described(assembly, value, source, target)
        if weight is not None:
            packed[value] = weight
            kind = constants[name].dtype
            size = kind.itemsize * weight.layout.elements
            stored[name] = assembly.pool.view(target.buffer.where, size).view(kind)
    return replace(program, packed=packed), stored


def _described(
    assembly: Assembly, value: int, source: MemoryTensor, target: MemoryTensor
) -> PackedWeight | None:
    """Describe how a constant is stored; ``None`` if it is small or there are no words for it.

    Behind weights of 8 bits there may be sums of them, which a layout does not tell.
    """
    dnnl, size, item = assembly.dnnl, source.buffer.bytes, BYTES[assembly.dtypes[value]]
    if size < SMALLEST or source.offset:
        return None
    view, layout = dnnl.layout(source.desc), dnnl.layout(target.desc)
    if view is None or layout is None or view.blocks or view.elements * item != size:
        return None
    dense = layout.elements * item == dnnl.size(target.desc)
    return PackedWeight(view, layout) if dense else None
