# SPDX-License-Identifier: Apache-2.0
"""Operators that count what they find, or whose sizes are values, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from tests.unit.frontend.onnx_models import node

import intarsia
from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.graph.verify import verify
from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import ModelError, ResourceError, UnsupportedError

F32, I64, BOOL = np.float32, np.int64, np.bool_
Feeds = Mapping[str, np.ndarray]
NO_WEIGHTS: Feeds = {}


def typed(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[type, tuple[int | str, ...]]],
    outputs: Sequence[str] = ("y",),
    weights: Feeds = NO_WEIGHTS,
    opset: int = 18,
) -> bytes:
    """A model whose inputs have element types of their own."""
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape)
        for name, (kind, shape) in inputs.items()
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        infos,
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in weights.items()],
    )
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def check(data: bytes, *sets: Feeds, tolerance: float = 1e-6) -> None:
    """Compile a model whole, and compare the reference and the machine code with ONNX Runtime."""
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    with collecting_guards():
        module = from_onnx(data)
        verify(module)
    artifact = intarsia.build(data, "llvm")
    assert not artifact.placement.host
    assert artifact.passport.executor["kind"] == "aot"
    with artifact.load(threads=1) as executable:
        for given in sets:
            feeds = {name: np.asarray(value) for name, value in given.items()}
            wanted = session.run(None, feeds)
            compiled = [np.asarray(value) for value in executable.run(feeds).values()]
            for found in (compiled, evaluate(module.main, feeds, module)):
                for mine, theirs in zip(found, wanted, strict=True):
                    assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
                    np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def vector(*numbers: int) -> np.ndarray:
    return np.array(numbers, I64)


COLLECTING = """
<ir_version: 9, opset_import: ["" : 17]>
g (int64 n, float[N] x, float bound) => (float[r, 2, c] y, float z) {
    zero = Constant <value = float {0.0}> ()
    one = Constant <value = float {1.0}> ()
    z, y = Loop (n, , zero) <
      body = b (int64 i, bool c, float s) => (bool d, float t, float[2, m] row) {
        d = Identity (c)
        t = Add (s, one)
        found = Greater (x, bound)
        kept = Compress (x, found)
        moved = Add (kept, s)
        axes = Constant <value_ints = [0]> ()
        a = Unsqueeze (kept, axes)
        b = Unsqueeze (moved, axes)
        row = Concat <axis = 0> (a, b)
    }>
}
"""


def test_a_loop_collects_rows_of_a_size_that_iterations_compute() -> None:
    data = onnx.parser.parse_model(COLLECTING).SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    artifact = intarsia.build(data, "llvm")
    assert not artifact.placement.host
    with artifact.load(threads=1) as executable:
        for count, bound in ((3, 0.5), (1, 0.5), (0, 0.5), (7, -1.0), (2, 9.0)):
            feeds = {"n": np.array(count), "x": floats(9), "bound": np.array(bound, F32)}
            wanted = session.run(None, feeds)
            for mine, theirs in zip(executable.run(feeds).values(), wanted, strict=True):
                np.testing.assert_array_equal(mine, theirs, strict=True)


def test_rows_of_a_loop_that_differ_in_size_end_the_run() -> None:
    data = onnx.parser.parse_model(COLLECTING.replace("(x, bound)", "(x, s)")).SerializeToString()
    with (
        intarsia.build(data, "llvm").load(threads=1) as executable,
        pytest.raises(ModelError, match="elements that are joined differ in size"),
    ):
        executable.run({"n": np.array(2), "x": np.array([0.5, 2, -1], F32), "bound": F32(0)})


def test_non_zero_and_what_follows() -> None:
    nodes = [
        node("Greater", "x half", "m"),
        node("NonZero", "m", "p"),
        node("Transpose", "p", "t", perm=[1, 0]),
        node("GatherND", "x t", "v"),
        node("Shape", "v", "s"),
        node("Mul", "v v", "w"),
        node("ScatterND", "x t w", "z"),
        node("Concat", "w w", "c", axis=0),
        node("ReduceSum", "w", "r", keepdims=0),
    ]
    made = typed(nodes, {"x": (F32, ("N", 4))}, ("p", "s", "z", "c", "r"), {"half": F32(0.5)})
    sets = [{"x": floats(n, 4, seed=n)} for n in (1, 6, 0, 90)]
    check(made, *sets, {"x": np.zeros((3, 4), F32)}, {"x": np.ones((3, 4), F32)}, tolerance=1e-4)


@pytest.mark.parametrize("kind", [np.float32, np.int64, np.bool_, np.uint8])
def test_non_zero_of_a_type(kind: type) -> None:
    made = typed([node("NonZero", "x")], {"x": (kind, (3, 50))})
    rng = np.random.default_rng(1)
    check(made, *({"x": (rng.random((3, 50)) < s).astype(kind)} for s in (0.0, 0.05, 1.0)))


def test_non_zero_of_a_constant_is_one() -> None:
    weights = {"w": np.array([[0, 2], [3, 0]], F32)}
    made = typed(
        [node("NonZero", "w", "p"), node("Add", "p x")], {"x": (I64, (1,))}, weights=weights
    )
    check(made, {"x": vector(5)})


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_compress(axis: int | None) -> None:
    attrs = {} if axis is None else {"axis": axis}
    length = 12 if axis is None else (3, 4)[axis]
    made = typed([node("Compress", "x c", **attrs)], {"x": (F32, (3, 4)), "c": (BOOL, (length,))})
    rng = np.random.default_rng(2)
    masks = [rng.random(length) < share for share in (0.5, 0.0, 1.0)]
    check(made, *({"x": floats(3, 4), "c": mask} for mask in masks))


def test_compress_by_fewer_than_there_are() -> None:
    made = typed([node("Compress", "x c", axis=0)], {"x": (F32, ("N", 2)), "c": (BOOL, ("M",))})
    check(made, {"x": floats(9, 2), "c": np.array([False, True, True])})


def test_unique_has_four_results() -> None:
    for attrs in ({}, {"sorted": 0}, {"axis": 0}, {"axis": 1, "sorted": 0}):
        made = typed(
            [node("Unique", "x", "y f i c", **attrs)], {"x": (F32, ("N", 3))}, ("y", "f", "i", "c")
        )
        rng = np.random.default_rng(3)
        sets = [rng.integers(0, 3, (n, 3)).astype(F32) for n in (1, 2, 40)]
        check(made, *({"x": x} for x in sets))


LIMITS = {
    "i": ((2, 9, 1), (9, 2, -2), (0, 0, 1), (3, 4, 5), (5, 1, 3)),
    "f": ((0.5, 3.0, 0.75), (3.0, 0.5, -0.5), (1.0, 1.0, 2.0), (1.0, 9.5, 0.1)),
}


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.float32, np.float64])
def test_a_range_whose_limits_are_inputs(kind: type) -> None:
    made = typed([node("Range", "a b c")], dict.fromkeys("abc", (kind, ())))
    rows = LIMITS["f" if np.dtype(kind).kind == "f" else "i"]
    check(
        made, *(dict(zip("abc", np.array(row, kind), strict=True)) for row in rows), tolerance=1e-5
    )


def test_a_range_up_to_a_size_that_is_known_beside_one_of_the_run() -> None:
    """Rows of a batch of 1, next to the places of as many elements as there are, for ScatterND."""
    text = """<ir_version: 10, opset_import: ["" : 20]>
        m (bool[N] keep, float[1, M] x) => (y) <int64 zero = {0}, int64 one = {1}> {
          some = Compress <axis = 1> (x, keep)
          shape = Shape (some)
          axis = Constant <value = int64 {0}> ()
          batch = Gather <axis = 0> (shape, axis)
          range = Range (zero, batch, one)
          column = Constant <value = int64[2] {-1, 1}> ()
          rows = Reshape (range, column)
          nonzero = NonZero (keep)
          places = Transpose <perm = [1, 0]> (nonzero)
          y = Add (rows, places)
        }"""
    made = onnx.parser.parse_model(text)
    rows = [np.array(row, bool) for row in ((0, 1, 1, 0, 1), (1,), (0, 0, 1))]
    check(made.SerializeToString(), *({"keep": row, "x": floats(1, row.size)} for row in rows))


def test_counts_that_a_node_requires_of_open_sizes() -> None:
    """The values of OneHot, and the scales of Resize."""
    pairs = {"i": (I64, ("N",)), "d": (I64, ()), "v": (F32, ("K",))}
    check(
        typed([node("OneHot", "i d v")], pairs),
        *({"i": vector(*row), "d": np.array(4), "v": floats(2)} for row in ((0, 3), (2, -1, 1))),
    )
    check(
        typed([node("Resize", "x _ s")], {"x": (F32, (1, 1, "H", "W")), "s": (F32, ("K",))}),
        *({"x": floats(1, 1, n, 3), "s": np.array([1, 1, 2, 3], F32)} for n in (1, 4)),
    )


def test_a_hidden_size_makes_the_sizes_of_weights_known() -> None:
    operands = {"x": (F32, ("T", "B", 3)), "w": (F32, (1, "R", 3)), "r": (F32, (1, "R", "H"))}
    made = typed([node("RNN", "x w r", "y", hidden_size=5)], operands)
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    with intarsia.build(made, "llvm").load(threads=1) as executable:
        for steps in (1, 4):
            feeds = {"x": floats(steps, 2, 3), "w": floats(1, 5, 3), "r": floats(1, 5, 5)}
            (mine,), (theirs,) = executable.run(feeds).values(), session.run(None, feeds)
            np.testing.assert_allclose(np.asarray(mine), theirs, rtol=1e-5, atol=1e-5)


def test_shapes_that_are_values() -> None:
    nodes = [node("ConstantOfShape", "s", "a"), node("Expand", "x s", "b"), node("Tile", "x t")]
    made = typed(nodes, {"x": (F32, (3, 1)), "s": (I64, (2,)), "t": (I64, (2,))}, ("a", "b", "y"))
    rows = ((3, 4), (1, 2), (3, 0), (1, 1))
    check(made, *({"x": floats(3, 1), "s": vector(*r), "t": vector(r[1], 2)} for r in rows))


def test_a_computed_shape_may_keep_and_leave_open() -> None:
    made = typed([node("Reshape", "x s")], {"x": (F32, ("N", 6)), "s": (I64, (3,))})
    rows = ((2, -1, 3), (0, 2, 3), (-1, 1, 1), (6, 0, 1), (0, 0, -1), (1, 2, -1))
    check(made, *({"x": floats(2 if r[1] else 6, 6), "s": vector(*r)} for r in rows[:3]))
    check(
        made, {"x": floats(3, 6), "s": vector(0, -1, 2)}, {"x": floats(1, 6), "s": vector(6, 1, 1)}
    )


def test_a_computed_shape_with_known_sizes() -> None:
    nodes = [
        node("ReduceMax", "n", "m", keepdims=1),
        node("Concat", "m k", "s", axis=0),
        node("Reshape", "x s", "r"),
        node("Range", "zero q one", "a"),
        node("Add", "r a"),
    ]
    nodes.insert(3, node("Squeeze", "k", "q"))
    weights = {"k": vector(4), "zero": np.array(0), "one": np.array(1)}
    made = typed(nodes, {"x": (I64, ("N",)), "n": (I64, (3,))}, weights=weights)
    check(made, *({"x": np.arange(4 * n), "n": vector(0, n, 1)} for n in (1, 2, 5)))


SLICES = [
    ((1, 0), (3, 9), (0, 1), (1, 1)),
    ((-2, 1), (99, -1), (0, 1), (1, 2)),
    ((9, 0), (1, 0), (1, 0), (1, 1)),
    ((-1, 7), (-99, 2), (0, 1), (-1, -2)),
]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_slice_of_which_operands_are_inputs(count: int) -> None:
    """Starts and ends; axes too; steps too."""
    names = ("b", "e", "a", "s")
    fixed = {"a": vector(0, 1), "s": vector(1, 2)}
    inputs = dict.fromkeys(names[:count], (I64, (2,)))
    weights = {name: fixed[name] for name in names[count:]}
    made = typed([node("Slice", "x b e a s")], {"x": (F32, ("N", 8)), **inputs}, weights=weights)
    for rows in ((5,), (1,)):
        sets = [
            dict(zip(names[:count], [vector(*row) for row in one], strict=False)) for one in SLICES
        ]
        check(made, *({"x": floats(*rows, 8), **s} for s in sets))


@pytest.mark.parametrize("limit", [10**9, 2**31 - 2, 2**31 - 1, 2**63 - 1])
def test_a_slice_up_to_a_number_that_exporters_write_is_up_to_the_end(limit: int) -> None:
    weights = {"b": vector(0, 1), "e": vector(limit, limit)}
    made = typed([node("Slice", "x b e")], {"x": (F32, ("N", 8))}, weights=weights)
    with collecting_guards() as guards:
        module = from_onnx(made)
    assert str(module.main.body.type) == "Tensor[(N, 7), float32]"
    is_guarded = any("the limit means the end" in guard.why for guard in guards)
    assert is_guarded == (limit < 2**31 - 1)
    check(made, {"x": floats(5, 8)}, {"x": floats(1, 8)})


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pads_that_are_inputs(mode: str) -> None:
    inputs = {"x": (F32, ("N", 5)), "p": (I64, (4,)), "v": (F32, ())}
    made = typed([node("Pad", "x p v", mode=mode)], inputs, opset=19)
    rows = ((0, 1, 2, 3), (1, 0, 1, 0), (0, 0, 0, 0), (2, 4, 0, 2))
    if mode == "constant":
        rows = (*rows, (-1, -2, 3, 0), (5, 9, 7, 7))
    check(made, *({"x": floats(4, 5), "p": vector(*r), "v": np.array(7, F32)} for r in rows))


def test_a_product_of_rows_whose_length_is_an_input() -> None:
    nodes = [node("Reshape", "x s", "r"), node("MatMul", "r w", "y")]
    weights = {"w": floats(12, 33, seed=3)}
    made = typed(nodes, {"x": (F32, ("N", 4)), "s": (I64, (2,))}, weights=weights)
    check(made, *({"x": floats(n, 4), "s": vector(-1, 12)} for n in (3, 60)), tolerance=1e-4)
    refused = pytest.raises(ModelError, match="must be as many as before")
    with intarsia.build(made, "llvm").load(threads=1) as executable, refused:
        executable.run({"x": floats(6, 4), "s": vector(-1, 8)})


def test_as_many_rows_as_are_found_and_the_rest_filled_up() -> None:
    """A detector that finds nothing gives rows of the value."""
    nodes = [
        node("Greater", "x half", "m"),
        node("NonZero", "m", "p"),
        node("Shape", "p", "s"),
        node("Gather", "s one", "k", axis=0),
        node("Sub", "most k", "rest"),
        node("Concat", "none none none rest", "w", axis=0),
        node("Pad", "p w v", "y"),
    ]
    weights = {"half": F32(0.5), "one": vector(1), "most": vector(60), "none": vector(0)}
    made = typed(nodes, {"x": (F32, (4, 9)), "v": (I64, ())}, ("y",), weights)
    rows = [floats(4, 9), np.zeros((4, 9), F32), np.ones((4, 9), F32)]
    check(made, *({"x": x, "v": np.array(-1)} for x in rows))


def test_pads_of_axes_that_are_inputs() -> None:
    inputs = {"x": (F32, (2, 3, 4)), "p": (I64, (4,)), "a": (I64, (2,))}
    made = typed([node("Pad", "x p _ a")], inputs, opset=18)
    axes = ((0, 2), (1, -3), (2, 1))
    check(made, *({"x": floats(2, 3, 4), "p": vector(1, 0, 2, 3), "a": vector(*a)} for a in axes))


@pytest.mark.parametrize("largest", [0, 1])
def test_the_best_of_as_many_as_an_input_says(largest: int) -> None:
    made = typed(
        [node("TopK", "x k", "v y", axis=1, largest=largest)],
        {"x": (F32, (3, "N")), "k": (I64, (1,))},
        ("v", "y"),
    )
    check(
        made, *({"x": floats(3, n), "k": vector(k)} for n, k in ((9, 1), (9, 9), (70, 33), (5, 0)))
    )


@pytest.mark.parametrize("wanted", [None, "k"])
def test_a_split_of_an_open_size(wanted: str | None) -> None:
    inputs: dict[str, tuple[type, tuple[int | str, ...]]] = {"x": (F32, ("N", 2))}
    attrs = {"num_outputs": 3} if wanted is None else {}
    if wanted is not None:
        inputs["k"] = (I64, (3,))
    made = typed(
        [node("Split", f"x {wanted or ''}", "a b c", axis=0, **attrs)], inputs, ("a", "b", "c")
    )
    if wanted is None:
        check(made, *({"x": floats(n, 2)} for n in (6, 7, 3)))
    else:
        rows = ((1, 2, 3), (6, 0, 0))
        check(made, *({"x": floats(6, 2), "k": vector(*r)} for r in rows))


RESIZES = [
    {"mode": "nearest"},
    {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    {"mode": "nearest", "coordinate_transformation_mode": "align_corners", "nearest_mode": "ceil"},
    {"mode": "nearest", "nearest_mode": "round_prefer_ceil"},
    {"mode": "linear"},
    {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
    {"mode": "cubic", "cubic_coeff_a": -0.5},
    {"mode": "cubic", "exclude_outside": 1},
]


@pytest.mark.parametrize("attrs", RESIZES, ids=lambda attrs: "-".join(map(str, attrs.values())))
def test_resize_to_sizes_that_are_inputs(attrs: dict[str, object]) -> None:
    made = typed(
        [node("Resize", "x _ _ s", **attrs)], {"x": (F32, (1, 2, "H", "W")), "s": (I64, (4,))}
    )
    rows = (((5, 6), (7, 11)), ((5, 6), (5, 6)), ((8, 3), (2, 5)), ((2, 2), (9, 1)))
    sets = [{"x": floats(1, 2, *old), "s": vector(1, 2, *new)} for old, new in rows]
    check(made, *sets, tolerance=1e-4)


def test_resize_by_scales_that_are_inputs() -> None:
    made = typed(
        [node("Resize", "x _ s", mode="linear")], {"x": (F32, (1, 1, "H", 6)), "s": (F32, (4,))}
    )
    rows = ((1, 1, 2, 2), (1, 1, 0.6, 1), (1, 1, 1.5, 0.34))
    check(made, *({"x": floats(1, 1, 5, 6), "s": F32(row)} for row in rows), tolerance=1e-4)


def boxes(count: int, seed: int) -> np.ndarray:
    low = np.random.default_rng(seed).random((2, count, 2), F32) * 4
    return np.concatenate([low, low + 1 + low[::-1] % 1.0], 2).astype(F32)


@pytest.mark.parametrize("center", [0, 1])
def test_non_max_suppression_with_limits_of_the_run(center: int) -> None:
    inputs = {
        "b": (F32, (2, "N", 4)),
        "s": (F32, (2, 3, "N")),
        "m": (I64, (1,)),
        "o": (F32, (1,)),
        "t": (F32, (1,)),
    }
    made = typed([node("NonMaxSuppression", "b s m o t", center_point_box=center)], inputs)
    sets = [
        {
            "b": boxes(n, n),
            "s": np.random.default_rng(n).random((2, 3, n), F32),
            "m": vector(most),
            "o": F32([overlap]),
            "t": F32([least]),
        }
        for n, most, overlap, least in (
            *((20, 5, 0.5, 0.2), (20, 1 << 62, 0.1, 0.0), (1, 3, 0.5, 0.1), (40, 0, 0.5, 0.5)),
            *((65, 100, 0.9, 0.99), (7, 3, 0.0, 2.0)),
        )
    ]
    check(made, *sets)


def test_non_max_suppression_of_known_limits_and_what_follows() -> None:
    nodes = [
        node("NonMaxSuppression", "b s m o t", "n"),
        node("Gather", "n two", "i", axis=1),
        node("Gather", "b0 i", "c", axis=0),
        node("Mul", "c c"),
    ]
    nodes.insert(1, node("Squeeze", "b zero", "b0"))
    weights = {"m": vector(10), "o": F32([0.5]), "t": F32([0.3]), "two": np.array(2)}
    weights["zero"] = vector(0)
    made = typed(nodes, {"b": (F32, (1, "N", 4)), "s": (F32, (1, 2, "N"))}, ("n", "y"), weights)
    sets = [
        {"b": boxes(n, n)[:1], "s": np.random.default_rng(n).random((1, 2, n), F32)}
        for n in (1, 30, 200)
    ]
    check(made, *sets)


@pytest.mark.parametrize("exclude", [0, 1])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "half_pixel_symmetric", "asymmetric"])
def test_a_filter_reaches_as_far_as_the_scale_of_the_run_says(
    coordinates: str, mode: str, exclude: int
) -> None:
    """Against the matrices that are made where all is known."""
    attrs: dict[str, object] = {"antialias": 1, "mode": mode, "exclude_outside": exclude}
    attrs["coordinate_transformation_mode"] = coordinates
    nodes = [node("Resize", "x _ s", **attrs)]
    made = typed(nodes, {"x": (F32, (1, 2, "H", "W")), "s": (F32, (4,))})
    with intarsia.build(made, "llvm").load(threads=1) as executable:
        for sizes, scales in (((9, 8), (0.6, 0.45)), ((5, 31), (1.7, 0.1)), ((1, 7), (1, 0.9))):
            x, scale = floats(1, 2, *sizes), np.array([1, 1, *scales], F32)
            known = from_onnx(typed(nodes, {"x": (F32, x.shape)}, weights={"s": scale}))
            (wanted,) = evaluate(known.main, {"x": x})
            found = executable.run({"x": x, "s": scale})["y"]
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["AveragePool", "LpPool", "MaxPool"])
@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(
    ("kernel", "strides", "counts"), [((3, 2), (2, 2), 0), ((3, 3), (2, 3), 1), ((4, 2), (3, 1), 0)]
)
def test_pools_over_images_padded_by_the_run(op, auto, kernel, strides, counts) -> None:
    more = {"count_include_pad": counts} if op == "AveragePool" else {}
    made = node(op, "x", kernel_shape=kernel, strides=strides, auto_pad=auto, **more)
    sizes = ((9, 8), (4, 5), (3, 3), (7, 12))
    data = typed([made], {"x": (F32, ("N", 3, "H", "W"))})
    check(data, *({"x": floats(2, 3, *size)} for size in sizes), tolerance=1e-5)


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("align", [0, 1])
def test_grids_of_affine_maps(rank: int, align: int) -> None:
    nodes = [node("AffineGrid", "t s", align_corners=align)]
    inputs = {"t": (F32, ("N", rank, rank + 1)), "s": (I64, (rank + 2,))}
    sets = [
        {"t": floats(n, rank, rank + 1), "s": vector(n, 1, *sizes[:rank])}
        for n, sizes in ((2, (4, 3, 5)), (1, (2, 7, 6)))
    ]
    check(typed(nodes, inputs, opset=20), *sets, tolerance=1e-5)


def test_determinants_of_any_size() -> None:
    made = typed([node("Det", "x")], {"x": (F32, ("B", "N", "N"))})
    check(made, *({"x": floats(*shape)} for shape in ((2, 3, 3), (5, 1, 1), (1, 8, 8))))


def test_a_graph_around_a_branch_whose_rank_the_run_decides() -> None:
    """The rank of ``s`` is 0 or 1, inside a branch that is decided while the model is read."""
    text = """<ir_version: 9, opset_import: ["" : 18]>
        g (float[n, 3] x, bool c) => (float[n, 3] y) {
          yes = Constant <value = bool {1}> ()
          s, m = If (yes) <then_branch = t () => (p, q) {
              p = If (c) <then_branch = a () => (u) { u = ReduceSum <keepdims = 0> (x) },
                          else_branch = b () => (v) { v = Range (zero, three, one) }>
              q = Mul (p, p)
            }, else_branch = e () => (o, r) { o = Identity (x) r = Identity (x) }>
          z = Add (s, m)
          y = Add (x, z)
        }"""
    made = onnx.parser.parse_model(text)
    weights = {"zero": 0, "one": 1, "three": 3}
    made.graph.initializer.extend(
        numpy_helper.from_array(np.array(value, F32), name) for name, value in weights.items()
    )
    sets = [{"x": floats(n, 3), "c": np.array(c)} for n in (1, 4) for c in (False, True)]
    data = made.SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    artifact = intarsia.build(data, "llvm")
    assert not artifact.placement.host
    with artifact.load(threads=1) as executable:
        for feeds in sets:
            (wanted,) = session.run(None, feeds)
            np.testing.assert_allclose(executable.run(feeds)["y"], wanted, rtol=1e-5)


def test_what_does_not_go_together_is_refused_by_the_run() -> None:
    made = typed([node("Reshape", "x s")], {"x": (F32, (2, 6)), "s": (I64, (2,))})
    with intarsia.build(made, "llvm").load(threads=1) as executable:
        for wrong in (vector(5, 2), vector(5, -1), vector(-2, 6)):
            with pytest.raises(ModelError, match=r"number of elements|computes -2"):
                executable.run({"x": floats(2, 6), "s": wrong})
    made = typed([node("ConstantOfShape", "s")], {"s": (I64, (2,))})
    with intarsia.build(made, "llvm").load(threads=1) as executable:
        with pytest.raises(ModelError, match="computes -3 for the size"):
            executable.run({"s": vector(4, -3)})
        with pytest.raises(ResourceError, match=r"larger than any memory|no memory"):
            executable.run({"s": vector(1 << 40, 1 << 20)})
        assert executable.run({"s": vector(4, 3)})["y"].shape == (4, 3)


def test_known_sizes_alone_refuse_what_is_counted() -> None:
    for op, inputs in (("NonZero", "x"), ("Unique", "x"), ("Compress", "x c")):
        made = typed([node(op, inputs)], {"x": (F32, (3,)), "c": (BOOL, (3,))})
        with pytest.raises(UnsupportedError, match="is not known at compile time"):
            from_onnx(made)


@pytest.mark.parametrize(
    ("nodes", "inputs", "message"),
    [
        ([node("Split", "x k", "y z")], {"x": (F32, ("N",)), "k": (I64, (3,))}, "3 parts for 2"),
        (
            [node("NonMaxSuppression", "b s k")],
            {"b": (F32, (1, 5, 4)), "s": (F32, (1, 2, 6)), "k": (I64, (1,))},
            "do not fit scores",
        ),
        (
            [node("NonMaxSuppression", "b s k")],
            {"b": (F32, (1, 5, 4)), "s": (F32, (1, 2, 5)), "k": (I64, (2,))},
            "must be one number",
        ),
        (
            [node("AffineGrid", "x k")],
            {"x": (F32, (1, 2, 3)), "k": (I64, (5,))},
            r"maps .* for an image of 5 dimensions",
        ),
        (
            [node("Resize", "x _ _ k", mode="linear")],
            {"x": (F32, (1, 1, 4, 4)), "k": (I64, (3,))},
            "needs 4 scales or sizes",
        ),
        (
            [node("Resize", "x _ _ k", keep_aspect_ratio_policy="odd")],
            {"x": (F32, (1, 1, 4, 4)), "k": (I64, (4,))},
            "keep_aspect_ratio_policy='odd' is not defined",
        ),
    ],
)
def test_what_is_wrong_is_refused(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[type, tuple[int | str, ...]]],
    message: str,
) -> None:
    with collecting_guards(), pytest.raises((ModelError, UnsupportedError), match=message):
        from_onnx(typed(nodes, inputs, opset=20))
