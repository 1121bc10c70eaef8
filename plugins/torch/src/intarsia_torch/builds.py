# SPDX-License-Identifier: Apache-2.0
"""Builds of imported graphs that an earlier call, or an earlier process, has made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import intarsia
from intarsia_ir.graph.expr import Constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.walk import post_order

if TYPE_CHECKING:
    from intarsia_runtime.load import Executable


MOST_KEPT_BYTES = 512 << 20
"""Bytes of weights up to which a build is kept: an entry of the cache holds them."""


def build_or_fetch(
    module: IRModule,
    target: intarsia.CompositeTarget,
    host: intarsia.Host,
    *,
    threads: int | None,
    options: Mapping[str, Any],
) -> Executable:
    """Build a module, or fetch what was made of the same graph, and make it ready to run.

    Args:
        module: The module.
        target: What it is compiled for.
        host: The plugins.
        threads: Threads for parallel loops; as many as the process may use if ``None``.
        options: Those of a build.

    Raises:
        IntarsiaError: As :func:`intarsia.build` and :func:`intarsia.load`.
    """
    kept = _weight_bytes(module) <= MOST_KEPT_BYTES
    build = intarsia.build_cached if kept else intarsia.build
    return build(module, target, mod_name="graph", host=host, **options).load(threads=threads)


def _weight_bytes(module: IRModule) -> int:
    nodes = post_order(module.main.body)
    return sum(node.type.bytes for node in nodes if isinstance(node, Constant))
