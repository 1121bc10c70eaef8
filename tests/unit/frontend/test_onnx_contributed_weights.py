# SPDX-License-Identifier: Apache-2.0
"""Quantized weights of ONNX Runtime's domain, against ONNX Runtime itself."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from intarsia_ir.graph.expr import Call
from intarsia_ir.graph.walk import post_order
from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import IntarsiaError, ModelError, UnsupportedError

from .contributed_cases import DOMAIN, Case, Const, check, expected, imported

RNG = np.random.default_rng(6)
BATCH = {0: "B"}


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def bytes_(*shape: int, signed: bool = False) -> np.ndarray:
    if signed:
        return RNG.integers(-128, 128, shape).astype(np.int8)
    return RNG.integers(0, 256, shape).astype(np.uint8)


def case(op: str, *operands, outputs=(0,), open=None, **attrs) -> Case:
    return Case(op, operands, attrs, outputs, DOMAIN, open or {})


def small(*shape: int) -> np.ndarray:
    return (floats(*shape) ** 2 * 0.01 + 0.001).astype(np.float32)


def blocks() -> Iterator[Case]:
    """MatMulNBits: bits, blocks that do not divide K, zero points of three kinds, biases."""
    for bits, block, (rows, columns), kind in product(
        (4, 8), (16, 32), ((3, 32), (5, 50)), ("none", "packed", "floats")
    ):
        if bits == 8 and kind == "floats":
            continue  # ONNX Runtime takes them on GPUs alone
        count = -(-columns // block)
        attrs = {"bits": bits, "block_size": block, "N": rows, "K": columns}
        weight = Const(bytes_(rows, count, block * bits // 8))
        zero = {
            "none": (),
            "packed": (Const(bytes_(rows, -(-count * bits // 8))),),
            "floats": (Const(floats(rows, count) + 7),),
        }[kind]
        operands = (weight, Const(small(rows, count)), *zero)
        x = floats(2, 3, columns)
        yield case("MatMulNBits", x, *operands, open={0: BATCH}, **attrs)
        if kind == "packed":
            bias = Const(floats(rows))
            yield case("MatMulNBits", x[0], *operands, None, bias, **attrs)


def tables() -> Iterator[Case]:
    """GatherBlockQuantized: packed bytes and 4-bit element types, indices of all ranks."""
    op = "GatherBlockQuantized"
    for bits, block, zero, dims in product((4, 8), (16, 32), (False, True), ((), (3,), (2, 3))):
        ids = RNG.integers(-7, 7, dims).astype(np.int64)
        count = 48 // block + bool(48 % block)
        table = Const(bytes_(7, 48 * bits // 8))
        packed = (Const(bytes_(7, -(-count * bits // 8))),) if zero else ()
        attrs = {"bits": bits, "block_size": block, "quantize_axis": 1, "gather_axis": 0}
        opened = {1: BATCH} if dims else None
        yield case(op, table, ids, Const(small(7, count)), *packed, open=opened, **attrs)
    for kind, zero, axis in product(("int4", "uint4"), (False, True), (0, 1)):
        dtype = getattr(ml_dtypes, kind)
        low = -8 if kind == "int4" else 0
        table = Const(RNG.integers(low, low + 16, (6, 32)).astype(dtype))
        points = (Const(RNG.integers(low, low + 16, (6, 2)).astype(dtype)),) if zero else ()
        ids = RNG.integers(0, 6, (2, 2)).astype(np.int32)
        attrs = {"block_size": 16, "quantize_axis": 1, "gather_axis": axis}
        yield case(op, table, ids, Const(small(6, 2)), *points, **attrs)


def products() -> Iterator[Case]:
    """DynamicQuantizeMatMul and MatMulIntegerToFloat: types, columns, zero points, biases."""
    for signed, columns, zero, bias in product((0, 1), (0, 1), (0, 1), (0, 1)):
        w = bytes_(6, 5, signed=bool(signed))
        scale = Const(small(5) if columns else small()[()].reshape(()))
        point = Const(bytes_(*((5,) if columns else ()), signed=bool(signed))) if zero else None
        more = Const(floats(5)) if bias else None
        x = floats(2, 4, 6)
        yield case("DynamicQuantizeMatMul", x, Const(w), scale, point, more, open={0: BATCH})
        yield case("DynamicQuantizeMatMul", x[0], Const(w), scale, point, more)
        a, a_scale = bytes_(3, 4, 6), Const(np.float32(0.03))
        a_zero = Const(np.uint8(110)) if zero else None
        operands = (a_scale, scale, a_zero, point, more)
        yield case("MatMulIntegerToFloat", a, Const(w), *operands, open={0: BATCH})
        yield case("MatMulIntegerToFloat", a[0], Const(w), *operands)


def convolutions() -> Iterator[Case]:
    """QLinearConv of this domain, whose channels may lie last."""
    for last, columns, bias, groups in product((0, 1), (0, 1), (0, 1), (1, 2)):
        x = bytes_(2, 5, 7, 4) if last else bytes_(2, 4, 5, 7)
        # Weights of 7 bits: the sums of two products fit 16 bits on processors without VNNI.
        w = Const(RNG.integers(-64, 64, (6, 4 // groups, 3, 2)).astype(np.int8))
        w_scale = Const(small(6) if columns else small()[()].reshape(()))
        w_zero = Const(np.zeros(6 if columns else (), np.int8))
        scale, zero = Const(np.float32(0.02)), Const(np.uint8(120))
        more = (Const(RNG.integers(-900, 900, 6).astype(np.int32)),) if bias else ()
        operands = (x, scale, zero, w, w_scale, w_zero, Const(np.float32(0.1)), zero, *more)
        attrs = {"pads": [1, 0, 1, 1], "strides": [2, 1], "group": groups}
        yield case("QLinearConv", *operands, channels_last=last, **attrs)


def embeddings() -> Iterator[Case]:
    """QEmbedLayerNormalization with and without segments and mask."""
    for batch, length, segments, masked in product((1, 3), (1, 5), (0, 1), (0, 1)):
        tables = [Const(bytes_(rows, 8)) for rows in (20, 9, 2)]
        affine = [Const(bytes_(8)) for _ in range(2)]
        scales = [Const(small()[()].reshape(())) for _ in range(5)]
        zeros = [Const(np.array(RNG.integers(100, 150), np.uint8)) for _ in range(5)]
        ids, types, mask = (RNG.integers(0, 2, (batch, length)).astype(np.int32) for _ in range(3))
        kinds: Const | np.ndarray | None = types
        if not segments:
            kinds, tables[2], scales[2], zeros[2] = (None,) * 4
        mask = mask if masked else None
        operands = (ids, kinds, *tables, *affine, mask, *scales, *zeros)
        yield case("QEmbedLayerNormalization", *operands, outputs=(0, 1))


GROUPS = [blocks, tables, products, convolutions, embeddings]


@pytest.mark.parametrize("cases", GROUPS, ids=lambda cases: cases.__name__)
def test_results_are_those_of_onnx_runtime(cases):
    for number, one in enumerate(cases()):
        try:
            quantum = 1 if one.op == "QLinearConv" else 1e-5
            check(one, expected(one), rtol=1e-5, atol=quantum)
        except (AssertionError, IntarsiaError) as error:
            shapes = [getattr(x, "shape", x if x is None else x[0].shape) for x in one.operands]
            raise AssertionError(f"case {number}: {one.op} {one.attrs} {shapes}") from error


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("kind", ["none", "packed", "floats"])
def test_groups_of_columns_and_other_types_by_the_formula(bits, kind):
    """ONNX Runtime no longer has them, or on GPUs alone: float16, ``g_idx``, 2 bits."""
    rows, columns, block, per = 3, 32, 16, 8 // bits
    levels = RNG.integers(0, 1 << bits, (rows, columns))
    shifts = bits * np.arange(per)
    packed = (levels.reshape(rows, -1, per) << shifts).sum(-1).astype(np.uint8)
    zeros, scales = RNG.integers(0, 1 << bits, (rows, 2)), small(rows, 2).astype(np.float16)
    point: tuple[Const | None, ...] = (Const(zeros.astype(np.float16)),)
    if kind == "none":
        zeros, point = np.full((rows, 2), 1 << bits - 1), (None,)
    elif kind == "packed":
        room = np.zeros((rows, -(-2 // per) * per), int)
        room[:, :2] = zeros
        point = (Const((room.reshape(rows, -1, per) << shifts).sum(-1).astype(np.uint8)),)
    groups = RNG.integers(0, 2, columns)
    wide = (levels - zeros[:, groups]) * scales.astype(np.float32)[:, groups]
    x = floats(4, columns).astype(np.float16)
    operands = (Const(packed.reshape(rows, 2, -1)), Const(scales), *point)
    attrs = {"bits": bits, "block_size": block, "N": rows, "K": columns}
    one = case("MatMulNBits", x, *operands, Const(groups.astype(np.int32)), **attrs)
    wanted = (x.astype(np.float32) @ wide.T).astype(np.float16)
    check(one, [wanted], rtol=5e-3, atol=3e-2)


@pytest.mark.parametrize(
    ("level", "operator", "changes"),
    [
        (4, "nn.int4_byte_matmul", {}),
        (4, "nn.int4_byte_matmul", {"N": 72}),
        (4, "nn.int4_byte_matmul", {"K": 24}),
        (0, "matmul", {}),
        (1, "matmul", {}),
        (4, "matmul", {"zeros": 7.5}),
        (4, "matmul", {"N": 31}),
        (4, "matmul", {"bits": 8}),
    ],
)
def test_rows_become_bytes_where_the_model_allows_that(level, operator, changes):
    sizes = {"N": 64, "K": 32, "bits": 4, **changes}
    zeros = sizes.pop("zeros", None)
    rows, count = sizes["N"], 2
    operands = [
        Const(bytes_(rows, count, 16 * sizes["bits"] // 8)),
        Const(small(rows, count)),
        *([] if zeros is None else [Const(np.full((rows, count), zeros, np.float32))]),
    ]
    attrs = {**sizes, "block_size": 16, "accuracy_level": level}
    x = floats(3, sizes["K"])
    x[0] = 0
    one = case("MatMulNBits", x, *operands, **attrs)
    module = imported(one)[0]
    names = {node.op.name for node in post_order(module.main.body) if isinstance(node, Call)}
    assert {name for name in names if "matmul" in name} == {operator}
    # ONNX Runtime quantizes rows for other weights, too: an element is off by half a level of 127.
    largest = np.abs(x).max() / 254 * (np.abs(operands[1].data).max() * 2 ** sizes["bits"])
    exact = level == 0 or operator == "nn.int4_byte_matmul"
    check(one, expected(one), rtol=1e-5, atol=1e-5 if exact else float(largest * sizes["K"] ** 0.5))


def test_rows_that_are_not_there_are_zeros():
    ids = np.array([0, 7, -8, -7], np.int64)
    table = Const(bytes_(7, 16))
    attrs = {"bits": 8, "block_size": 16}
    one = case("GatherBlockQuantized", table, ids, Const(small(7, 1)), **attrs)
    (found,) = evaluate(imported(one)[0].main, one.feeds)
    assert np.any(found[0])
    assert not np.any(found[1:3])
    np.testing.assert_array_equal(found[0], found[3])


X = floats(2, 32)
W, S = Const(bytes_(3, 2, 8)), Const(small(3, 2))
SIZES = {"N": 3, "K": 32, "block_size": 16, "bits": 4}
IDS, TABLE, SCALES = np.array([1], np.int64), Const(bytes_(4, 16)), Const(small(4, 1))
EIGHT = {"bits": 8, "block_size": 16}


def nbits(*operands, **attrs) -> Case:
    return case("MatMulNBits", X, *operands, **{**SIZES, **attrs})


def gathered(*operands, **attrs) -> Case:
    return case("GatherBlockQuantized", *operands, **{**EIGHT, **attrs})


REFUSALS = [
    (nbits(W, S, weight_prepacked=1), "with weight_prepacked=1"),
    (nbits(W, S, bits=3), "with bits=3; 2, 4 and 8 are supported"),
    (nbits(W.data, S), "the weight is not known at compile time"),
    (gathered(TABLE.data, IDS, SCALES), "is not known at compile time"),
    (gathered(Const(floats(4, 16)), IDS, SCALES), "of a table of"),
    (
        case(
            "MatMulIntegerToFloat",
            *(bytes_(2, 4), Const(bytes_(4, 3)), Const(small(4)), Const(small(3))),
        ),
        "several scales of A (input 2)",
    ),
]


@pytest.mark.parametrize(("one", "words"), REFUSALS)
def test_what_is_not_supported_is_refused_in_words(one, words):
    with pytest.raises(UnsupportedError) as caught:
        from_onnx(one.model())
    assert words in str(caught.value)


WRONG = [
    (nbits(W, S, N=0), "must be positive"),
    (nbits(W, S, N=4), "in blocks of 16"),
    (nbits(W, S, block_size=24), "must be a power of two"),
    (nbits(W, S, Const(floats(3, 3))), "zero points"),
    (nbits(W, S, None, Const(np.array([1, 2], np.int32))), "g_idx of 2 elements"),
    (nbits(W, S, None, Const(np.full(32, 2, np.int32))), "g_idx of 32 elements"),
    (gathered(None, IDS, SCALES), "needs input 0"),
    (gathered(TABLE, IDS, Const(small(4, 2))), "scales"),
    (gathered(TABLE, IDS, SCALES, Const(bytes_(3, 1))), "zero points"),
]


@pytest.mark.parametrize(("one", "words"), WRONG)
def test_what_breaks_the_rules_is_a_fault_of_the_model(one, words):
    with pytest.raises(ModelError, match=words):
        from_onnx(one.model())
