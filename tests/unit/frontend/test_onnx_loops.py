# SPDX-License-Identifier: Apache-2.0
"""Loop and Scan that are written out turn by turn, against ONNX Runtime; and those that are not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from intarsia_onnx import from_onnx
from intarsia_runtime.errors import ModelError, UnsupportedError

from .onnx_models import assert_like_onnxruntime, model, node

F, I64, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def body(nodes: list[onnx.NodeProto], inputs: str, outputs: str) -> onnx.GraphProto:
    """A graph inside a node; ``name:kind`` words, ``f`` being a vector of three."""
    kinds = {"f": (F, [3]), "i": (I64, []), "b": (B, []), "s": (F, [])}

    def infos(words: str) -> list[onnx.ValueInfoProto]:
        pairs = (word.split(":") for word in words.split())
        return [helper.make_tensor_value_info(name, *kinds[kind]) for name, kind in pairs]

    return helper.make_graph(nodes, "body", infos(inputs), infos(outputs))


SUMS = body(
    [node("Add", "s e", "t"), node("Mul", "t w", "u"), node("Identity", "u", "v")],
    "s:f e:f",
    "t:f v:f",
)
TURNS = body(
    [
        node("Identity", "c", "d"),
        node("Cast", "n", "m", to=F),
        node("Add", "s m", "t"),
        node("Mul", "t w", "u"),
    ],
    "n:i c:b s:f",
    "d:b t:f u:f",
)
W = {"w": np.float32([1, 2, 3])}


def scanned(steps: tuple[int, ...] = (4, 3), **attrs) -> onnx.ModelProto:
    made = node("Scan", "x e", "t y", num_scan_inputs=1, body=SUMS, **attrs)
    return model([made], {"x": (3,), "e": steps}, weights=W, outputs=("t", "y"))


def looped(graph: onnx.GraphProto, turns: int, *, condition: bool = True) -> onnx.ModelProto:
    weights = {**W, "n": np.array(turns), "c": np.array(condition)}
    nodes = [node("Loop", "n c x", "t y", body=graph)]
    return model(nodes, {"x": (3,)}, weights=weights, outputs=("t", "y"))


@pytest.mark.parametrize(
    ("steps", "attrs"),
    [
        ((4, 3), {}),
        ((4, 3), {"scan_input_directions": [1], "scan_output_directions": [1]}),
        ((3, 5), {"scan_input_axes": [1], "scan_output_axes": [-1]}),
    ],
)
def test_scan(steps: tuple[int, ...], attrs: dict) -> None:
    assert_like_onnxruntime(scanned(steps, **attrs))


@pytest.mark.parametrize("turns", [1, 5])
def test_loop(turns: int) -> None:
    assert_like_onnxruntime(looped(TURNS, turns))


def test_a_loop_without_a_limit_ends_by_its_condition() -> None:
    """The condition follows from the number of the turn alone, so it is known."""
    ends = body(
        [node("Less", "n two", "d"), node("Add", "s w", "t"), node("Neg", "t", "u")],
        "n:i c:b s:f",
        "d:b t:f u:f",
    )
    proto = looped(ends, 100)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(2), "two"))
    assert_like_onnxruntime(proto)
    del proto.graph.node[0].input[:]
    proto.graph.node[0].input.extend(["", "", "x"])
    assert_like_onnxruntime(proto)


def test_what_is_not_written_out() -> None:
    unknown = body(
        [
            node("ReduceMax", "s", "m", keepdims=0),
            node("Less", "m one", "d"),
            node("Add", "s w", "t"),
        ],
        "n:i c:b s:f",
        "d:b t:f",
    )
    proto = looped(unknown, 3)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(1), "one"))
    proto.graph.node[0].output.pop()
    proto.graph.output.pop()
    empty = looped(TURNS, 3, condition=False)
    long = looped(TURNS, 1000)
    for made, message in (
        (proto, "Loop whose condition is not known at compile time"),
        (empty, "Loop of no (turns|iterations) that collects values"),
        (long, "Loop of 513 (turns|iterations) or more, 2052 nodes in all"),
        (scanned((1000, 3)), "Scan of 1000 (turns|iterations) or more, 3000 nodes in all"),
    ):
        with pytest.raises(UnsupportedError, match=message):
            from_onnx(made)


def test_broken_loops() -> None:
    short = scanned()
    held = next(a for a in short.graph.node[0].attribute if a.name == "body").g
    held.input.append(helper.make_tensor_value_info("more", F, [3]))
    many = scanned()
    next(a for a in many.graph.node[0].attribute if a.name == "num_scan_inputs").i = 3
    uneven = model(
        [
            node(
                "Scan",
                "x e",
                "y",
                num_scan_inputs=2,
                body=body([node("Add", "a b", "c")], "a:f b:f", "c:f"),
            )
        ],
        {"x": (2, 3), "e": (4, 3)},
    )
    for made, message in (
        (short, "'body' takes 3 values, 2 are given"),
        (many, "num_scan_inputs=3 of 2 operands"),
        (uneven, r"the operands have \[2, 4\] slices"),
    ):
        with pytest.raises(ModelError, match=message):
            from_onnx(made)


def batched(steps: tuple[int, ...] = (2, 4, 3), *, lengths: str = "_", **attrs) -> onnx.ModelProto:
    """A Scan as before opset 9: with a batch, and lengths of its sequences or none."""
    attrs = {"num_scan_inputs": 1, **attrs}
    made = node("Scan", f"{lengths} x e", "t y", body=SUMS, **attrs)
    weights = {**W, "n": np.array([4, 3])}
    return model([made], {"x": (2, 3), "e": steps}, weights=weights, outputs=("t", "y"), opset=8)


@pytest.mark.parametrize("directions", [[0], [1]])
def test_a_scan_of_a_batch(directions: list[int]) -> None:
    assert_like_onnxruntime(batched(directions=directions))


def test_broken_scans_of_a_batch() -> None:
    with pytest.raises(UnsupportedError, match="lengths of sequences that differ"):
        from_onnx(batched(lengths="n"))
    with pytest.raises(ModelError, match="num_scan_inputs=3 of 2 operands"):
        from_onnx(batched(num_scan_inputs=3))
    with pytest.raises(ModelError, match="the operands have batches of 2 and 5"):
        from_onnx(batched((5, 4, 3)))
    with pytest.raises(ModelError, match=r"\[\(2, 3\), \(2, 4\)\] samples and slices"):
        from_onnx(
            model(
                [node("Scan", "_ x e", "y", num_scan_inputs=2, body=SUMS)],
                {"x": (2, 3, 3), "e": (2, 4, 3)},
                weights=W,
                opset=8,
            )
        )
