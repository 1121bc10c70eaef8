# SPDX-License-Identifier: Apache-2.0
"""Builds of imported graphs that an earlier call, or an earlier process, has made."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from intarsia.driver.build import Options, build_request, request_build
from intarsia.driver.fetch_build import build_key, cache_of
from intarsia_ir.graph.expr import Call, Constant, Expr, Tuple, TupleGetItem, Var
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.walk import children, post_order

if TYPE_CHECKING:
    from intarsia.driver.artifact import Artifact
    from intarsia.driver.cache import KeptArtifact
    from intarsia.host.host import Host
    from intarsia.target.target import CompositeTarget


MOST_KEPT_BYTES = 512 << 20
"""Bytes of weights up to which a build is kept: an entry of the cache holds them."""


def build_or_fetch(
    module: IRModule, target: CompositeTarget, host: Host, options: Mapping[str, Options]
) -> Artifact | KeptArtifact:
    """Build a module, or fetch what was made of the same graph, weights, target and versions.

    Args:
        module: The module.
        target: What it is compiled for.
        host: The plugins.
        options: Those of a build.

    Raises:
        IntarsiaError: As :func:`intarsia.driver.build.build`.
    """
    request = request_build(module, target, mod_name="graph", host=host, **options)
    cache = cache_of(request) if _weight_bytes(module) <= MOST_KEPT_BYTES else None
    digest = None if cache is None else module_digest(module)
    key = None if digest is None else build_key(request, {"": digest})
    if cache is None or key is None:
        return build_request(request)
    return cache.fetch(
        key, partial(build_request, request), lambda: module_digest(module) == digest
    )


def _weight_bytes(module: IRModule) -> int:
    nodes = post_order(module.main.body)
    return sum(node.type.bytes for node in nodes if isinstance(node, Constant))


def module_digest(module: IRModule) -> str | None:
    """Return a digest of a module of one function; ``None`` if it is another kind of module."""
    main = module.main
    if len(module.functions) != 1:
        return None
    found = sha256(repr((main.output_names, len(main.params))).encode())
    places: dict[Expr, int] = {}
    for node in (*main.params, *post_order(main.body)):
        if node in places:
            continue
        own = _own_text(node)
        if own is None:
            return None
        places[node] = len(places)
        below = tuple(places[child] for child in children(node))
        found.update(repr((type(node).__name__, str(node.type), below, own)).encode())
        found.update(str(node.span).encode())
        if isinstance(node, Constant):
            found.update(np.ascontiguousarray(node.data).reshape(-1).view(np.uint8).data)
    settings = sorted((kind.__name__, repr(value)) for kind, value in module.attrs.items())
    found.update(repr(settings).encode())
    return found.hexdigest()


def _own_text(node: Expr) -> str | None:
    """Return what a node is besides its type and what it is computed of."""
    match node:
        case Call():
            return f"{node.name} {node.attrs!r}"
        case Var() | Constant():
            return node.name
        case TupleGetItem():
            return str(node.index)
        case Tuple():
            return ""
        case _:
            return None
