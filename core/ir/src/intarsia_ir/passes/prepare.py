# SPDX-License-Identifier: Apache-2.0
"""Prepare: the pipeline between the frontend and the accelerators."""

from __future__ import annotations

from importlib import import_module

from .base import Pass, Pipeline


def load_pass(name: str) -> Pass:
    """Return a pass by the name of its module here: ``inline_lets`` has ``INLINE_LETS``.

    Args:
        name: The module; ``module.NAME`` where a module has another pass too.

    Raises:
        ImportError: There is no such module.
        AttributeError: The module has no such pass.
    """
    module, _, constant = name.partition(".")
    found = vars(import_module(f".{module}", __package__)).get(constant or module.upper())
    if not isinstance(found, Pass):
        raise AttributeError(f"module '{module}' has no pass {constant or module.upper()}")
    return found


_ORDER = """
    inline_lets
    fold_constants.FOLD_FLOATS
    fuse_quantize
    fold_constants
    specialize_bodies
    simplify
    eliminate_dead_code
    select_branches
    deduplicate
    recognize
    sink_reshapes
    fuse_batch_norm
    merge_parallel_convs
    look_up
    fold_constants
    specialize_bodies
    simplify
    flush_subnormals
    deduplicate
    eliminate_dead_code
"""

PREPARE = Pipeline("prepare", tuple(map(load_pass, _ORDER.split())))

PREPARE_PACKED = Pipeline(
    "prepare",
    tuple(map(load_pass, _ORDER.replace("fuse_quantize", "fuse_quantize pack_weights").split())),
)
"""For kinds that all run on the CPU, which multiply with weights of few bits as they are stored."""
