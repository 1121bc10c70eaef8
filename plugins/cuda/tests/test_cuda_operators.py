# SPDX-License-Identifier: Apache-2.0
"""Every operator, emulated and on the GPU, against the references: the cases of core's own tests.

The cases are drawn out of ``tests/unit/ops`` by running its tests with fixtures that write down
what they are asked. All kernels of a file go into one library.
"""

from __future__ import annotations

import importlib.util
import inspect
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from intarsia_ir.ops import OPERATORS

from .running import assert_close, lowered, reference

CORE_TESTS = Path(__file__).resolve().parents[3] / "tests" / "unit" / "ops"
FILES = ("test_ops_elementwise", "test_ops_nn", "test_ops_shape", "test_ops_qnn")


def load_file(name):
    spec = importlib.util.spec_from_file_location(f"cuda_cases_{name}", CORE_TESTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arguments(function):
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
    for name, function in vars(load_file(file)).items():
        if not name.startswith("test_") or not callable(function):
            continue
        wanted = inspect.signature(function).parameters
        if not {"run_operator", "check_operator"} & set(wanted):
            continue
        for row in arguments(function):
            function(**row, **{k: f for k, f in fixtures.items() if k in wanted})
    return list(cases.values())


@pytest.mark.parametrize("file", FILES)
def test_operators(make_target, place, file):
    cases = recorded(file)
    assert len(cases) > 100
    options, load = place
    target = make_target(**options)
    module = load(target, [lowered(target, *case) for case in cases], flags=["-O0"])
    for number, (name, inputs, attrs) in enumerate(cases):
        what = f"{name} {attrs} of {[(x.dtype.name, x.shape) for x in inputs]}"
        found = module.run(number, *inputs)
        for got, want in zip(found, reference(name, inputs, attrs), strict=True):
            assert_close(got, want, what)
