# SPDX-License-Identifier: Apache-2.0
"""The cases of the operator tests beside this file, for backends that run them all.

The cases are drawn out of the tests by running them with fixtures that write down what they are
asked.
"""

from __future__ import annotations

import importlib.util
import inspect
from itertools import product
from pathlib import Path

import numpy as np

from intarsia_ir.ops import OPERATORS

FILES = ("test_ops_elementwise", "test_ops_nn", "test_ops_shape", "test_ops_qnn")


def _loaded(name):
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"recorded_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _parameters(function):
    """Every combination of a test's parameters, as keywords."""
    rows = [{}]
    for mark in getattr(function, "pytestmark", ()):
        if mark.name != "parametrize":
            continue
        names = mark.args[0]
        names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
        values = [v if len(names) > 1 else (v,) for v in mark.args[1]]
        rows = [row | dict(zip(names, v, strict=True)) for row, v in product(rows, values)]
    return rows


def recorded(file):
    """The cases of a file: name of the operator, inputs, attributes; each kind of case once."""
    cases = {}

    def run_operator(name, *inputs, **attrs):
        types = tuple((x.shape, x.dtype.name) for x in inputs)
        cases.setdefault((name, types, repr(attrs)), (name, inputs, attrs))
        found = OPERATORS[name].reference(OPERATORS[name].Attrs(**attrs), *inputs)
        return list(found) if isinstance(found, tuple) else [found]

    def check_operator(_wanted, name, *inputs, **attrs):
        run_operator(name, *inputs, **attrs)

    def onnx_node(_op_type, *inputs, **_options):
        return np.zeros(inputs[0].shape if inputs else ())  # nobody looks at what is wanted

    fixtures = {
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
