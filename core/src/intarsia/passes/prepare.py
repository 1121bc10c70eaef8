# SPDX-License-Identifier: Apache-2.0
"""Prepare: the pipeline between the frontend and the accelerators."""

from __future__ import annotations

from .base import Pipeline
from .deduplicate import DEDUPLICATE
from .eliminate_dead_code import ELIMINATE_DEAD_CODE
from .fold_constants import FOLD_CONSTANTS, FOLD_FLOATS
from .fuse_batch_norm import FUSE_BATCH_NORM
from .fuse_quantize import FUSE_QUANTIZE
from .inline_lets import INLINE_LETS
from .recognise import RECOGNISE
from .select_branches import SELECT_BRANCHES
from .simplify import SIMPLIFY

PREPARE = Pipeline(
    "prepare",
    (
        INLINE_LETS,
        FOLD_FLOATS,
        FUSE_QUANTIZE,
        FOLD_CONSTANTS,
        SIMPLIFY,
        ELIMINATE_DEAD_CODE,
        SELECT_BRANCHES,
        DEDUPLICATE,
        RECOGNISE,
        FUSE_BATCH_NORM,
        FOLD_CONSTANTS,
        SIMPLIFY,
        DEDUPLICATE,
        ELIMINATE_DEAD_CODE,
    ),
)
