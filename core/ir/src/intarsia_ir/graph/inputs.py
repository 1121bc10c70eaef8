# SPDX-License-Identifier: Apache-2.0
"""The inputs of a module: whether their sizes are known, and values in their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from intarsia_runtime.errors import ModelError, UnsupportedError, did_you_mean

from .expr import Expr, Var, constant
from .module import IRModule
from .types import TensorType, Type
from .walk import calls, substitute


def fits(array: np.ndarray, type_: TensorType) -> bool:
    """Whether an array is a value of an input, whose sizes may be open."""
    same = array.dtype.name == type_.dtype.value and array.ndim == type_.rank
    sizes = zip(array.shape, type_.shape, strict=False)
    return same and all(not isinstance(size, int) or size == own for own, size in sizes)


def bind_params(module: IRModule, params: Mapping[str, np.ndarray]) -> IRModule:
    """Replace parameters of ``main`` by constants.

    Raises:
        ModelError: ``main`` has no such parameter, or one of another shape or element type.
    """
    main = module.main
    values: dict[Expr, Expr] = {}
    named = {param.name: param for param in main.params}
    for name, array in params.items():
        if name not in named:
            hint = did_you_mean(name, named) or f"inputs: {', '.join(named)}"
            raise ModelError(f"params has '{name}', but the model has no such input", hint=hint)
        value = constant(array, name=name, span=named[name].span)
        if value.type != named[name].type:
            raise ModelError(f"input '{name}' is {named[name].type}, params has {value.type}")
        values[named[name]] = value
    kept = tuple(param for param in main.params if param not in values)
    return module.with_main(replace(main, params=kept, body=substitute(main.body, values)))


def check_static(module: IRModule) -> None:
    """Refuse a model with inputs of unknown size, or with sizes that it computes.

    Raises:
        UnsupportedError: There is one; the hint shows the option to give.
    """
    unknown = [param for param in module.main.params if not is_static(param.type)]
    if unknown:
        first = unknown[0]
        raise UnsupportedError(
            f"the size of input '{first.name}' is not known: {first.type}",
            hint=f"--shape {first.name}:{_example(first)}",
        )
    for call in calls(module.main):
        if call.op.defines_size:
            raise UnsupportedError(
                "the model computes a size, and this target takes known sizes alone",
                where=str(call.span),
                hint="give the value that decides it, or compile for a target of open sizes",
            )


def is_static(type_: Type) -> bool:
    """Whether a value is one tensor whose sizes are known."""
    return isinstance(type_, TensorType) and type_.is_static


def _example(param: Var) -> str:
    if not isinstance(param.type, TensorType):
        return "1"
    return ",".join(str(size) if isinstance(size, int) else "1" for size in param.type.shape)
