# SPDX-License-Identifier: Apache-2.0
"""Nodes that ran before give what they would give anew, whatever changed since."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from intarsia_onnx.dynamic import evaluator as evaluator_module
from intarsia_onnx.dynamic import recipes
from intarsia_onnx.dynamic.evaluator import Evaluator
from intarsia_onnx.graph import Bodies, Node
from intarsia_onnx.reader import read_model, standard_bodies
from intarsia_runtime.errors import IntarsiaError

Operands = list["np.ndarray | None"]


def parsed(op: str, count: int, *, outputs: int = 1, domain: str = "", **attrs: Any) -> Node:
    """A node of so many operands, as the reader gives it."""
    names, results = [f"x{n}" for n in range(count)], [f"y{n}" for n in range(outputs)]
    node = helper.make_node(op, names, results, name="it", domain=domain, **attrs)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ()) for name in names]
    outs = [helper.make_empty_tensor_value_info(name) for name in results]
    graph = helper.make_graph([node], "g", infos, outs)
    imports = [helper.make_opsetid("", 21), *([helper.make_opsetid(domain, 1)] if domain else [])]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=imports)
    return read_model(model, any_value=True).graph.nodes[0]


def results(evaluator: Evaluator, node: Node, operands: Operands) -> list[Any]:
    """What a node gives, or the kind of error and its text."""
    try:
        return list(evaluator.node(node, dict(zip(node.inputs, operands, strict=True)), 21))
    except IntarsiaError as error:
        return [type(error).__name__, str(error)]


def assert_same(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        if isinstance(b, str):
            assert a == b
            continue
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def slice_(rng: np.random.Generator) -> Operands:
    x = rng.standard_normal((4, 5)).astype(np.float32)
    begin, end = rng.integers(-5, 5, (2, 2))
    return [x, begin, end, i64(0, 1), rng.choice([-2, -1, 1, 2], 2)]


def pad(rng: np.random.Generator) -> Operands:
    fill = np.array(rng.integers(0, 3), np.float32)
    return [rng.standard_normal((2, 3)).astype(np.float32), rng.integers(-1, 3, 4), fill]


def range_(rng: np.random.Generator) -> Operands:
    return [np.array(value) for value in (*rng.integers(-3, 20, 2), rng.choice([-1, 1, 3]))]


def reshape(rng: np.random.Generator) -> Operands:
    shapes = (i64(6, 4), i64(-1, 2), i64(0, -1), i64(24), i64(5, 5))
    return [rng.standard_normal((4, 6)), shapes[rng.integers(len(shapes))]]


def gather(rng: np.random.Generator) -> Operands:
    return [rng.standard_normal((5, 3)), rng.integers(-6, 6, rng.integers(1, 3))]


def resize(rng: np.random.Generator) -> Operands:
    x = rng.standard_normal((1, 2, 4, 4)).astype(np.float32)
    return [x, np.zeros(0, np.float32), np.zeros(0, np.float32), i64(1, 2, *rng.integers(1, 9, 2))]


def clip(rng: np.random.Generator) -> Operands:
    limits = [np.array(x, np.float32) for x in rng.integers(-2, 2, 2)]
    return [rng.standard_normal(4).astype(np.float32) * 2, *limits]


def expand(rng: np.random.Generator) -> Operands:
    return [rng.standard_normal((3, 1)), i64(*rng.integers(1, 4, 1), 1, *rng.integers(1, 4, 1))]


def one_hot(rng: np.random.Generator) -> Operands:
    return [rng.integers(-3, 3, 4), np.array(rng.integers(1, 5)), np.array([0.0, 2.0])]


def matmul(rng: np.random.Generator) -> Operands:
    return [rng.standard_normal((rng.integers(1, 3), 3)), rng.standard_normal((3, 2))]


def unsqueeze(rng: np.random.Generator) -> Operands:
    return [rng.standard_normal(3), i64(*rng.permutation(3)[: rng.integers(1, 3)])]


def narrow(rng: np.random.Generator) -> Operands:
    kind = (ml_dtypes.float8_e4m3fn, np.float32)[rng.integers(2)]
    return [rng.standard_normal((2, 3)).astype(kind)]


CASES: dict[str, tuple[Callable[[np.random.Generator], Operands], Node]] = {
    "Slice": (slice_, parsed("Slice", 5)),
    "Pad": (pad, parsed("Pad", 3)),
    "Range": (range_, parsed("Range", 3)),
    "Reshape": (reshape, parsed("Reshape", 2)),
    "Gather": (gather, parsed("Gather", 2, axis=0)),
    "Resize": (resize, parsed("Resize", 4, mode="linear")),
    "Clip": (clip, parsed("Clip", 3)),
    "Expand": (expand, parsed("Expand", 2)),
    "OneHot": (one_hot, parsed("OneHot", 3)),
    "MatMul": (matmul, parsed("MatMul", 2)),
    "Unsqueeze": (unsqueeze, parsed("Unsqueeze", 2)),
    "Transpose": (narrow, parsed("Transpose", 1, perm=[1, 0])),
    "Cast": (narrow, parsed("Cast", 1, to=TensorProto.FLOAT8E5M2)),
}


@pytest.mark.parametrize("name", CASES)
@given(st.integers(0, 1 << 30), st.lists(st.integers(0, 5), min_size=3, max_size=24))
@settings(max_examples=25, deadline=None)
def test_remembered_is_anew(name: str, seed: int, order: list[int]) -> None:
    """Six sets of operands, in any order and repeated, on one evaluator and on fresh ones."""
    make, node = CASES[name]
    rng = np.random.default_rng(seed)
    sets = [make(rng) for _ in range(6)]
    wanted = [results(Evaluator(standard_bodies), node, operands) for operands in sets]
    evaluator = Evaluator(standard_bodies)
    for which in order:
        assert_same(results(evaluator, node, sets[which]), wanted[which])


class Conversions:
    """Counts what is converted anew."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        convert = evaluator_module._convert

        def counted(*args: Any) -> Any:
            self.count += 1
            return convert(*args)

        monkeypatch.setattr(evaluator_module, "_convert", counted)


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> Conversions:
    return Conversions(monkeypatch)


SLICE = parsed("Slice", 3)
ROWS = np.arange(12.0).reshape(4, 3)


def test_converted_twice_and_never_again(conversions: Conversions) -> None:
    evaluator = Evaluator(standard_bodies)
    for turn in range(10):
        found = results(evaluator, SLICE, [ROWS + turn, i64(1), i64(3)])
        assert_same(found, [(ROWS + turn)[1:3]])
    assert conversions.count == 2


def test_a_value_that_is_read_makes_another_form(conversions: Conversions) -> None:
    evaluator = Evaluator(standard_bodies)
    for _ in range(3):
        for end in (2, 3, 4):
            assert_same(results(evaluator, SLICE, [ROWS, i64(1), i64(end)]), [ROWS[1:end]])
    assert conversions.count == 4


def test_what_never_comes_again_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "MOST_MISSES", 8)
    monkeypatch.setattr(recipes, "MOST_FORMS", 3)
    evaluator = Evaluator(standard_bodies)
    long = np.arange(100.0)
    for end in range(1, 50):
        assert_same(results(evaluator, SLICE, [long, i64(0), i64(end)]), [long[:end]])
        (forms,) = evaluator._recipes._forms.values()
        assert len(forms.recipes) <= 3
    assert forms.misses > 8
    for end in range(1, 50):
        assert_same(results(evaluator, SLICE, [long[:end], i64(0), i64(end)]), [long[:end]])
    assert len(forms.met) <= 3


@pytest.mark.parametrize("sizes", [range(50, 100, 10), range(3, 30)], ids=["large", "small"])
def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch, sizes: range) -> None:
    monkeypatch.setattr(recipes, "MOST_BYTES", 4000)
    monkeypatch.setattr(recipes, "MOST_FORMS", 100)
    evaluator = Evaluator(standard_bodies)
    node = parsed("Range", 3)
    kept = 0
    for end in sizes:
        operands = [np.array(0), np.array(end), np.array(1)]
        for _ in range(4):
            assert_same(results(evaluator, node, operands), [np.arange(end)])
        kept = max(kept, evaluator._recipes._bytes)
        assert evaluator._recipes._bytes <= 4000
    assert kept > 1500


def test_large_values_are_not_compared(conversions: Conversions) -> None:
    """Indices that the converter checks: as large ones, they are checked at every run."""
    node, data = parsed("Gather", 2, axis=0), np.arange(3.0)
    evaluator = Evaluator(standard_bodies)
    indices = np.zeros(1000, np.int64)
    for _ in range(5):
        assert_same(results(evaluator, node, [data, indices]), [np.zeros(1000)])
    assert conversions.count == 6
    indices[500] = 3
    assert results(evaluator, node, [data, indices])[0] == "ModelError"


def test_arrays_of_the_program_are_known_by_identity(conversions: Conversions) -> None:
    node, data, indices = parsed("Gather", 2, axis=0), np.arange(3.0), np.zeros(1000, np.int64)
    evaluator = Evaluator(standard_bodies, frozenset({id(indices)}))
    for _ in range(5):
        assert_same(results(evaluator, node, [data, indices]), [np.zeros(1000)])
    assert conversions.count == 2


def test_what_is_kept_cannot_be_written_to() -> None:
    node = parsed("Shape", 1)
    evaluator = Evaluator(standard_bodies)
    for _ in range(4):
        (found,) = results(evaluator, node, [ROWS])
        assert found.tolist() == [4, 3]
    assert not found.flags.writeable


def test_an_operand_that_its_owner_changes() -> None:
    """Values are compared, whatever array they are in; what was read is not that array."""
    node = parsed("Reshape", 2)
    evaluator, shape = Evaluator(standard_bodies), i64(6, 2)
    for sizes in ([6, 2], [6, 2], [6, 2], [2, 6], [6, 2], [2, 6], [2, 6]):
        shape[...] = sizes
        assert_same(results(evaluator, node, [ROWS, shape]), [ROWS.reshape(sizes)])


def test_what_follows_from_weights_is_computed_once(conversions: Conversions) -> None:
    """A chain of nodes on an array of the program, too large to be compared."""
    weights = np.arange(6000.0)
    weights.flags.writeable = False
    turn, take = parsed("Neg", 1), parsed("Gather", 2, axis=0)
    evaluator = Evaluator(standard_bodies, frozenset({id(weights)}))
    index = i64(5, 6)
    found = []
    for _ in range(5):
        (negative,) = results(evaluator, turn, [weights])
        assert_same([negative], [-weights])
        assert_same(results(evaluator, take, [negative, index]), [np.array([-5.0, -6.0])])
        found.append(negative)
    assert found[-1] is found[-2]
    assert conversions.count == 4


def test_an_error_does_not_end_remembering(conversions: Conversions) -> None:
    node = parsed("Reshape", 2)
    evaluator = Evaluator(standard_bodies)
    for _ in range(3):
        assert results(evaluator, node, [ROWS, i64(5, 5)])[0] != "ndarray"
    before = conversions.count
    for _ in range(4):
        assert_same(results(evaluator, node, [ROWS, i64(6, 2)]), [ROWS.reshape(6, 2)])
    assert conversions.count == before + 1


def test_bodies_are_expanded_once_for_types() -> None:
    asked: list[int] = []

    def bodies() -> Bodies:
        asked.append(1)
        return standard_bodies()

    node = parsed("CenterCropPad", 2)
    image, size = np.ones((2, 3), np.float32), i64(1, 3)
    evaluator = Evaluator(bodies)
    first = results(evaluator, node, [image, size])
    for _ in range(3):
        assert_same(results(evaluator, node, [image, size]), first)
    assert len(asked) == 1
    wider = results(evaluator, node, [np.ones((2, 2, 3), np.float32), i64(2, 1, 4)])
    assert wider[0].shape == (2, 1, 4)
    assert len(asked) == 2


def test_threads_share_recipes() -> None:
    evaluator = Evaluator(standard_bodies)

    def run(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(200):
            begin, end = sorted(rng.integers(0, 5, 2))
            data = rng.standard_normal((4, 3))
            assert_same(results(evaluator, SLICE, [data, i64(begin), i64(end)]), [data[begin:end]])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))


def test_operators_of_other_domains() -> None:
    """A contributed operator has no kernel on the host, but a converter."""
    node = parsed("QLinearAdd", 8, domain="com.microsoft")
    scale, zero = np.array(0.5, np.float32), np.array(0, np.uint8)
    a, b = (np.array(x, np.uint8) for x in ([1, 2, 3], [4, 5, 6]))
    found = results(Evaluator(standard_bodies), node, [a, scale, zero, b, scale, zero, scale, zero])
    assert_same(found, [a + b])
