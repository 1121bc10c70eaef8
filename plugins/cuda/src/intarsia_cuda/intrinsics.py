# SPDX-License-Identifier: Apache-2.0
"""Machine functions that CUDA has not, in terms of those it has."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from intarsia_ir.tir.intrinsic import Intrinsic, IntrinsicRule
from intarsia_loops.codegen.c_math import sigmoid

RULES: Mapping[Intrinsic, IntrinsicRule] = MappingProxyType({Intrinsic.SIGMOID: sigmoid})
"""Rules of the machine functions that have no function of their own in CUDA."""
