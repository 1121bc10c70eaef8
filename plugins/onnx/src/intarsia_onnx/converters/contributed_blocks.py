# SPDX-License-Identifier: Apache-2.0
"""Operators of ``com.microsoft`` on weights of 2, 4 or 8 bits with a scale for each block.

Weights must be stored in the model. Rows of floats are multiplied with dequantized weights, which
``passes/pack_weights.py`` leaves quantized; a model that allows bytes has them multiplied with
4-bit weights.
"""

from __future__ import annotations

from math import prod
from types import MappingProxyType

import numpy as np
from msgspec import Struct

from intarsia_ir.graph.expr import Expr, get_item
from intarsia_ir.ops import (
    binary,
    compare,
    indexing,
    int4_bytes,
    qnn,
    quantize_blocks,
    reduce,
    slicing,
)
from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_ir.ops.block_tiles import COLUMNS
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size

from ..builder import dtype_of, rank_of, sizes_of
from ..context import NodeContext
from .contributed import DOMAIN

_IN_BYTES = 4
"""The accuracy level from which on rows may become bytes."""


def matmul_nbits(node: NodeContext) -> Expr:
    """Convert MatMulNBits: a product with a dequantized weight ``[N, K]``.

    With ``accuracy_level`` 4, rows become bytes where the packed weight has whole zero points.
    """
    if node.integer("weight_prepacked", 0):
        raise node.unsupported(
            f"MatMulNBits with weight_prepacked={node.integer('weight_prepacked')}",
            "the layout is that of one GPU; save the model without packing weights",
        )
    x, bias = node.input(0), node.optional(5)
    packed = _int4_weight(node)
    if packed is None:
        result = _product_with_blocks(node, x)
    else:
        sizes = sizes_of(x)
        result = _product_of_bytes(node, node.reshape(x, (prod(sizes[:-1]), sizes[-1])), packed)
        result = node.reshape(result, (*sizes[:-1], node.integer("N")))
    return result if bias is None else node.call(binary.Add, result, bias)


def _product_with_blocks(node: NodeContext, x: Expr) -> Expr:
    """Return the product with the dequantized weight, which a pass may leave quantized.

    What zero points differ from whole numbers is multiplied with the sums of blocks of rows.
    """
    rows, columns, block = (node.integer(name) for name in ("N", "K", "block_size"))
    levels, scales, zeros = _blocks(node)
    blocks, kind = scales.shape[1], numpy_dtype(dtype_of(x))
    if node.optional(4) is not None:
        groups = _groups(node, columns, block)
        flat = levels.reshape(rows, -1)[:, :columns].astype(np.float32)
        weight = node.array(((flat - zeros[:, groups]) * scales[:, groups]).astype(kind))
        return node.matmul(x, weight, transpose_b=True)
    whole = np.clip(np.rint(zeros), 0, 255)
    tables = (levels, scales[..., None], whole.astype(np.uint8)[..., None])
    real = node.call(qnn.Dequantize, *(node.array(table) for table in tables))
    weight = node.cast(node.reshape(real, (rows, blocks * block)), dtype_of(x))
    *outer, depth = sizes_of(x)
    if depth == columns != blocks * block:
        widths = (*((0, 0) for _ in outer), (0, blocks * block - columns))
        x = node.call(slicing.Pad, x, attrs=slicing.Pad.Attrs(widths=widths))
    result = node.matmul(x, weight, transpose_b=True)
    rest = (zeros - whole) * scales
    if not np.any(rest):
        return result
    parts = node.reshape(x, (*outer, blocks, block))
    attrs = reduce.Sum.Attrs(axes=(len(outer) + 1,), keepdims=False)
    sums = node.call(reduce.Sum, parts, attrs=attrs)
    apart = node.matmul(sums, node.array(rest.astype(kind)), transpose_b=True)
    return node.call(binary.Subtract, result, apart)


def _blocks(node: NodeContext) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return codes ``[N, blocks, block]``, uint8, and scales and zero points ``[N, blocks]``."""
    bits, block = _format(node, "bits"), node.integer("block_size")
    rows, columns = node.integer("N"), node.integer("K")
    if rows < 1 or columns < 1:
        raise node.model_error(f"N={rows} and K={columns} must be positive")
    blocks = -(-columns // block)
    packed, scales = node.required_value(1, "the weight"), node.required_value(2, "its scales")
    if packed.size != rows * blocks * block * bits // 8 or scales.size != rows * blocks:
        raise node.model_error(
            f"weight {packed.shape} and scales {scales.shape} for [{rows}, {columns}] in blocks"
            f" of {block}"
        )
    levels = _unpacked(packed.reshape(rows, -1), bits).reshape(rows, blocks, block)
    factors = scales.astype(np.float32).reshape(rows, blocks)
    return levels, factors, _zero_points(node, rows, blocks, bits)


class _Int4Weight(Struct, frozen=True):
    """A weight of 4 bits, columns in multiples of 64 and whole blocks.

    Attributes:
        codes: ``[N, K]``, uint8.
        scales: Of blocks, float32, ``[N, blocks]``; 0 in columns that the model does not have.
        zeros: Zero points of blocks, in the same way.
        block: Neighbours along K with a scale.
    """

    codes: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray
    block: int


def _int4_weight(node: NodeContext) -> _Int4Weight | None:
    """Return the weight if rows may become bytes: of 4 bits, with whole zero points of blocks."""
    bits, block = _format(node, "bits"), node.integer("block_size")
    rows, columns = node.integer("N"), node.integer("K")
    plain = bits == 4 and node.optional(4) is None and dtype_of(node.input(0)) is DType.FLOAT32
    in_bytes = node.integer("accuracy_level", 0) == _IN_BYTES
    if not plain or not in_bytes or 2 * rows < COLUMNS or sizes_of(node.input(0))[-1] != columns:
        return None
    levels, factors, zeros = _blocks(node)
    if np.any((zeros != np.floor(zeros)) | (zeros < 0) | (zeros > 255)):
        return None
    tables = (levels.reshape(rows, -1), factors, zeros)
    codes, factors, zeros = (np.pad(each, ((0, -rows % COLUMNS), (0, 0))) for each in tables)
    zeros[rows:] = zeros[0]
    return _Int4Weight(codes, factors, zeros, block)


def _product_of_bytes(node: NodeContext, rows: Expr, weight: _Int4Weight) -> Expr:
    """Return the product of rows ``[M, K]``, as bytes, with a packed weight."""
    outputs, missing = node.integer("N"), weight.codes.shape[1] - node.integer("K")
    if missing:
        attrs = slicing.Pad.Attrs(widths=((0, 0), (0, missing)))
        rows = node.call(slicing.Pad, rows, attrs=attrs)
    blocks = quantize_blocks.QuantizeBlocks.Attrs(block=weight.block)
    made = node.call(quantize_blocks.QuantizeBlocks, rows, attrs=blocks)
    levels, row_scales, row_sums = (get_item(made, n) for n in range(3))
    words = int4_bytes.pack_int4_words(weight.codes)
    given = [node.array(words), node.array(_by_group(weight.scales))]
    zero = int(weight.zeros.flat[0])
    if np.any(weight.zeros != zero):
        given.append(node.array(_by_group(weight.zeros.astype(np.uint8))))
    product = int4_bytes.Int4ByteMatmul.Attrs(zero=zero)
    operands = levels, row_scales, row_sums, *given
    result = node.call(int4_bytes.Int4ByteMatmul, *operands, attrs=product)
    if outputs == len(weight.scales):
        return result
    end = (extents(sizes_of(rows))[0], outputs)
    attrs = slicing.StridedSlice.Attrs(begin=(0, 0), end=end, strides=(1, 1))
    return node.call(slicing.StridedSlice, result, attrs=attrs)


def _by_group(table: np.ndarray) -> np.ndarray:
    """Return ``[N, n]`` as ``[N / 64, n, 64]``."""
    parts = table.reshape(-1, COLUMNS, table.shape[1])
    return np.ascontiguousarray(parts.transpose(0, 2, 1))


def _zero_points(node: NodeContext, rows: int, blocks: int, bits: int) -> np.ndarray:
    """Return the zero point of each block: packed like the weight, or one number each."""
    if node.optional(3) is None:
        return np.full((rows, blocks), 1 << bits - 1, np.float32)
    value = node.required_value(3, "the zero points")
    if value.dtype == np.uint8 and value.size == rows * -(-blocks * bits // 8):
        value = _unpacked(value.reshape(rows, -1), bits)[:, :blocks]
    if value.size != rows * blocks:
        raise node.model_error(f"zero points {value.shape} for {rows} rows of {blocks} blocks")
    return value.astype(np.float32).reshape(rows, blocks)


def _groups(node: NodeContext, columns: int, block: int) -> np.ndarray:
    """Return the block that each column has its scale from."""
    if node.optional(4) is None:
        return np.arange(columns) // block
    found = node.required_value(4, "the groups of columns").reshape(-1)
    blocks = -(-columns // block)
    if found.size < columns or not np.all((found >= 0) & (found < blocks)):
        raise node.model_error(f"g_idx of {found.size} elements for {columns} columns")
    return found[:columns]


def _format(node: NodeContext, name: str, default: int = 4) -> int:
    """Return the bits of an element; a block must be a power of two, 16 or more."""
    bits, block = node.integer(name, default), node.integer("block_size", 128)
    if bits not in (2, 4, 8):
        raise node.unsupported(f"{node.op_type} with {name}={bits}; 2, 4 and 8 are supported")
    if block < 16 or block & block - 1:
        raise node.model_error(f"block_size={block} must be a power of two, 16 or more")
    return bits


def _unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """Split the bytes of the last dimension into elements, those of low bits first."""
    if bits == 8:
        return packed
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = packed[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], -1)


def gather_block_quantized(node: NodeContext) -> Expr:
    """Convert GatherBlockQuantized: rows of a dequantized table, zeros for rows that are not there.

    Bytes hold several elements along the last dimension; 4-bit element types one each.
    """
    bits = _format(node, "bits")
    table, zeros = _elements(node, 0, bits), _elements(node, 3, bits)
    scales = node.required_value(2, "the scales")
    if table is None:
        raise node.model_error("needs input 0")
    axis, gathered = (
        node.normal_axis(node.integer(name, default), table.ndim)
        for name, default in (("quantize_axis", 1), ("gather_axis", 0))
    )
    block = node.integer("block_size", 128)
    wanted = list(table.shape)
    wanted[axis] = -(-wanted[axis] // block)
    if list(scales.shape) != wanted:
        raise node.model_error(f"scales {scales.shape} for a table {table.shape}, not {wanted}")
    if zeros is None:
        usual = 0 if node.stored(0) is not None else 1 << bits - 1
        zeros = np.full(wanted, usual, np.int32)
    zeros = zeros[tuple(slice(size) for size in wanted)]
    if list(zeros.shape) != wanted:
        raise node.model_error(f"zero points {zeros.shape} for scales {scales.shape}")

    def spread(parameter: np.ndarray) -> np.ndarray:
        whole = np.repeat(parameter.astype(np.float32), block, axis)
        return whole.take(range(table.shape[axis]), axis)

    real = (table.astype(np.float32) - spread(zeros)) * spread(scales)
    return _gathered(node, node.array(real.astype(scales.dtype)), gathered)


def _elements(node: NodeContext, index: int, bits: int) -> np.ndarray | None:
    """Return the numbers of a stored operand, one an element; ``None`` if it is left out."""
    if node.optional(index) is None:
        return None
    value = node.required_value(index, "the table and its zero points")
    stored = node.stored(index)
    if stored is not None:
        return value.view(stored).astype(np.int32)
    if value.dtype != np.uint8:
        raise node.unsupported(f"{node.op_type} of a table of {node.type_of(index)}")
    return _unpacked(value, bits).astype(np.int32)


def _gathered(node: NodeContext, table: Expr, axis: int) -> Expr:
    """Take elements of a dimension; zeros where there is none."""
    ids = node.input(1)
    size = sizes_of(table)[axis]
    found = node.call(indexing.Take, table, ids, attrs=indexing.Take.Attrs(axis=axis))
    assert isinstance(size, int)  # of a stored table
    kind = dtype_of(ids)
    inside = node.call(
        binary.LogicalAnd,
        node.call(compare.GreaterEqual, ids, node.scalar(-size, kind)),
        node.call(compare.Less, ids, node.scalar(size, kind)),
    )
    shape: list[Size] = [1] * rank_of(found)
    shape[axis : axis + rank_of(ids)] = sizes_of(ids)
    inside = node.reshape(inside, shape)
    return node.call(compare.Where, inside, found, node.scalar(0, dtype_of(found)))


CONVERTERS = MappingProxyType(
    {
        f"{DOMAIN}::GatherBlockQuantized": gather_block_quantized,
        f"{DOMAIN}::MatMulNBits": matmul_nbits,
    }
)
"""Converters by domain and name."""
