# SPDX-License-Identifier: Apache-2.0
"""Matrix products, convolutions and attention."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import binary, compare, generate, nn, unary
from intarsia_ir.ops import softmax as softmaxes
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size

from .context import AtenContext, Converter, dtype_of, rank_of, sizes_of

_BY_TRANSPOSE = nn.Matmul.Attrs(transpose_b=True)


def _linear(node: AtenContext) -> Expr:
    x, weight, bias = node.tensor("input"), node.tensor("weight"), node.optional("bias")
    if rank_of(weight) != 2:
        node.unsupported("a weight that is no matrix")
    rows = node.reshape(x, (1, *sizes_of(x))) if rank_of(x) == 1 else x
    made = node.call(nn.Matmul, rows, weight, attrs=_BY_TRANSPOSE)
    made = made if bias is None else node.call(binary.Add, made, bias)
    return node.reshape(made, node.sizes)


def _product(node: AtenContext) -> Expr:
    left = node.tensor("self")
    right = node.tensor({"bmm": "mat2", "mm": "mat2", "mv": "vec", "dot": "tensor"}.get(
        node.name, "other"
    ))  # fmt: skip
    if rank_of(left) == 1:
        left = node.reshape(left, (1, *sizes_of(left)))
    if rank_of(right) == 1:
        right = node.reshape(right, (*sizes_of(right), 1))
    return node.reshape(node.call(nn.Matmul, left, right), node.sizes)


def _added_product(node: AtenContext) -> Expr:
    """``addmm``, ``addbmm``'s kin: ``beta * self + alpha * a @ b``."""
    names = ("batch1", "batch2") if node.name == "baddbmm" else ("mat1", "mat2")
    made = node.call(nn.Matmul, node.tensor(names[0]), node.tensor(names[1]))
    if node.number("alpha", 1) != 1:
        made = node.call(binary.Multiply, made, node.value("alpha", node.dtype))
    if node.number("beta", 1) == 0:
        return made
    added = node.tensor("self")
    if node.number("beta", 1) != 1:
        added = node.call(binary.Multiply, added, node.value("beta", node.dtype))
    return node.call(binary.Add, made, added)


def _outer(node: AtenContext) -> Expr:
    left, right = node.tensor("self"), node.tensor("vec2" if "vec2" in node.args else "other")
    rows = node.reshape(left, (*sizes_of(left), 1))
    return node.call(binary.Multiply, rows, node.reshape(right, (1, *sizes_of(right))))


def _einsum(node: AtenContext) -> Expr:
    return node.onnx("Einsum", *node.tensors("tensors"), equation=str(node.args["equation"]))


def _paddings(node: AtenContext, kernel: Sequence[int], stride: Sequence[int]) -> list[int]:
    """Return what is added in front of and behind each dimension, in ONNX's order."""
    count, given = len(kernel), node.args["padding"]
    if not isinstance(given, str):
        return [*node.spread("padding", count, 0)] * 2
    if given == "valid":
        return [0] * (2 * count)
    if any(step != 1 for step in stride):
        node.unsupported("padding='same' with a stride")
    spread = node.spread("dilation", count, 1)
    totals = [step * (size - 1) for step, size in zip(spread, kernel, strict=True)]
    return [*(total // 2 for total in totals), *(total - total // 2 for total in totals)]


def _convolution(node: AtenContext) -> Expr:
    x, weight, bias = node.tensor("input"), node.tensor("weight"), node.optional("bias")
    *_, kernel = (tuple(sizes_of(weight))[2:],)
    if not all(isinstance(size, int) for size in kernel):
        node.unsupported("a kernel of open size")
    sizes = tuple(int(size) for size in kernel)
    alone = rank_of(x) == len(sizes) + 1
    if alone:
        x = node.reshape(x, (1, *sizes_of(x)))
    stride = node.spread("stride", len(sizes), 1)
    made = _convolve(node, (x, weight, bias), sizes, stride)
    return node.reshape(made, node.sizes) if alone else made


def _convolve(
    node: AtenContext,
    operands: tuple[Expr, Expr, Expr | None],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
) -> Expr:
    is_transposed = node.flag("transposed") or node.name.startswith("conv_transpose")
    extra = node.spread("output_padding", len(kernel), 0) if "output_padding" in node.args else ()
    pads = tuple(_paddings(node, kernel, stride))
    spread = node.spread("dilation", len(kernel), 1)
    groups = node.integer("groups", 1)
    if is_transposed:
        return node.onnx(
            "ConvTranspose",
            *operands,
            kernel_shape=kernel,
            strides=stride,
            pads=pads,
            dilations=spread,
            group=groups,
            output_padding=extra,
        )
    return node.onnx(
        "Conv",
        *operands,
        kernel_shape=kernel,
        strides=stride,
        pads=pads,
        dilations=spread,
        group=groups,
    )


def _attention(node: AtenContext) -> Expr:
    """``scaled_dot_product_attention``, without dropout."""
    if node.number("dropout_p", 0):
        node.unsupported("dropout")
    query, key, value = (node.tensor(name) for name in ("query", "key", "value"))
    kind = dtype_of(query)
    if node.flag("enable_gqa"):
        heads = sizes_of(query)[-3]
        key, value = (_grouped(node, x, heads) for x in (key, value))
    query = node.call(binary.Multiply, query, _scale(node, sizes_of(query)[-1], kind))
    scores = node.call(nn.Matmul, query, key, attrs=_BY_TRANSPOSE)
    mask = node.optional("attn_mask")
    if node.flag("is_causal"):
        mask = _causal(node, sizes_of(query)[-2], sizes_of(key)[-2])
    return node.call(nn.Matmul, _probabilities(node, scores, mask), value)


def _scale(node: AtenContext, width: Size, kind: DType) -> Expr:
    """Return the factor of the scores; that of open heads is computed by the program."""
    given = node.args.get("scale")
    if given is None and isinstance(width, int):
        given = 1 / math.sqrt(width)
    if given is not None:
        return node.as_tensor(given, kind)
    wide = node.as_tensor(width, DType.FLOAT64)
    return node.cast(node.call(unary.Rsqrt, wide), kind)


def _probabilities(node: AtenContext, scores: Expr, mask: Expr | None) -> Expr:
    """Return the softmax of masked scores; where nothing may be seen, all is zero."""
    attrs = softmaxes.Softmax.Attrs(axis=rank_of(scores) - 1)
    if mask is None:
        return node.call(softmaxes.Softmax, scores, attrs=attrs)
    kind = dtype_of(scores)
    zero, nothing = node.scalar(0, kind), node.scalar(-math.inf, kind)
    if dtype_of(mask) is DType.BOOL:
        hidden = node.call(unary.LogicalNot, mask)
        scores = node.call(compare.Where, hidden, nothing, scores)
    else:
        mask = node.cast(mask, kind)
        hidden = node.call(compare.Equal, mask, nothing)
        scores = node.call(binary.Add, scores, mask)
    chances = node.call(softmaxes.Softmax, scores, attrs=attrs)
    return node.call(compare.Where, hidden, zero, chances)


def _causal(node: AtenContext, queries: Size, keys: Size) -> Expr:
    def places(count: Size, shape: tuple[Size, Size]) -> Expr:
        attrs = generate.Arange.Attrs(start=0, stop=extents([count])[0], step=1, dtype=DType.INT64)
        return node.reshape(node.call(generate.Arange, attrs=attrs), shape)

    rows, columns = places(queries, (queries, 1)), places(keys, (1, keys))
    return node.call(compare.LessEqual, columns, rows)


def _grouped(node: AtenContext, x: Expr, heads: Size) -> Expr:
    """Give each head of the queries the keys or values of its group."""
    *front, own, length, width = sizes_of(x)
    if own == heads:
        return x
    if not isinstance(heads, int) or not isinstance(own, int):
        node.unsupported("an open number of heads")
    apart = node.reshape(x, (*front, own, 1, length, width))
    spread = node.broadcast(apart, extents((*front, own, heads // own, length, width)))
    return node.reshape(spread, (*front, heads, length, width))


def _attention_of_cpu(node: AtenContext) -> tuple[Expr, ...]:
    """``_scaled_dot_product_flash_attention_for_cpu``; the second result is for training."""
    return (_attention(node),)


_CONVOLUTIONS = (
    *("conv1d", "conv2d", "conv3d", "convolution"),
    *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
)

CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        **dict.fromkeys(("bmm", "dot", "matmul", "mm", "mv"), _product),
        **dict.fromkeys(("addmm", "baddbmm"), _added_product),
        **dict.fromkeys(_CONVOLUTIONS, _convolution),
        **dict.fromkeys(("outer", "ger"), _outer),
        "_scaled_dot_product_flash_attention_for_cpu": _attention_of_cpu,
        "einsum": _einsum,
        "linear": _linear,
        "scaled_dot_product_attention": _attention,
    }
)
