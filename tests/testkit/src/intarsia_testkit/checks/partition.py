# SPDX-License-Identifier: Apache-2.0
"""Tier 3: whatever the graph, it is cut into convex parts, and nothing is lost or changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import hypothesis
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intarsia.driver.stages import partition_module
from intarsia.host.host import Host
from intarsia_ir.graph.expr import CallFunction
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.verify import verify
from intarsia_ir.graph.walk import calls, post_order
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.partition.cost import Plan
from intarsia_ir.partition.partition import PartitionResult
from intarsia_ir.regions.region import Region

from ..blocks import NetworkBlocks, choose_blocks, random_graph
from ..marks import check, decline, refuse
from ..running import compile_module, run_artifact, wrong_results
from ..subject import Subject

CHOICES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=24
)
OUTPUTS = st.lists(st.integers(0, 9), min_size=1, max_size=3)
_QUIET = settings(
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=cast("list[HealthCheck]", list(HealthCheck)),
    phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
)


class PartitionChecks:
    """Random graphs of what the plugin takes and what it refuses."""

    @check(tier=3)
    def test_partition_random_graphs_are_cut_into_convex_regions(self, subject: Subject) -> None:
        """Regions are convex and acyclic, and hold every call once; also after `partition`."""
        if not subject.is_accelerator:
            decline("a backend takes no regions")
        host = Host()
        blocks = choose_blocks(subject.table(host))
        target = subject.composite(host)

        @settings(_QUIET, max_examples=60)
        @given(CHOICES, OUTPUTS)
        def cut_well(choices: list[tuple[int, int, int]], outputs: list[int]) -> None:
            module = random_graph(blocks, choices, outputs)
            made = partition_module(host, module, target, Plan.GREEDY)
            verify(made.module)  # no cycle, types agree: a region that is not convex has neither
            assert_complete(module, made, subject.main_kind.name)

        cut_well()

    @check(tier=3)
    def test_partition_hook_only_drops(self, subject: Subject) -> None:
        """The hook answers twice alike, with regions that it was offered."""
        host = Host()
        kind = subject.main_kind.name
        if not subject.is_accelerator or not host.has_hook(kind, "partition"):
            decline("it has no partition hook")
        blocks = choose_blocks(subject.table(host))
        own = subject.own_target(host)
        whole = subject.host()
        many = [(3 * i + (i % 5 == 4) * 2, i % 2, i % 3) for i in range(20)]
        module = random_graph(blocks, many, (0, 1))
        regions = partition_module(whole, module, subject.composite(whole), Plan.GREEDY).regions
        fallback = subject.composite(whole).fallback

        def asked() -> Sequence[Region]:
            answer = host.call("partition", kind, regions=regions, target=own, fallback=fallback)
            return cast("Sequence[Region]", answer)

        first, second = asked(), asked()
        offered = {call for region in regions for call in region.origins.values()}
        own_calls = {region.name: set(calls(region.function)) for region in regions}
        problems: list[str] = []
        for region in first:
            added = [call for call in region.origins.values() if call not in offered]
            known = own_calls.get(region.name, ())
            added += [call for call in calls(region.function) if call not in known]
            if added:
                problems.append(f"it adds {added[0].name} to region '{region.name}'")
        answers = [[(r.nodes, len(r.origins), r.why) for r in one] for one in (first, second)]
        if answers[0] != answers[1]:
            problems.append("it answers the same question differently")
        refuse(
            problems,
            hint="return regions from the list, as keep_calls() or split_region() change them",
        )

    @check(tier=3)
    def test_partition_random_graphs_give_equal_results(self, subject: Subject) -> None:
        """Compiled and run, random graphs compute what they compute uncut."""
        host = subject.host()
        blocks = choose_blocks(subject.table(host) if subject.is_accelerator else None)

        @settings(_QUIET, max_examples=12)
        @given(CHOICES, OUTPUTS)
        def run_well(choices: list[tuple[int, int, int]], outputs: list[int]) -> None:
            module = random_graph(blocks, choices, outputs)
            inputs = finite_inputs(module, blocks)
            artifact = compile_module(subject, module, host=host)
            message = wrong_results(module, inputs, run_artifact(subject, artifact, inputs))
            refuse([message] if message else [])

        run_well()


def finite_inputs(module: IRModule, blocks: NetworkBlocks) -> dict[str, np.ndarray]:
    """Small inputs; examples whose values leave the element type's range are left out."""
    inputs = {p.name: blocks.random(i) for i, p in enumerate(module.main.params)}
    with hypothesis_errstate():
        wanted = evaluate(module.main, inputs, module)
    hypothesis.assume(all(abs(w.astype("float64")).max(initial=0.0) < 1e4 for w in wanted))
    return inputs


def hypothesis_errstate() -> np.errstate:
    """Arithmetic on random graphs may overflow; that is no finding."""
    return np.errstate(all="ignore")


def assert_complete(module: IRModule, made: PartitionResult, kind: str) -> None:
    """Every call is in one place, every region is called once, and verdicts are of the kind."""
    left = [call.span.name for call in calls(made.module.main)]
    inside = [call.span.name for region in made.regions for call in calls(region.function)]
    problems: list[str] = []
    if sorted(left + inside) != sorted(call.span.name for call in calls(module.main)):
        problems.append("a call is lost, or is in two places")
    called = [n for n in post_order(made.module.main.body) if isinstance(n, CallFunction)]
    if sorted(c.function.name for c in called) != sorted(region.name for region in made.regions):
        problems.append("a region is not called exactly once")
    bad = [v for v in made.placement.verdicts if v.code == "plugin-error"]
    problems += [f"{v.node}: {v.detail}" for v in bad]
    problems += [f"region '{r.name}' is of '{r.kind}'" for r in made.regions if r.kind != kind]
    refuse(problems)
