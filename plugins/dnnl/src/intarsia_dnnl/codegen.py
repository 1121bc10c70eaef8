# SPDX-License-Identifier: Apache-2.0
"""From a region to its program. Needs no vendor library, but stores weights as it wants them."""

from __future__ import annotations

from msgspec.structs import replace

from intarsia.plugin.accelerator import CompiledUnit, Region, extents, tensor_type

from .draft import DnnlDraft
from .fuse import fuse
from .isa import exact_feature
from .pack import pack_weights
from .program import (
    FILE,
    OPEN_SCHEMA,
    SCHEMA,
    PrimitiveNode,
    PrimitiveProgram,
    multiplies_integers,
    print_program,
)
from .sdk import check_library
from .specialize import open_program
from .support import TABLE
from .target import DnnlOptions

LOADER = "dnnl"


def compile_region(region: Region, options: DnnlOptions) -> CompiledUnit:
    """Lower a region to a program and the constants it reads.

    Raises:
        PluginError: The region holds a call that no row of the support table takes, or the library
            that the user named is none that the loader would take.
    """
    if options.library:
        check_library(options.library)
    draft = DnnlDraft(region.name)
    function = region.function
    for param in function.params:
        kind = tensor_type(param)
        draft.values[param] = draft.new_value(extents(param), kind.dtype.value)
    for row, match in TABLE.matches(region):
        draft.values[match.root] = row.lower(draft, match)
    inputs = tuple(draft.value(param) for param in function.params)
    outputs = tuple(draft.value(output) for output in function.outputs)
    if options.special == "exact":
        draft.nodes = [_keeping_nan(node) for node in draft.nodes]
    fuse(draft, outputs)
    used = {value for node in draft.nodes for value in node.reads} | set(outputs)
    constants = draft.weights(used)
    program = PrimitiveProgram(
        shapes=tuple(draft.shapes),
        dtypes=tuple(draft.dtypes),
        inputs=inputs,
        outputs=outputs,
        constants=constants,
        nodes=tuple(draft.nodes),
        fpmath_mode=options.fpmath_mode,
        threads=options.num_threads,
        library=options.library,
    )
    if region.sizes:
        program = open_program(program, region.sizes, region.typical)
    weights = {name: draft.constants[value][1] for value, name in constants.items()}
    if options.prepack:
        program, weights = pack_weights(program, weights)
    return CompiledUnit(
        name=region.name,
        loader=LOADER,
        format=SCHEMA if program.open is None else OPEN_SCHEMA,
        files={FILE: print_program(program)},
        constants=weights,
        cpu_features=_needed(draft, options),
    )


def _keeping_nan(node: PrimitiveNode) -> PrimitiveNode:
    """Return ReLU as ``elu`` without its exponential part: of the two, it gives NaN for NaN."""
    if node.kind != "eltwise" or (node.text("algorithm"), node.number("alpha")) != ("relu", 0):
        return node
    return replace(node, attrs={**node.attrs, "algorithm": "elu"})


def _needed(draft: DnnlDraft, options: DnnlOptions) -> tuple[str, ...]:
    """Return the processor features without which the library would compute something else."""
    products = multiplies_integers(draft.nodes)
    feature = exact_feature() if products and options.int8 == "auto" else ""
    return (feature,) if feature else ()
