# SPDX-License-Identifier: Apache-2.0
"""Functions that control flow carries out are partitioned like ``main``, one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intarsia_ir.graph.control import bodies_of
from intarsia_ir.graph.module import IRModule

from ..partition.annotate import annotate
from ..partition.labels import label_calls
from ..partition.partition import PartitionResult
from ..partition.rules import PlaceRule, check_rules
from .place import join_placements, rules_of_parts


def partition_functions(
    module: IRModule,
    rules: Sequence[PlaceRule],
    partition_main: Callable[[IRModule, Sequence[PlaceRule]], PartitionResult],
) -> PartitionResult:
    """Partition ``main`` and the functions that it carries out.

    Args:
        module: A prepared module.
        rules: What the user says of single nodes, in any of the functions.
        partition_main: Partitions the ``main`` of a module; regions get names that no function of
            the module has.

    Raises:
        UsageError: A rule names no node.
    """
    bodies = bodies_of(module.functions)
    if not bodies:
        return partition_main(module, rules)
    functions = {"main": module.main, **{name: module.functions[name] for name in bodies}}
    if rules:
        labels = [label_calls(annotate(one, ()).calls) for one in functions.values()]
        check_rules(rules, [name for one in labels for name in one.values()])
    parts = rules_of_parts(rules)
    found: dict[str, PartitionResult] = {}
    for name, function in functions.items():
        one = partition_main(module.with_main(function), parts)
        made = {**one.module.functions, name: one.module.main}
        if name != "main":
            made["main"] = module.main
        module = module.with_functions(made)
        found[name] = one
    return PartitionResult(
        module,
        tuple(region for one in found.values() for region in one.regions),
        join_placements({name: one.placement for name, one in found.items()}),
    )
