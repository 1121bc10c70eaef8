# SPDX-License-Identifier: Apache-2.0
"""Attention of ONNX Runtime's domain in all its forms, against ONNX Runtime itself."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests.unit.frontend.contributed_cases import DOMAIN, Case, Const, check, expected, session
from tests.unit.frontend.onnx_models import node

from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import IntarsiaError, ModelError, UnsupportedError

RNG = np.random.default_rng(5)
BATCH = {0: "B", 1: "S"}


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def case(op: str, *operands, outputs=(0,), open=None, **attrs) -> Case:
    return Case(op, operands, attrs, outputs, DOMAIN, open or {})


def masks(batch: int, queries: int, keys: int) -> Iterator[tuple[np.ndarray | None, dict]]:
    """All kinds of masks, with the dimensions of theirs that may be open."""
    yield None, {}
    whole = RNG.integers(0, 2, (batch, keys)).astype(np.int32)
    whole[:, 0] = 1
    yield whole, {0: "B", 1: "T"}
    each = RNG.integers(0, 2, (batch, queries, keys)).astype(np.int32)
    each[:, :, 0] = 1
    yield each, {0: "B", 1: "S", 2: "T"}
    ends = RNG.integers(1, keys + 1, batch).astype(np.int32)
    yield ends, {0: "B"}
    yield np.concatenate([ends, ends // 2]), {}


def attention() -> Iterator[Case]:
    """Masks, with and without later keys, past, additions to the scores and other sizes."""
    for batch, heads, causal in product((1, 2), (1, 2), (0, 1)):
        x, w, b = floats(batch, 4, 6), Const(floats(6, 24)), Const(floats(24))
        base = {"num_heads": heads, "unidirectional": causal}
        for mask, sizes in masks(batch, 4, 4):
            opened = {3: {axis: name.replace("T", "S") for axis, name in sizes.items()}}
            opened = {0: BATCH, **opened} if sizes or mask is None else None
            operands = (x, w, b, mask) if mask is not None else (x, w, b)
            yield case("Attention", *operands, open=opened, **base)
        yield case("Attention", x, w, b, outputs=(0, 1), open={0: BATCH}, **base)
        past = floats(2, batch, heads, 3, 8 // heads)
        for mask, sizes in masks(batch, 4, 7):
            opened = {0: {0: "B"}, 3: {0: "B"}, 4: {1: "B"}} if sizes or mask is None else None
            yield case("Attention", x, w, b, mask, past, outputs=(0, 1), open=opened, **base)
        extra = floats(batch, heads, 4, 4)
        yield case("Attention", x, w, b, None, None, extra, **base)
        yield case("Attention", x, w, b, ints(*[3] * batch), None, extra[:1, :1], **base)
        wide = Const(floats(6, 28))
        sizes = [8, 8, 12]
        yield case("Attention", x, wide, Const(floats(28)), qkv_hidden_sizes=sizes, **base)
        yield case("Attention", x, w, b, scale=0.3, **base)
        mask = np.array([[1, 0, 1, 0]] * batch, np.int32)
        yield case("Attention", x, w, b, mask, mask_filter_value=-1.5, **base)
        yield case("Attention", x, w, b, np.zeros((batch, 4), np.int32), **base)


def quantized() -> Iterator[Case]:
    """QAttention with weights of both types, per tensor and per column."""
    for batch, signed, columns, causal in product((1, 2), (False, True), (False, True), (0, 1)):
        x = RNG.integers(0, 256, (batch, 4, 6)).astype(np.uint8)
        if signed:
            w = RNG.integers(-128, 128, (6, 24)).astype(np.int8)
        else:
            w = RNG.integers(0, 256, (6, 24)).astype(np.uint8)
        bias = Const(floats(24))
        scale = floats(24) ** 2 * 0.01 + 0.001 if columns else np.float32(0.005)
        zero = np.zeros(24 if columns else (), w.dtype) + w.dtype.type(0 if signed else 128)
        base = [Const(w), bias, Const(np.float32(0.02)), Const(np.asarray(scale, np.float32))]
        zeros = [Const(np.uint8(120)), Const(np.asarray(zero, w.dtype))]
        attrs = {"num_heads": 2, "unidirectional": causal}
        yield case("QAttention", x, *base, None, *zeros, open={0: BATCH}, **attrs)
        yield case("QAttention", x, *base, ints(*[3] * batch), *zeros, **attrs)
        past = floats(2, batch, 2, 3, 4)
        yield case("QAttention", x, *base, None, *zeros, past, outputs=(0, 1), **attrs)


def heads() -> Iterator[Case]:
    """MultiHeadAttention: packed and separate operands, biases, masks, past and outputs."""
    op = "MultiHeadAttention"
    for batch, count, causal in product((1, 2), (1, 2), (0, 1)):
        attrs = {"num_heads": count, "unidirectional": causal}
        size = 8 // count
        q, k, v = floats(batch, 4, 8), floats(batch, 4, 8), floats(batch, 4, 8)
        opened = {0: BATCH, 1: BATCH, 2: BATCH}
        yield case(op, q, k, v, open=opened, **attrs)
        yield case(op, q, k, v, Const(floats(24)), open=opened, **attrs)
        for mask, sizes in masks(batch, 4, 4):
            own = {4: {axis: name.replace("T", "S") for axis, name in sizes.items()}}
            if mask is not None and mask.shape != (2 * batch,):
                yield case(op, q, k, v, None, mask, open={**opened, **own}, **attrs)
        yield case(op, q, k, v, None, None, floats(1, count, 4, 4), **attrs)
        yield case(op, q, k, v, scale=0.2, mask_filter_value=-3.0, **attrs)
        yield case(op, q, k, v, outputs=(0, 1, 2), **attrs)
        past = (floats(batch, count, 3, size), floats(batch, count, 3, size))
        grown = {**opened, 6: {0: "B", 2: "P"}, 7: {0: "B", 2: "P"}}
        sums = (0, 1, 2)
        yield case(op, q, k, v, None, None, None, *past, outputs=sums, open=grown, **attrs)
        bias = Const(floats(24))
        extra = floats(batch, count, 4, 7)
        yield case(op, q, k, v, bias, None, extra, *past, outputs=sums, **attrs)
        if not causal:
            yield case(op, q, floats(batch, 6, 8), floats(batch, 6, 12), **attrs)
            crossed = (floats(batch, count, 5, size), floats(batch, count, 5, size))
            yield case(op, q, *crossed, open={0: BATCH, 1: {0: "B"}, 2: {0: "B"}}, **attrs)


def rotary() -> Iterator[Case]:
    """RotaryEmbedding of three and four dimensions, of whole and of partial heads."""
    cosines, sines = Const(floats(10, 4)), Const(floats(10, 4))
    for interleaved, batch in product((0, 1), (1, 3)):
        attrs = {"interleaved": interleaved}
        places = RNG.integers(0, 10, (batch, 5)).astype(np.int64)
        op, rows = "RotaryEmbedding", {0: BATCH, 1: BATCH}
        yield case(op, floats(batch, 5, 16), places, cosines, sines, open=rows, **attrs)
        start = np.array([3], np.int64)
        yield case(op, floats(batch, 5, 16), start, cosines, sines, open={0: BATCH}, **attrs)
        x = floats(batch, 2, 5, 8)
        opened = {0: {0: "B", 2: "S"}, 1: BATCH}
        yield case(op, x, places, cosines, sines, open=opened, **attrs)
        yield case(op, x, start, cosines, sines, **attrs)
        part = {"rotary_embedding_dim": 8, "num_heads": 2, **attrs}
        yield case(op, floats(batch, 5, 24), places, cosines, sines, open=rows, **part)
        yield case(op, floats(batch, 2, 5, 12), places, cosines, sines, **part)


def grouped() -> Iterator[Case]:
    """GroupQueryAttention of prompts and of single tokens."""
    op = "GroupQueryAttention"
    tables = Const(floats(20, 8)), Const(floats(20, 8))
    for (count, own), batch, rotation in product(((4, 2), (2, 2), (4, 1)), (1, 2), (0, 1)):
        attrs = {"num_heads": count, "kv_num_heads": own, "do_rotary": rotation}
        size, length = 16, 5
        q, k, v = (floats(batch, length, n * size) for n in (count, own, own))
        rest = [*tables] if rotation else []
        full, total = ints(*[length - 1] * batch), Const(np.array(length, np.int32))
        sums, none = (0, 1, 2), (None, None)
        yield case(op, q, k, v, *none, full, total, *rest, outputs=sums, **attrs)
        packed = np.concatenate([q, k, v], 2)
        yield case(op, packed, *none, *none, full, total, *rest, outputs=sums, **attrs)
        attrs |= {"scale": 0.25}
        for extra in ({"softcap": 2.0}, {"local_window_size": 2}, {"smooth_softmax": 1}):
            yield case(op, q, k, v, *none, full, total, *rest, outputs=sums, **attrs, **extra)
        if rotation:
            pairs = {"rotary_interleaved": 1}
            yield case(op, q, k, v, *none, full, total, *rest, outputs=sums, **attrs, **pairs)
        # One token, behind caches that are full and that have room.
        one = [x[:, :1] for x in (q, k, v)]
        for before, lengths in ((6, 6), (9, 6)):
            past = [floats(batch, own, before, size) for _ in range(2)]
            after, whole = ints(*[lengths] * batch), Const(np.array(lengths + 1, np.int32))
            found = (0,) if lengths < before else sums
            yield case(
                op, *one, *past, after, whole, *rest, outputs=sums[: 3 * len(found)], **attrs
            )
            window = {"local_window_size": 3, "softcap": 1.5}
            yield case(op, *one, *past, after, whole, *rest, outputs=sums, **attrs, **window)
        if batch == 2:
            past = [floats(batch, own, 6, size) for _ in range(2)]
            after, whole = ints(6, 3), Const(np.array(7, np.int32))
            yield case(op, *one, *past, after, whole, *rest, outputs=sums, **attrs)
        if not rotation:
            bias = floats(1, count, length, length)
            places = (None, None, None)
            yield case(op, q, k, v, *none, full, total, *places, bias, outputs=sums, **attrs)
            sinks = (*places, None, floats(count))
            yield case(op, q, k, v, *none, full, total, *sinks, outputs=sums, **attrs)


GROUPS = [attention, quantized, heads, rotary, grouped]


@pytest.mark.parametrize("cases", GROUPS, ids=lambda cases: cases.__name__)
def test_results_are_those_of_onnx_runtime(cases):
    for number, one in enumerate(cases()):
        try:
            # A score of which 10000 is taken has lost four digits.
            check(one, expected(one), rtol=1e-4, atol=2e-3 if has_hidden_rows(one) else 2e-5)
        except (AssertionError, IntarsiaError) as error:
            shapes = [getattr(x, "shape", x if x is None else x[0].shape) for x in one.operands]
            raise AssertionError(f"case {number}: {one.op} {one.attrs} {shapes}") from error


def has_hidden_rows(one: Case) -> bool:
    mask = one.operands[3] if one.op == "Attention" and len(one.operands) > 3 else None
    return isinstance(mask, np.ndarray) and mask.dtype == np.int32


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("parts", [2, 3])
def test_packed_operands_are_the_separate_ones(parts, causal):
    """ONNX Runtime takes them on GPUs alone."""
    q, k, v = (floats(2, 4, 2, 3) for _ in range(3))
    attrs = {"num_heads": 2, "unidirectional": causal}
    wanted = expected(case("MultiHeadAttention", *(x.reshape(2, 4, 6) for x in (q, k, v)), **attrs))
    packed = np.stack([q, k, v][3 - parts :], 3)
    operands = (packed,) if parts == 3 else (q.reshape(2, 4, 6), packed)
    opened = dict.fromkeys(range(len(operands)), BATCH)
    check(case("MultiHeadAttention", *operands, open=opened, **attrs), wanted, atol=1e-5)


def test_caches_grow_by_open_sizes():
    """Keys of an open cache, an open batch and one new token, as language models are exported."""
    attrs = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
    tables = [floats(20, 8), floats(20, 8)]
    for batch, before in ((1, 3), (2, 7), (3, 0)):
        q, k, v = (floats(batch, 1, n * 16) for n in (4, 2, 2))
        past = [floats(batch, 2, before, 16) for _ in range(2)]
        lengths = ints(*[before] * batch)
        given = dict(zip("qkvab", (q, k, v, *past), strict=True)) | {"n": lengths}
        model = grown(tables, attrs)
        wanted = session(model.SerializeToString()).run(None, given)
        with collecting_guards():
            module = from_onnx(model)
        for one, other in zip(evaluate(module.main, given), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def grown(tables: list[np.ndarray], attrs: dict[str, int]) -> onnx.ModelProto:
    """GroupQueryAttention whose total length is that of the cache and one more."""
    nodes = [
        node("Shape", "a", "s", start=2, end=3),
        node("Add", "s one", "more"),
        node("Cast", "more", "t", to=onnx.TensorProto.INT32),
        node("Squeeze", "t", "total"),
        node("GroupQueryAttention", "q k v a b n total c d", "y p r", domain=DOMAIN, **attrs),
    ]
    kinds = {"n": onnx.TensorProto.INT32}
    shapes = {"q": ("B", 1, 64), "k": ("B", 1, 32), "v": ("B", 1, 32), "n": ("B",)}
    shapes |= dict.fromkeys("ab", ("B", 2, "P", 16))
    inputs = [
        helper.make_tensor_value_info(name, kinds.get(name, onnx.TensorProto.FLOAT), shape)
        for name, shape in shapes.items()
    ]
    stored = {"one": np.array([1], np.int64), "c": tables[0], "d": tables[1]}
    graph = helper.make_graph(
        nodes,
        "g",
        inputs,
        [helper.make_empty_tensor_value_info(name) for name in "ypr"],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


X, N1 = floats(1, 2, 4), ints(1)
TOTAL = Const(np.array(2, np.int32))
W, B = Const(floats(4, 12)), Const(floats(12))
GQA = {"num_heads": 1, "kv_num_heads": 1}
NONE = (None,) * 2
PAST = floats(1, 1, 3, 4)


def query(*operands, **attrs) -> Case:
    return case("GroupQueryAttention", X, X, X, *operands, **{**GQA, **attrs})


REFUSALS = [
    (case("Attention", X, W, B, num_heads=1, do_rotary=1), "Attention with do_rotary=1"),
    (
        case("Attention", X, W, B, num_heads=1, past_present_share_buffer=1),
        "with past_present_share_buffer=1",
    ),
    (
        case("Attention", X, W, B, *NONE, None, ints(1), num_heads=1),
        "with input 6 (past_sequence_length)",
    ),
    (case("Attention", X, W, B, np.ones((1, 1, 2, 2), np.int32), num_heads=1), "a mask (input 3)"),
    (case("Attention", X, W, B, ints(*range(5)), num_heads=1), "a mask (input 3)"),
    (
        case("MultiHeadAttention", X, X, X, *NONE, *NONE, None, N1, num_heads=1),
        "with input 8 (past_sequence_length)",
    ),
    (
        case("MultiHeadAttention", X, X, X, *NONE, *NONE, *NONE, N1, num_heads=1),
        "with input 9 (cache_indirection)",
    ),
    (
        case("MultiHeadAttention", floats(1, 2, 1, 3, 4), *NONE, B, num_heads=1),
        "packed queries with a bias (input 3)",
    ),
    (
        case("MultiHeadAttention", X, floats(1, 2, 1, 2, 4), None, B, num_heads=1),
        "packed keys with a bias (input 3)",
    ),
    (
        case("RotaryEmbedding", X, N1.astype(np.int64), X[0], X[0], is_packed_batching=1),
        "with is_packed_batching",
    ),
    (case("RotaryEmbedding", X, N1.astype(np.int64), X[0], X[0], scale=2.0), "with scale=2.0"),
    (query(*NONE, N1, TOTAL, *NONE, *NONE, None, floats(1)), "input 12 (k_scale)"),
    (query(*NONE, N1, TOTAL, *NONE, *NONE, *NONE, None, X[0, 0]), "input 14 (q_norm_weight)"),
    (query(*NONE, N1, TOTAL, sliding_window_cache=1), "with sliding_window_cache=1"),
    (query(*NONE, N1, TOTAL, qk_output=1), "with qk_output=1"),
    (query(*NONE, N1, TOTAL, causal=0), "with causal=0"),
    (query(*NONE, N1, TOTAL, k_quant_type="PER_TENSOR"), "with k_quant_type='PER_TENSOR'"),
    (query(PAST.astype(np.int8), PAST.astype(np.int8), N1, TOTAL), "with a cache of"),
    (query(*NONE, N1, ints(2)), "total_sequence_length (input 6) is not known at compile time"),
]


@pytest.mark.parametrize(("one", "words"), REFUSALS)
def test_what_is_not_supported_is_refused_in_words(one, words):
    with pytest.raises(UnsupportedError) as caught:
        from_onnx(one.model())
    assert words in str(caught.value)


WRONG = [
    (case("Attention", X[0], W, B, num_heads=1), "the projection must have three dimensions"),
    (case("Attention", X, W, B, num_heads=1, qkv_hidden_sizes=[4, 4, 5]), "qkv_hidden_sizes="),
    (case("Attention", X, W, B, num_heads=3), "4 columns in 3 heads"),
    (case("MultiHeadAttention", X[0], X, X, num_heads=1), "must have three or five dimensions"),
    (case("RotaryEmbedding", floats(1, 1, 2, 4), N1.astype(np.int64), floats(9, 3), floats(9, 3)),
     "3 angles for heads of 4 elements"),
    (case("GroupQueryAttention", X[0], X, X, *NONE, N1, TOTAL, **GQA), "have three dimensions"),
    (query(*NONE, N1, TOTAL, num_heads=3, kv_num_heads=2), "3 heads of queries in 2 groups"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "words"), WRONG)
def test_what_breaks_the_rules_is_a_fault_of_the_model(one, words):
    with pytest.raises(ModelError, match=words):
        from_onnx(one.model())
