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
from .look_up import LOOK_UP
from .recognise import RECOGNISE
from .select_branches import SELECT_BRANCHES
from .simplify import SIMPLIFY
from .sink_reshapes import SINK_RESHAPES

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
        SINK_RESHAPES,
        FUSE_BATCH_NORM,
        LOOK_UP,
        FOLD_CONSTANTS,
        SIMPLIFY,
        DEDUPLICATE,
        ELIMINATE_DEAD_CODE,
    ),
)
