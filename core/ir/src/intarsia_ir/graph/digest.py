# SPDX-License-Identifier: Apache-2.0
"""A digest of a module's content, so that equal graphs can share what was built of one of them."""

from __future__ import annotations

from hashlib import sha256

import numpy as np

from .expr import Call, Constant, Expr, Tuple, TupleGetItem, Var
from .module import IRModule
from .walk import children, post_order


def module_digest(module: IRModule) -> str | None:
    """Return the SHA-256 of a module of one function, in hexadecimal.

    Modules with equal digests have the same operators, attributes, types, names, spans, settings,
    and the same bytes in their constants.

    Returns:
        ``None`` if the module has several functions, or nodes with a body, as branches and loops.
    """
    main = module.main
    if len(module.functions) != 1:
        return None
    digest = sha256(repr((main.output_names, len(main.params))).encode())
    numbers: dict[Expr, int] = {}
    for node in (*main.params, *post_order(main.body)):
        if node in numbers:
            continue
        own = _own_text(node)
        if own is None:
            return None
        numbers[node] = len(numbers)
        operands = tuple(numbers[child] for child in children(node))
        digest.update(repr((type(node).__name__, str(node.type), operands, own)).encode())
        digest.update(str(node.span).encode())
        if isinstance(node, Constant):
            digest.update(np.ascontiguousarray(node.data).reshape(-1).view(np.uint8).data)
    settings = sorted((kind.__name__, repr(value)) for kind, value in module.attrs.items())
    digest.update(repr(settings).encode())
    return digest.hexdigest()


def _own_text(node: Expr) -> str | None:
    """Return what a node is besides its type and its operands; ``None`` for a node with a body."""
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
