# SPDX-License-Identifier: Apache-2.0
"""What is known of resizing and of blocks of channels: batch axes, forms on integers."""

from __future__ import annotations

from ..graph.op import OpAttrs
from .derivative import DERIVATIVES
from .integer_forms import give_passing
from .resize import DepthToSpace, Resize, SpaceToDepth


def _takes_nearest(attrs: OpAttrs) -> bool:
    return isinstance(attrs, Resize.Attrs) and attrs.mode == "nearest"


give_passing(Resize, where=_takes_nearest)
give_passing(DepthToSpace, SpaceToDepth)


DERIVATIVES.refuse("no operator adds pixels up at the places they were taken from", Resize)
DERIVATIVES.refuse("its rule is not written: use reshape and transpose", DepthToSpace, SpaceToDepth)
