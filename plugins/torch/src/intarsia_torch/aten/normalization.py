# SPDX-License-Identifier: Apache-2.0
"""Normalizations, softmax, pooling and resizing."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_runtime.size import Dim

from .context import AtenContext, Converter, rank_of, sizes_of
from .resizing import resize_cubic, resize_linear, resize_nearest


def _layer_norm(node: AtenContext) -> Expr | tuple[Expr, ...]:
    """``layer_norm`` and ``native_layer_norm``, whose other results are for training."""
    x = node.tensor("input")
    count = len(node.integers("normalized_shape"))
    shape = node.integers("normalized_shape")
    weight = node.optional("weight") or node.full(shape, 1, node.dtype)
    made = node.onnx(
        "LayerNormalization",
        x,
        node.cast(weight, node.dtype),
        node.optional("bias"),
        axis=rank_of(x) - count,
        epsilon=float(node.number("eps", 1e-5)),
    )
    return made if node.name == "layer_norm" else (made,)


def _rms_norm(node: AtenContext) -> Expr:
    x, shape = node.tensor("input"), node.integers("normalized_shape")
    weight = node.optional("weight") or node.full(shape, 1, node.dtype)
    given = node.args.get("eps")
    eps = given if isinstance(given, float) else float(np.finfo(numpy_dtype(node.dtype)).eps)
    return node.onnx("RMSNormalization", x, weight, axis=rank_of(x) - len(shape), epsilon=eps)


def _batch_norm(node: AtenContext) -> Expr | tuple[Expr, ...]:
    """Batch normalization at inference, by the running statistics."""
    x = node.tensor("input")
    if node.flag("training") or node.optional("running_mean") is None:
        node.unsupported("batch norm in training mode")
    channels = sizes_of(x)[1]
    if not isinstance(channels, int):
        node.unsupported("an open number of channels")
    made = node.onnx(
        "BatchNormalization",
        x,
        node.optional("weight") or node.full((channels,), 1, node.dtype),
        node.optional("bias") or node.full((channels,), 0, node.dtype),
        node.tensor("running_mean"),
        node.tensor("running_var"),
        epsilon=float(node.number("eps", 1e-5)),
    )
    return made if node.name == "batch_norm" else (made,)


def _group_norm(node: AtenContext) -> Expr:
    x = node.tensor("input")
    channels = sizes_of(x)[1]
    if not isinstance(channels, int):
        node.unsupported("an open number of channels")
    return node.onnx(
        "GroupNormalization",
        x,
        node.optional("weight") or node.full((channels,), 1, node.dtype),
        node.optional("bias") or node.full((channels,), 0, node.dtype),
        num_groups=node.integer("num_groups"),
        epsilon=float(node.number("eps", 1e-5)),
    )


def _instance_norm(node: AtenContext) -> Expr:
    x = node.tensor("input")
    channels = sizes_of(x)[1]
    if not node.flag("use_input_stats") or not isinstance(channels, int):
        node.unsupported("running statistics, or an open number of channels")
    return node.onnx(
        "InstanceNormalization",
        x,
        node.optional("weight") or node.full((channels,), 1, node.dtype),
        node.optional("bias") or node.full((channels,), 0, node.dtype),
        epsilon=float(node.number("eps", 1e-5)),
    )


def _softmax(node: AtenContext) -> Expr:
    x = node.cast(node.tensor("self"), node.dtype)
    if rank_of(x) == 0:
        node.unsupported("a number")
    op = "LogSoftmax" if "log" in node.name else "Softmax"
    return node.onnx(op, x, axis=node.axis("dim", rank_of(x)))


def _with_batch(node: AtenContext, x: Expr, spatial: int) -> Expr:
    return node.reshape(x, (1, *sizes_of(x))) if rank_of(x) == spatial + 1 else x


def _pooled(node: AtenContext) -> Expr | tuple[Expr, ...]:
    """``max_pool`` and ``avg_pool`` of one to three dimensions."""
    spatial = next(int(letter) for letter in node.name if letter.isdigit())
    x = _with_batch(node, node.tensor("self"), spatial)
    kernel = node.spread("kernel_size", spatial, 1)
    stride = node.spread("stride", spatial, 1) if node.integers("stride") else kernel
    pads = node.spread("padding", spatial, 0) * 2
    ceil = int(node.flag("ceil_mode"))
    if node.name.startswith("avg"):
        if node.args.get("divisor_override") is not None:
            node.unsupported("divisor_override")
        made = node.onnx(
            "AveragePool",
            x,
            kernel_shape=kernel,
            strides=stride,
            pads=pads,
            ceil_mode=ceil,
            count_include_pad=int(node.flag("count_include_pad")),
        )
        return node.reshape(made, node.sizes)
    spread = node.spread("dilation", spatial, 1)
    made = node.onnx(
        "MaxPool",
        x,
        kernel_shape=kernel,
        strides=stride,
        pads=pads,
        ceil_mode=ceil,
        dilations=spread,
    )
    made = node.reshape(made, node.sizes)
    return (made,) if "indices" in node.name else made


def _pooled_to_size(node: AtenContext) -> Expr:
    """``adaptive_avg_pool`` and its kin, to sizes that divide those of the input."""
    x = node.tensor("self")
    goal = node.integers("output_size")
    axes = tuple(range(rank_of(x) - len(goal), rank_of(x)))
    name = "Max" if "max" in node.name else "Mean"
    if all(size == 1 for size in goal):
        return node.onnx(f"Reduce{name}", x, node.array(np.array(axes, np.int64)), keepdims=1)
    own = sizes_of(x)[axes[0] :]
    kernel = tuple(
        size // wanted
        for size, wanted in zip(own, goal, strict=True)
        if isinstance(size, int) and size % wanted == 0
    )
    if len(kernel) != len(goal):
        node.unsupported(f"sizes {own} to {goal}")
    op = "MaxPool" if name == "Max" else "AveragePool"
    made = node.onnx(op, _with_batch(node, x, len(goal)), kernel_shape=kernel, strides=kernel)
    return node.reshape(made, node.sizes)


def _resized(node: AtenContext) -> Expr:
    """``upsample_nearest``, ``upsample_bilinear`` and their kin."""
    x = node.tensor("input" if "input" in node.args else "self")
    aligned = node.flag("align_corners")
    mode = "nearest"
    if "linear" in node.name:
        mode = "linear"
    elif "bicubic" in node.name:
        mode = "cubic"
    if node.name.startswith(("_upsample", "upsample_nearest_exact")):
        node.unsupported("antialiasing, or exact nearest neighbours")
    places = "asymmetric" if mode == "nearest" else "half_pixel"
    places = "align_corners" if aligned else places
    if mode == "linear" and not aligned:
        places = "pytorch_half_pixel"
    if any(isinstance(size, Dim) for size in (*sizes_of(x)[2:], *node.sizes[2:])):
        return _resized_open(node, x, mode, aligned=aligned)
    scales, sizes = _scales(node, x)
    return node.onnx(
        "Resize",
        x,
        None,
        scales,
        sizes,
        mode=mode,
        coordinate_transformation_mode=places,
        nearest_mode="floor",
        cubic_coeff_a=-0.75,
    )


def _resized_open(node: AtenContext, x: Expr, mode: str, *, aligned: bool) -> Expr:
    """Resize an image of open size."""
    given = node.args.get("scale_factors")
    factors = [
        factor if isinstance(factor, int | float) else None
        for factor in (given if isinstance(given, list) else [None] * (rank_of(x) - 2))
    ]
    if mode == "nearest":
        return resize_nearest(node, x, factors)
    resize = resize_cubic if mode == "cubic" else resize_linear
    return resize(node, x, factors, aligned=aligned)


def _scales(node: AtenContext, x: Expr) -> tuple[Expr | None, Expr | None]:
    """Return the factors, or the sizes, to which an image is resized."""
    factors = node.args.get("scale_factors")
    if isinstance(factors, list):
        numbers = [factor for factor in factors if isinstance(factor, int | float)]
        return node.array(np.array([1.0, 1.0, *numbers], np.float32)), None
    return None, node.size_values([*sizes_of(x)[:2], *node.result.shape[2:]])


_POOLS = tuple(f"{kind}_pool{n}d" for kind in ("avg", "max") for n in (1, 2, 3))
_TO_SIZE = tuple(f"adaptive_{kind}_pool{n}d" for kind in ("avg",) for n in (1, 2, 3))
_UPSAMPLE = (
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_linear1d"),
    *("upsample_bilinear2d", "upsample_bicubic2d"),
)

CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        **dict.fromkeys(("softmax", "_softmax", "log_softmax", "_log_softmax"), _softmax),
        **dict.fromkeys(("layer_norm", "native_layer_norm"), _layer_norm),
        **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_no_training"), _batch_norm),
        **dict.fromkeys((*_POOLS, "max_pool2d_with_indices"), _pooled),
        **dict.fromkeys((*_TO_SIZE, "_adaptive_avg_pool2d"), _pooled_to_size),
        **dict.fromkeys(_UPSAMPLE, _resized),
        "group_norm": _group_norm,
        "instance_norm": _instance_norm,
        "rms_norm": _rms_norm,
    }
)
