# SPDX-License-Identifier: Apache-2.0
"""Models that branch and loop when they run, as text; weights are random."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import numpy_helper, parser

HEAD = '<ir_version: 9, opset_import: ["" : 17]>\n'


@dataclass(frozen=True)
class ControlModel:
    """A model, its weights, and the values of inputs to run it for.

    Attributes:
        text: The graph.
        weights: Shapes of random weights, or their values.
        feeds: For each run: shapes of random inputs, or their values.
        steps: Steps of control flow that its plan has.
    """

    text: str
    feeds: tuple[Mapping[str, object], ...]
    weights: Mapping[str, object] = field(default_factory=dict)
    steps: tuple[str, ...] = ("LoopStep",)

    def proto(self) -> onnx.ModelProto:
        """Return the model with its weights."""
        model = parser.parse_model(HEAD + self.text)
        arrays = values(self.weights, 7)
        model.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in arrays.items())
        onnx.checker.check_model(model)
        return model


def values(shapes: Mapping[str, object], seed: int) -> dict[str, np.ndarray]:
    """Return arrays; tuples of sizes become random floats, other values stay."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal(value).astype(np.float32) * np.float32(0.3)
        if isinstance(value, tuple)
        else np.asarray(value)
        for name, value in shapes.items()
    }


X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 16)
BRANCHES = """
    t = If (c) <
      then_branch = then () => (float[4,16] p) { a = MatMul (x, W) p = Relu (a) },
      else_branch = other () => (float[4,16] q) { b = MatMul (x, V) e = Tanh (b) q = Add (e, d) }
    >
"""

MODELS: Mapping[str, ControlModel] = {
    "branches with weights and a value around": ControlModel(
        "g (float[4,16] x) => (float[4,16] y) {\n"
        "  d = Add (x, x) s = ReduceSum <keepdims = 0> (x) c = Greater (s, zero)"
        + BRANCHES
        + "  y = Add (t, d) }",
        ({"x": X}, {"x": X + 1}, {"x": X - 1}),
        {"W": (16, 16), "V": (16, 16), "zero": np.float32(0)},
        ("IfStep",),
    ),
    "a loop of a computed number of iterations": ControlModel(
        """g (float[4,16] x, int64 n) => (float[4,16] h, float[4,16] k) {
             h, k = Loop (n, , x, x) <body = b
               (int64 i, bool go, float[4,16] s, float[4,16] t)
                 => (bool gone, float[4,16] u, float[4,16] v) {
               gone = Identity (go) a = MatMul (s, W) f = MatMul (x, V) e = Add (a, f)
               u = Tanh (e) v = Add (t, u)
             }> }""",
        tuple({"x": X, "n": np.array(n)} for n in (0, 1, 2, 9)),
        {"W": (16, 16), "V": (16, 16)},
    ),
    "a loop that a value ends": ControlModel(
        """g (float[4,16] x) => (float[4,16] h) {
             h = Loop (, yes, x) <body = b (int64 i, bool go, float[4,16] s)
                 => (bool more, float[4,16] u) {
               u = Mul (s, f) t = ReduceMax <keepdims = 0> (u) more = Less (t, limit)
             }> }""",
        ({"x": X}, {"x": X * 100}),
        {"yes": np.array(True), "f": np.float32(1.5), "limit": np.float32(40)},
    ),
    "values that swap in each iteration": ControlModel(
        """g (float[3] x, float[3] y, int64 n) => (float[3] p, float[3] q) {
             p, q = Loop (n, , x, y) <body = b (int64 i, bool go, float[3] s, float[3] t)
                 => (bool gone, float[3] u, float[3] v) {
               gone = Identity (go) u = Identity (t) v = Add (s, t)
             }> }""",
        tuple({"x": (3,), "y": (3,), "n": np.array(n)} for n in (0, 1, 2, 7)),
    ),
    "the number of the iteration": ControlModel(
        """g (float[3] x, int64 n) => (float[3] y) {
             y = Loop (n, , x) <body = b (int64 i, bool go, float[3] s) => (bool o, float[3] u) {
               o = Identity (go) f = Cast <to = 1> (i) u = Add (s, f)
             }> }""",
        tuple({"x": (3,), "n": np.array(n)} for n in (0, 3, 50)),
    ),
    "values collected in computed iterations": ControlModel(
        """g (float[3] x, int64 n) => (float[3] y, float[k,3] all) {
             y, all = Loop (n, , x) <body = b
                 (int64 i, bool go, float[3] s) => (bool o, float[3] u, float[3] v) {
               o = Identity (go) u = Add (s, one) v = Mul (u, u)
             }> }""",
        tuple({"x": (3,), "n": np.array(n)} for n in (0, 1, 300)),
        {"one": np.float32([1, 2, 3])},
    ),
    "values collected until a value ends the loop": ControlModel(
        """g (float[3] x, int64 n) => (float[k,3] all, float[3] m) {
             y, all = Loop (n, , x) <body = b
                 (int64 i, bool go, float[3] s) => (bool more, float[3] u, float[3] v) {
               u = Add (s, one) v = Mul (u, u)
               t = ReduceSum <keepdims = 0> (u) more = Less (t, limit)
             }>
             m = ReduceMax <axes = [0], keepdims = 0> (all) }""",
        tuple({"x": (3,), "n": np.array(n)} for n in (1, 5, 300)),
        {"one": np.float32([1, 2, 3]), "limit": np.float32(100)},
    ),
    "the last of rows put together": ControlModel(
        """g (float[3] x, int64 n) => (float[3] last) {
             h, all = Loop (n, , x, none) <body = b
                 (int64 i, bool go, float[3] s, float[r,3] t)
                   => (bool o, float[3] u, float[z,3] v) {
               o = Identity (go) u = Add (s, x) row = Unsqueeze (u, front)
               v = Concat <axis = 0> (t, row)
             }>
             last = Gather <axis = 0> (all, end) }""",
        tuple({"x": (3,), "n": np.array(n)} for n in (1, 2, 40)),
        {
            "none": np.zeros((0, 3), np.float32),
            "front": np.array([0]),
            "end": np.array(-1),
        },
    ),
    "greedy decoding": ControlModel(
        """g (int64[1,p] start, int64 n) => (int64[1,q] tokens) {
             tokens = Loop (n, , start) <body = b
                 (int64 i, bool go, int64[1,r] t) => (bool more, int64[1,z] u) {
               e = Gather (E, t) m = ReduceMean <axes = [1], keepdims = 0> (e)
               l = MatMul (m, W) next = ArgMax <axis = 1, keepdims = 1> (l)
               u = Concat <axis = 1> (t, next)
               is = Equal (next, end) one = Squeeze (is) more = Not (one)
             }> }""",
        tuple(
            {"start": np.arange(p)[None] % 50, "n": np.array(n)}
            for n, p in ((0, 3), (1, 1), (20, 4), (200, 2))
        ),
        {"E": (50, 16), "W": (16, 50), "end": np.array([[7]])},
        steps=("LoopStep", "IfStep"),  # which looks whether a token is one of the 50
    ),
    "a loop in a branch in a loop": ControlModel(
        """g (float[2,8] x, int64 n) => (float[2,8] y) {
             y = Loop (n, , x) <body = b
                 (int64 i, bool go, float[2,8] s) => (bool o, float[2,8] u) {
               o = Identity (go) t = ReduceSum <keepdims = 0> (s) c = Less (t, zero)
               u = If (c) <
                 then_branch = p () => (float[2,8] v) {
                   v = Loop (i, , s) <body = d
                       (int64 j, bool g, float[2,8] r) => (bool h, float[2,8] w) {
                     h = Identity (g) m = MatMul (r, W) k = Add (m, x) w = Tanh (k)
                   }>
                 },
                 else_branch = q () => (float[2,8] z) { f = MatMul (s, V) z = Sub (f, one) }
               >
             }> }""",
        tuple({"x": (2, 8), "n": np.array(n)} for n in (0, 1, 4, 11)),
        {"W": (8, 8), "V": (8, 8), "zero": np.float32(0), "one": np.float32(1)},
        ("LoopStep", "IfStep", "LoopStep"),
    ),
    "branches of other sizes": ControlModel(
        """g (float[r,4] x) => (float[k,4] y) {
             s = ReduceSum <keepdims = 0> (x) c = Greater (s, zero)
             t = If (c) <
               then_branch = p () => (float[u,4] a) { a = Concat <axis = 0> (x, x) },
               else_branch = q () => (float[v,4] b) { b = Relu (x) }
             >
             y = Softmax <axis = 0> (t) }""",
        tuple({"x": sign * np.ones((n, 4), np.float32)} for n in (1, 3, 8) for sign in (1, -1)),
        {"zero": np.float32(0)},
        ("IfStep",),
    ),
    "a squeeze that depends on a size": ControlModel(
        """g (float[r,4,s] x) => (float[r,4] y) {
             z = Shape (x) last = Gather (z, two) c = Equal (last, one)
             t = If (c) <
               then_branch = p () => (float[u,4] a) { a = Squeeze (x, axis) },
               else_branch = q () => (float[i,4,v] b) { b = Identity (x) }
             >
             y = Gemm (t, W) }""",
        ({"x": (1, 4, 1)}, {"x": (5, 4, 1)}),
        {"two": np.array(2), "one": np.array(1), "axis": np.array([2]), "W": (4, 4)},
        (),
    ),
}


def _scan(steps: str, back: int) -> ControlModel:
    counts = (300,) if steps == "300" else (300, 1, 17)
    return ControlModel(
        f"""g (float[2,8] h, float[{steps},2,8] x) => (float[2,8] p, float[{steps},2,8] y) {{
             p, y = Scan <num_scan_inputs = 1, scan_input_directions = [{back}],
                          scan_output_directions = [{back}], body = b
                 (float[2,8] s, float[2,8] e) => (float[2,8] t, float[2,8] o) {{
               m = MatMul (s, W) a = Add (m, e) t = Tanh (a) o = Mul (t, t)
             }}> (h, x) }}""",
        tuple({"h": (2, 8), "x": (count, 2, 8)} for count in counts),
        {"W": (8, 8)},
    )


MODELS = {
    **MODELS,
    "a scan": _scan("300", 0),
    "a scan from the end": _scan("300", 1),
    "a scan of an open size": _scan("T", 0),
    "a scan of an open size from the end": _scan("T", 1),
}
