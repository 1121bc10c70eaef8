# SPDX-License-Identifier: Apache-2.0
"""Random loops beside ONNX Runtime: values trade places, are collected as they were, or grow."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import intarsia

BINARY, UNARY = ("Add", "Mul", "Sub"), ("Identity", "Neg", "Tanh")


def random_loop(drawn: np.random.Generator) -> onnx.ModelProto:
    """Return a loop of one to three carried vectors; it may collect some, and append to another."""
    carried, collected = int(drawn.integers(1, 4)), int(drawn.integers(0, 3))
    values = ["x", *(f"s{n}" for n in range(carried))]
    body = ["d = Identity (c)"]
    for number in range(drawn.integers(1, 5)):
        a, b = drawn.choice(values), drawn.choice(values)
        op = drawn.choice([*BINARY, *UNARY])
        body.append(f"t{number} = {op} ({a}, {b})" if op in BINARY else f"t{number} = {op} ({a})")
        values.append(f"t{number}")
    inputs = [f"float[n] s{n}" for n in range(carried)]
    results, outputs = [f"r{n}" for n in range(carried)], [f"float[n] y{n}" for n in range(carried)]
    firsts = ["x", "w", "w"][:carried]
    body += [f"{name} = Identity ({drawn.choice(values)})" for name in results]
    typed = [f"float[n] {name}" for name in results]
    if drawn.random() < 0.6:
        inputs.append("float[g] rows")
        body.append(f"more = Concat <axis = 0> (rows, {drawn.choice(values)})")
        typed.append("float[h] more")
        outputs.append("float[k] all")
        firsts.append("w")
    for number in range(collected):
        body.append(f"q{number} = Identity ({drawn.choice(values)})")
        typed.append(f"float[n] q{number}")
        outputs.append(f"float[m{number}, n] z{number}")
    names = ", ".join(output.split()[-1] for output in outputs)
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]>'
        f" g (float[n] x, float[n] w, int64 t) => ({', '.join(outputs)}) {{"
        f" {names} = Loop (t, , {', '.join(firsts)})"
        f" <body = b (int64 i, bool c, {', '.join(inputs)}) => (bool d, {', '.join(typed)})"
        f" {{ {' '.join(body)} }}> }}"
    )


@pytest.mark.parametrize("seed", range(24))
def test_a_random_loop_gives_the_results_of_onnx_runtime(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    model = random_loop(drawn).SerializeToString()
    session = onnxruntime.InferenceSession(model)
    with intarsia.build(model, "llvm").load(threads=1) as executable:
        for count in (1, 4):
            for trips in (0, 1, 2, 13):
                x, w = (drawn.standard_normal(count, np.float32) / 2 for _ in range(2))
                given = {"x": x, "w": w, "t": np.array(trips)}
                wanted = session.run(None, given)
                for mine, theirs in zip(executable.run(given).values(), wanted, strict=True):
                    if theirs.size:  # of nothing that is collected, it has no row of any size
                        assert np.shape(mine) == theirs.shape
                    np.testing.assert_allclose(
                        np.ravel(mine), np.ravel(theirs), rtol=1e-4, atol=1e-5
                    )
