# SPDX-License-Identifier: Apache-2.0
"""The cases of tests of operators, for backends that run them all.

The cases are drawn out of the tests by running them with fixtures that write down what they are
asked.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import numpy as np

from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.arrays import Array

Case: TypeAlias = "tuple[str, tuple[Array, ...], Mapping[str, object]]"
"""Name of the operator, its inputs, its attributes."""


def recorded(file: Path) -> list[Case]:
    """Return the cases of a file of tests; each kind of case once.

    Args:
        file: Its tests use the fixtures ``run_operator`` or ``check_operator``.
    """
    cases: dict[tuple[object, ...], Case] = {}

    def run_operator(name: str, *inputs: Array, **attrs: object) -> list[Array]:
        types = tuple((x.shape, x.dtype.name) for x in inputs)
        cases.setdefault((name, types, repr(attrs)), (name, inputs, attrs))
        found = OPERATORS[name].reference(OPERATORS[name].Attrs(**attrs), *inputs)
        return [*found] if isinstance(found, tuple) else [found]

    def check_operator(_wanted: object, name: str, *inputs: Array, **attrs: object) -> None:
        run_operator(name, *inputs, **attrs)

    def onnx_node(_op_type: str, *inputs: Array, **_options: object) -> Array:
        return np.zeros(inputs[0].shape if inputs else ())  # nobody looks at what is wanted

    fixtures: dict[str, object] = {
        "run_operator": run_operator,
        "check_operator": check_operator,
        "onnx_node": onnx_node,
    }
    for name, function in vars(_loaded(file)).items():
        if not name.startswith("test_") or not callable(function):
            continue
        wanted = inspect.signature(function).parameters
        if not {"run_operator", "check_operator"} & set(wanted):
            continue
        for row in _parameters(function):
            function(**row, **{k: f for k, f in fixtures.items() if k in wanted})
    return list(cases.values())


def _loaded(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"recorded_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _parameters(function: Callable[..., object]) -> list[dict[str, object]]:
    """Return every combination of a test's parameters, as keywords."""
    rows: list[dict[str, object]] = [{}]
    for mark in getattr(function, "pytestmark", ()):
        if mark.name != "parametrize":
            continue
        names: str | Iterable[str] = mark.args[0]
        words = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
        values = [v if len(words) > 1 else (v,) for v in mark.args[1]]
        rows = [row | dict(zip(words, v, strict=True)) for row, v in product(rows, values)]
    return rows
