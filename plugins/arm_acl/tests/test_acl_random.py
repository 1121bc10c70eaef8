# SPDX-License-Identifier: Apache-2.0
"""Random calls of the grid on the real library, under emulation, against NumPy.

``validate()`` says yes to some calls that the library then computes wrongly, or crashes on; the
plugin refuses those for reasons of its own, and this finds them.
"""

from __future__ import annotations

import random

import pytest

from intarsia_ir.graph.expr import Call
from intarsia_runtime.errors import TypeRuleError

from .grid import MAKERS, Maker
from .regions import Bench, verdicts

CALLS = 20


@pytest.mark.parametrize("maker", MAKERS, ids=[maker.__name__ for maker in MAKERS])
def test_random_calls(bench: Bench, maker: Maker) -> None:
    rng = random.Random(11)
    bodies: list[Call] = []
    while len(bodies) < CALLS:
        try:
            body = maker(rng)
        except TypeRuleError:
            continue  # a window larger than the data, and the like
        if isinstance(body, Call) and all(verdicts(body).values()):
            bodies.append(body)
    bench.check(*bodies, positive=True, tolerance=2e-4)
