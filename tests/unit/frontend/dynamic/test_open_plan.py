# SPDX-License-Identifier: Apache-2.0
"""Programs with pieces of open sizes: what is compiled, and that the program computes the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from intarsia_ir.graph.guards import RequiredSizes, collecting_guards
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, variable
from intarsia_onnx.dynamic import DynamicModel, plan_read, run_reference
from intarsia_onnx.dynamic.program import PIECE, PieceStep
from intarsia_onnx.dynamic.results import Operands, result_types
from intarsia_onnx.graph import Graph, Node
from intarsia_onnx.reader import read_model
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError

ML = "ai.onnx.ml"
F, I64, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Sizes = Sequence[int | str] | None


def graph(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, tuple[int, Sizes]],
    outputs: Mapping[str, int],
    **weights: np.ndarray,
) -> onnx.GraphProto:
    return helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, *row) for name, row in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )


def model(made: onnx.GraphProto) -> ModelProto:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    return helper.make_model(made, opset_imports=opsets, ir_version=9)


def op(kind: str, inputs: str, outputs: str, **attrs) -> NodeProto:
    names = [name if name != "_" else "" for name in inputs.split()]
    return helper.make_node(kind, names, outputs.split(), name=outputs.split()[0], **attrs)


def planned(proto: ModelProto, hosted: Mapping[str, str] | None = None) -> DynamicModel:
    with collecting_guards():
        found = plan_read(read_model(proto, any_value=True), opens=True, hosted=hosted or {})
    assert isinstance(found, DynamicModel)
    return found


def steps(nodes: Sequence[PieceStep | Node]) -> list[str]:
    """Steps in order, those of graphs inside a node in brackets behind it."""
    found: list[str] = []
    for step in nodes:
        is_piece = isinstance(step, PieceStep) or step.op_type == PIECE
        found.append("piece" if is_piece else step.op_type)
        for value in () if isinstance(step, PieceStep) else step.attrs.values():
            if isinstance(value, Graph):
                found.append(f"[{' '.join(steps(value.nodes))}]")
    return found


def agrees(proto: ModelProto, found: DynamicModel, *inputs: np.ndarray) -> None:
    names = [info.name for info in proto.graph.input]
    session = ort.InferenceSession(proto.SerializeToString())
    wanted = session.run(None, dict(zip(names, inputs, strict=True)))
    with np.errstate(all="ignore"):
        results = run_reference(found, list(inputs))
    for mine, theirs in zip(results, wanted, strict=True):
        assert isinstance(mine, np.ndarray)
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def counted() -> ModelProto:
    nodes = [
        op("MatMul", "x w", "a"),
        op("NonZero", "a", "places"),
        op("Transpose", "places", "rows", perm=[1, 0]),
        op("GatherND", "a rows", "values"),
        op("Exp", "values", "y"),
    ]
    return model(graph(nodes, {"x": (F, ["n", 4])}, {"y": F}, w=drawn(4, 5)))


def hosted() -> ModelProto:
    """A node that is carried out on the host between two that are compiled."""
    nodes = [
        op("MatMul", "x w", "a"),
        op("Sign", "a", "signs"),
        op(
            "LabelEncoder", "signs", "d", domain=ML, keys_floats=[-1.0, 1.0], values_floats=[0.5, 2]
        ),
        op("Exp", "d", "y"),
    ]
    weights = {"w": drawn(4, 9)}
    return model(graph(nodes, {"x": (F, ["n", 4])}, {"y": F}, **weights))


ASKED = {"places": "the user asks for it"}
"""The node of a model that could be compiled whole, and is not."""


def body(*nodes: NodeProto, **outputs: int) -> onnx.GraphProto:
    inputs = {"turn": (I64, []), "go": (B, []), "s": (F, None)}
    last = op("Identity", "go", "again")
    return graph([*nodes, last], inputs, {"again": B, **outputs})


def looped(inside: onnx.GraphProto) -> ModelProto:
    nodes = [op("Loop", "count _ x", "last rows", body=inside), op("Exp", "last", "y")]
    inputs = {"x": (F, ["n", 4]), "count": (I64, [])}
    return model(graph(nodes, inputs, {"y": F, "rows": F}, w=drawn(4, 4)))


def carried() -> ModelProto:
    row = op("ReduceSum", "t", "r", keepdims=0)
    return looped(body(op("MatMul", "s w", "m"), op("Tanh", "m", "t"), row, t=F, r=F))


def growing() -> ModelProto:
    first = op("ReduceMean", "s", "m", axes=[0], keepdims=1)
    more = [op("MatMul", "m w", "p"), op("Concat", "s p", "t", axis=0)]
    return looped(body(first, *more, op("ReduceMax", "t", "r", keepdims=0), t=F, r=F))


def scanned() -> ModelProto:
    inside = graph(
        [op("MatMul", "s w", "m"), op("Add", "m row", "t"), op("Identity", "t", "each")],
        {"s": (F, None), "row": (F, None)},
        {"t": F, "each": F},
    )
    nodes = [op("Scan", "first x", "last all", body=inside, num_scan_inputs=1)]
    inputs = {"x": (F, ["t", "b", 4]), "first": (F, ["b", 4])}
    return model(graph([*nodes, op("Exp", "all", "y")], inputs, {"last": F, "y": F}, w=drawn(4, 4)))


def cut() -> ModelProto:
    """A scan whose rows are as long as each iteration says; then a size of these is all it needs.

    The mask reads no row: it must still wait for the scan.
    """
    inside = graph(
        [op("Slice", "row zero length zero", "head"), op("Concat", "head row", "all", axis=0)],
        {"row": (F, None), "length": (I64, [1])},
        {"all": F},
    )
    nodes = [
        op("Unsqueeze", "lengths last", "columns"),
        op("Scan", "x columns", "rows", body=inside, num_scan_inputs=2),
        op("Shape", "rows", "sizes"),
        op("Gather", "sizes one", "count"),
        op("Range", "none count one", "places"),
        op("Unsqueeze", "places zero", "row"),
        op("Unsqueeze", "lengths last", "column"),
        op("Less", "row column", "mask"),
        op("Where", "mask rows nothing", "y"),
    ]
    numbers = {"zero": np.array([0]), "last": np.array([-1]), "one": np.array(1)}
    more = {"none": np.array(0), "nothing": np.zeros((), np.float32)}
    inputs = {"x": (F, ["b", "n"]), "lengths": (I64, ["b"])}
    return model(graph(nodes, inputs, {"y": F}, **numbers, **more))


def ranked() -> ModelProto:
    """A ``Squeeze`` in a branch that decides a rank, and what follows."""
    nodes = [
        op("Shape", "x", "sizes"),
        op("Gather", "sizes last", "size"),
        op("Equal", "size one", "is_one"),
        op(
            "If", "is_one", "v",
            then_branch=graph([op("Squeeze", "x ends", "then")], {}, {"then": F}),
            else_branch=graph([op("Identity", "x", "else")], {}, {"else": F}),
        ),
        op("MatMul", "w v", "m"),
        op("Relu", "m", "y"),
    ]  # fmt: skip
    weights = {"last": np.array(1), "one": np.array(1), "ends": np.array([1]), "w": drawn(5, 4)}
    return model(graph(nodes, {"x": (F, [4, "n"])}, {"y": F}, **weights))


def decided() -> ModelProto:
    nodes = [
        op(
            "If", "c", "v",
            then_branch=graph([op("MatMul", "x w", "then")], {}, {"then": F}),
            else_branch=graph([op("MatMul", "x u", "else")], {}, {"else": F}),
        ),
        op("ReduceSum", "v", "y"),
    ]  # fmt: skip
    weights = {"w": drawn(4, 3), "u": drawn(4, 6)}
    return model(graph(nodes, {"x": (F, ["n", 4]), "c": (B, [])}, {"y": F}, **weights))


CASES: dict[str, tuple[Callable[[], ModelProto], list[str], list[list[np.ndarray]]]] = {
    "a count of the run": (
        counted, ["piece", "NonZero", "piece", "Require"], [[drawn(n, 4)] for n in (1, 3, 7)],
    ),
    "a loop": (
        carried, ["Loop", "[Identity piece]", "piece"],
        [[drawn(n, 4), np.array(k)] for n, k in ((1, 1), (3, 5))],
    ),
    "a loop that grows": (
        growing, ["Loop", "[Identity piece]", "piece"],
        [[drawn(n, 4), np.array(k)] for n, k in ((1, 2), (3, 3))],
    ),
    "a scan": (
        scanned, ["Scan", "[piece]", "piece"],
        [[drawn(t, b, 4), drawn(b, 4)] for t, b in ((1, 2), (5, 1))],
    ),
    "a scan of rows whose size an iteration computes": (
        cut, ["piece", "Scan", "[piece]", "piece"],
        [[drawn(b, n), np.full(b, k)] for b, n, k in ((2, 5, 3), (1, 4, 9), (3, 6, 0))],
    ),
    "a rank that a branch decides": (
        ranked, ["piece", "If", "[piece]", "[piece]"], [[drawn(4, 1)], [drawn(4, 3)]],
    ),
    "a branch that decides a size": (
        decided, ["If", "[piece]", "[piece]", "piece"],
        [[drawn(2, 4), np.array(True)], [drawn(3, 4), np.array(False)]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_surrounds_a_step_is_compiled(name: str) -> None:
    make, wanted, inputs = CASES[name]
    found = planned(make(), ASKED if make is counted else None)
    assert steps(found.program.steps) == wanted
    for row in inputs:
        agrees(make(), found, *row)


def test_a_node_that_cannot_be_compiled_is_a_step_of_known_type() -> None:
    found = planned(counted(), {**ASKED, "y": "no code for it"})
    assert steps(found.program.steps) == ["piece", "NonZero", "piece", "Exp", "Require"]
    assert found.reasons["y"] == "no code for it"
    agrees(counted(), found, drawn(3, 4))


def test_what_follows_classes_of_texts_is_compiled() -> None:
    """ONNX infers no shape of the first version of LabelEncoder."""
    nodes = [
        op("LabelEncoder", "words", "numbers", domain=ML, classes_strings=["", "a", "b"]),
        op("Gather", "w numbers", "rows"),
        op("Tanh", "rows", "y"),
    ]
    made = graph(nodes, {"words": (TensorProto.STRING, ["n", 8])}, {"y": F}, w=drawn(4, 5))
    proto = helper.make_model(
        made,
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(ML, 1)],
        ir_version=9,
    )
    found = planned(proto)
    assert steps(found.program.steps) == ["LabelEncoder", "piece", "Require"]
    agrees(proto, found, np.array([[*"ab", *[""] * 6], [*"bz", *[""] * 6]], object))


def test_sizes_that_one_piece_computes_are_known_to_later_ones() -> None:
    """What crosses has twice the computed size: its shape alone would not tell it."""
    nodes = [
        op("ReduceSum", "d", "total", keepdims=0),
        op("Range", "zero total one", "r"),
        op("Concat", "r r", "twice", axis=0),
        op("LabelEncoder", "words", "c", domain=ML, keys_strings=["a", "b"], values_int64s=[3, 4]),
        op("Unsqueeze", "c ends", "column"),
        op("Mul", "column twice", "y"),
        op("Reshape", "y row", "z"),
        op("Add", "z other", "w"),
    ]
    numbers = {
        "zero": np.int64(0),
        "one": np.int64(1),
        "ends": np.array([1]),
        "row": np.array([-1]),
    }
    inputs = {"words": (TensorProto.STRING, ["n"]), "d": (I64, ["k"]), "other": (I64, ["m"])}
    made = graph(nodes, inputs, {"w": I64}, **{n: np.asarray(v) for n, v in numbers.items()})
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 2)]
    proto = helper.make_model(made, opset_imports=opsets, ir_version=9)
    found = planned(proto)
    assert steps(found.program.steps) == ["piece", "LabelEncoder", "piece"]
    for words, d in (("ab", [2, 1]), ("b", [4]), ("", [1, 1])):
        other = np.arange(len(words) * 2 * sum(d))
        agrees(proto, found, np.array([*words], object), np.array(d), other)


def test_a_later_step_may_have_a_size_that_an_earlier_piece_computes() -> None:
    """The size is there from the piece on, not only from the result of the step."""
    nodes = [
        op("Unique", "x", "u i j c"),
        op("ReduceMax", "c", "d", keepdims=1),
        op("OneHot", "c d v", "y"),
    ]
    values = {"v": np.array([0, 1], np.float32)}
    proto = model(graph(nodes, {"x": (F, ["n"])}, {"u": F, "y": F}, **values))
    found = planned(proto, {"y": "the user asks for it"})
    assert steps(found.program.steps) == ["piece", "OneHot"]
    for row in ([1, 1, 2], [5], [3, 1, 3, 3, 2, 1]):
        agrees(proto, found, np.array(row, np.float32))


def test_a_piece_requires_what_was_assumed_of_its_sizes() -> None:
    nodes = [op("NonZero", "x", "n"), op("Squeeze", "x ends", "y")]
    proto = model(graph(nodes, {"x": (F, [4, "n"])}, {"n": I64, "y": F}, ends=np.array([1])))
    (piece,) = planned(proto, {"n": "the user asks for it"}).pieces.values()
    required = piece.attr(RequiredSizes)
    assert required is not None
    assert [str(guard.left) for guard in required.guards] == ["n", "4*n"]


def test_sizes_that_no_piece_knows_cannot_be_required() -> None:
    nodes = [op("NonZero", "x", "n"), op("Squeeze", "x ends", "q"), op("Shape", "q", "s")]
    outputs = {"n": I64, "s": I64}
    proto = model(graph(nodes, {"x": (F, [4, "n"])}, outputs, ends=np.array([1])))
    with pytest.raises(UnsupportedError, match="must have size 1: no piece knows n and 1"):
        planned(proto, {"n": "the user asks for it"})


N = variable("n")


def kinds(*shapes: Sequence[object] | None) -> list[TensorType | None]:
    return [None if s is None else TensorType(tuple(s), DType.FLOAT32) for s in shapes]  # type: ignore[arg-type]


RESULTS = {
    "NonZero": (kinds((N, 3)), {}, {}, ["(2, y.1)"]),
    "Compress": (kinds((N, 3), (N,)), {}, {"axis": 0}, ["(y.0, 3)"]),
    "Compress all": (kinds((N, 3), (N,)), {}, {}, ["(y.0,)"]),
    "Unique": (kinds((N,)), {}, {}, ["(y.0,)", "(y.0,)", "(y2.0,)", "(y.0,)"]),
    "Unique rows": (kinds((N, 3)), {}, {"axis": 0}, ["(y.0, 3)", "(y.0,)", "(y2.0,)", "(y.0,)"]),
    "NonMaxSuppression": (kinds((1, N, 4)), {}, {}, ["(y.0, 3)"]),
    "Range": (kinds((), (), ()), {}, {}, ["(y.0,)"]),
    "Reshape": (kinds((N, 4), (3,)), {1: [0, None, 2]}, {}, ["(n, y.1, 2)"]),
    "Expand": (kinds((N, 1), (3,)), {1: [None, 1, 5]}, {}, ["(y.0, n, 5)"]),
    "ConstantOfShape": (kinds((2,)), {0: [None, N]}, {}, ["(y.0, n)"]),
    "Resize": (kinds((N, 3, 8), None, None, (3,)), {3: [N, 3, None]}, {}, ["(n, 3, y.2)"]),
    "Slice": (kinds((N, 3), (1,), (1,), (1,)), {3: [0]}, {}, ["(y.0, 3)"]),
    "Slice of the first": (kinds((N, 3), (1,), (1,)), {}, {}, ["(y.0, 3)"]),
    "Slice of any": (kinds((N, 3), (1,), (1,), (1,)), {3: [None]}, {}, ["(y.0, y.1)"]),
    "TopK": (kinds((N, 3), (1,)), {}, {"axis": 0}, ["(y.0, 3)", "(y.0, 3)"]),
    "OneHot": (kinds((N,), (), (2,)), {}, {}, ["(n, y.1)"]),
    "Tile": (kinds((N, 3), (2,)), {}, {}, ["(y.0, y.1)"]),
    "MaxPool": (kinds((N, 3, 8)), {}, {}, ["(n, 3, y.2)", "(n, 3, y.2)"]),
    "RandomNormalLike": (kinds((N, 3)), {}, {}, ["(n, 3)"]),
    "Relu": (kinds((N,)), {}, {}, []),
}


@pytest.mark.parametrize("name", RESULTS)
def test_types_of_results_of_steps(name: str) -> None:
    types, sizes, attrs, wanted = RESULTS[name]
    names = ("y", "y1", "y2", "y3")[: max(len(wanted), 1)]
    node = Node(name.split()[0], "", (), names, attrs, None)  # type: ignore[arg-type]
    found = result_types(node, Operands(types, sizes.get))
    texts = [
        f"({', '.join(map(str, t.shape))}{',' * (t.rank == 1)})".replace('"', "")
        for t in found.values()
    ]
    assert texts == wanted


@pytest.mark.parametrize(
    "name", sorted(set(RESULTS) - {"NonMaxSuppression", "ConstantOfShape", "Relu"})
)
def test_results_of_an_unknown_rank_have_no_type(name: str) -> None:
    node = Node(name.split()[0], "", (), ("y",), {}, None)  # type: ignore[arg-type]
    assert result_types(node, Operands([None] * 4, lambda number: None)) == {}


def test_a_model_that_counts_is_a_module() -> None:
    with collecting_guards():
        assert isinstance(plan_read(read_model(counted(), any_value=True), opens=True), IRModule)


def test_a_model_of_known_sizes_is_a_module() -> None:
    proto = model(graph([op("Exp", "x", "y")], {"x": (F, [2])}, {"y": F}))
    with collecting_guards():
        assert isinstance(plan_read(read_model(proto, any_value=True), opens=True), IRModule)
