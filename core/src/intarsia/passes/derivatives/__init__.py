# SPDX-License-Identifier: Apache-2.0
"""What is known of the derivative of each operator, one module a family."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from . import activations, elementwise, movement, products, reductions
from .expansions import EXPANSIONS
from .terms import Contributions, Expansion, Rule, Step, Term

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **activations.RULES,
        **elementwise.RULES,
        **movement.RULES,
        **products.RULES,
        **reductions.RULES,
    }
)
"""Rule of an operator by its name."""

__all__ = ["EXPANSIONS", "RULES", "Contributions", "Expansion", "Rule", "Step", "Term"]
