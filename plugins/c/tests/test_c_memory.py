# SPDX-License-Identifier: Apache-2.0
"""The workspace of the tiny nets is within 5 % of what any plan needs."""

from __future__ import annotations

import pytest

import intarsia
import intarsia_loops.call_plan
from intarsia import Executor, Runtime
from intarsia_loops.plan_memory import plan_memory

from .mcu.tiny_nets import NETS, save_net


@pytest.mark.parametrize("mcpu", [" -mcpu=cortex-m4", ""])
@pytest.mark.parametrize("name", [f"{name}{kind}" for name in NETS for kind in ("", "_int8")])
def test_the_workspace_is_near_the_lower_bound(tmp_path, monkeypatch, name, mcpu):
    path, _ = save_net(tmp_path, name)
    planned = []

    def plan(lifetimes, alignment):
        planned.append(lifetimes)
        return plan_memory(lifetimes, alignment)

    monkeypatch.setattr(intarsia_loops.call_plan, "plan_memory", plan)
    artifact = intarsia.build(
        path, target=f"c -freestanding{mcpu}", runtime=Runtime("c"),
        executor=Executor("aot", {"workspace-byte-alignment": 8}),
    )  # fmt: skip
    (lifetimes,) = planned
    steps = range(max(life.last for life in lifetimes) + 1)
    bound = max(sum(t.bytes for t in lifetimes if t.first <= s <= t.last) for s in steps)
    assert bound <= artifact.passport.plan.workspace_bytes <= 1.05 * bound
