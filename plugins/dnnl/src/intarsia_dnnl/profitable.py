# SPDX-License-Identifier: Apache-2.0
"""Which regions it is profitable to give to the library; of open sizes, at typical ones."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from math import prod

from msgspec import Struct

from intarsia.plugin.accelerator import (
    Call,
    Code,
    Constant,
    Expr,
    ReducedConvolution,
    Region,
    calls,
    count_products,
    count_uses,
    is_reduced,
    keep_calls,
    tensor_type,
    typical_sizes,
)

from .isa import hides_tiles, usable_features
from .narrow import gains_by_bfloat16, has_matrix_unit
from .operators import quantized
from .speed import EVEN, lead, part_of_limits
from .target import DnnlOptions

FREE_BYTES = 256 * 1024
"""Images at the border that may be reordered without asking what it costs: some 20 us."""
_OPEN_GRAIN = 3
"""How many times more operations a call has to do in products of open sizes."""
_LEAST_WINDOWS = 20
"""Percent of a region's work in windows from which on the fallback's direct ones cost more."""
_LEAST_OUTPUTS = 4
"""Outputs of a window for which the library has fast loops of AVX2."""
_CLEAR_GRAIN = 1 / 3
"""What part of the operations a call has to do if the library is faster in every call."""
_REDUCTION = 1.85
"""How much faster than its windows the fallback is by Winograd's method. (VGG-16, all windows.)"""
FREE_CALLS = 12
"""Operators that may be called without asking what it costs: some 5 us."""


class Strengths(Struct, frozen=True):
    """What the fallback does well.

    Attributes:
        reduced: Convolutions that it computes with fewer multiplications, if any.
        features: Processor features that its code may use; ``None`` for all of this processor.
        narrow: Whether its products, too, may be in bfloat16: a flag ``-fpmath-mode`` says so.
    """

    reduced: ReducedConvolution | None = None
    features: AbstractSet[str] | None = None
    narrow: bool = False


def keep_profitable(region: Region, options: DnnlOptions, fallback: Strengths) -> Region:
    """Return what is kept of a region: all of it, its large products alone, or nothing.

    The library could compute all of it: what is given back is slower there.

    Args:
        region: What the table takes.
        options: What the user set.
        fallback: What would compute it instead.
    """
    flops = count_flops(region)
    faster = _lead(region, flops, options, fallback)
    if why := objection(region, flops, options, fallback.reduced, faster):
        return keep_calls(region, (), why, code=Code.SLOWER)
    least = _least_grain(region, options, faster)
    if why := _about_calls(region, flops, least):
        kept = _products(region, least) if _is_narrow(options) else ()
        return keep_calls(region, kept, why, code=Code.SLOWER)
    return region


def _products(region: Region, least: int) -> list[Call]:
    """Return the products that repay a call each, with what is done to their results alone.

    A product in bfloat16 gains so much that it repays a region of its own.
    """
    function = region.function
    uses, kept = count_uses(function.outputs), dict[Expr, Call]()
    for call in calls(function):
        inputs = [arg for arg in call.args if not isinstance(arg, Constant)]
        follows = len(inputs) == 1 and inputs[0] in kept and uses[inputs[0]] == 1
        worthy = call.name in _PRODUCTS and _flops(region, call) >= least
        if worthy or (call.name in _AFTER and follows):
            kept[call] = call
    return list(kept.values())


def _lead(region: Region, flops: int, options: DnnlOptions, fallback: Strengths) -> float:
    """Return how many times faster the library is, but for what the fallback computes with less."""
    bytewise = _is_bytewise(region, flops)
    found = lead(fallback.features, options, bytewise=bytewise, both_narrow=fallback.narrow)
    if found <= EVEN or options.max_windows == 100:
        return found
    return found * (1 - _windows(region, fallback.reduced) / max(1, flops) * (1 - 1 / _REDUCTION))


def objection(
    region: Region,
    flops: int,
    options: DnnlOptions,
    reduced: ReducedConvolution | None,
    faster: float,
) -> str:
    """Say in numbers why nothing of a region is wanted; empty if it may be."""
    if flops < options.min_flops:
        return f"its region does {flops} operations, less than -min-flops={options.min_flops}"
    if options.min_gain and 100 * (faster - 1) < options.min_gain:
        return (
            f"oneDNN is {faster:.2f} times as fast as the fallback's code, by what was measured for"
            f" their instructions, which gains less than -min-gain={options.min_gain} percent"
        )
    borders = _about_borders(region, flops, _least_reuse(options, faster))
    windows = "" if faster > EVEN else _about_windows(region, flops, options, reduced)
    few = _about_few_outputs(region, options)
    return few or borders or windows or _about_tiles(region, flops, options)


def _least_reuse(options: DnnlOptions, faster: float) -> int:
    """Return the operations a byte; on the matrix unit, products gain half and not a twentieth."""
    part = 0.1 if _is_narrow(options) else part_of_limits(faster)
    return int(options.min_reuse * part)


def _least_grain(region: Region, options: DnnlOptions, faster: float) -> int:
    """Return the operations a call; the matrix unit does twice as many in the time of a call.

    Of products of open sizes there have to be more: sizes shorter than typical ones are as frequent
    as longer ones. (Measured, one thread, time by the fallback's, attention of 384 channels, 11
    million operations an operator: 1.28 with 1 token, 1.11 with 16, 1.08 with 64, 1.04 with 128; of
    768 channels, 46 million: 1.07 with 8, 1.03 with 32, 0.91 with 128. A text recognition net with
    depthwise and 1x1 convolutions 1.06 to 1.11. Larger windows, which the fallback does directly
    then: ResNet-50 0.5 at all sizes.)

    Where the library is faster by far, it is so in every call, and the cost of calls alone counts.
    (Measured beside code for SSE4.1, time by the fallback's: an LSTM, 129 000 operations an
    operator, 0.48; MobileNet-v1 0.25, 258 000, 0.50; DS-CNN 0.47; in bfloat16 beside AVX-512,
    1.20, 0.90 and 0.91.)

    (Measured with AMX, one thread, time by the fallback's in fp32: MobileNet-v2, 6 000 000
    operations an operator, 0.63; dense layers of Magika, 4 500 000, 1.08; Basic Pitch, between 1
    and 3 million, 2.2.)
    """
    factor = _OPEN_GRAIN if _is_open_product(region) else 1
    part = part_of_limits(faster)
    part = 0.5 if _is_narrow(options) else part * (_CLEAR_GRAIN if part < 1 else 1)
    return int(factor * options.min_grain * part)


def _is_open_product(region: Region) -> bool:
    """Whether a region of open sizes does nearly all of its work in products, 1x1 windows too."""
    windows = sum(_flops(region, c) for c in calls(region.function) if _has_window(c))
    return bool(region.sizes) and 100 * windows <= _LEAST_WINDOWS * count_flops(region)


def _has_window(call: Call) -> bool:
    """Whether a call is a convolution that sums over channels and places."""
    if call.name != "nn.conv":
        return False
    _, inner, *kernel = tensor_type(call.args[1]).static_shape
    return inner > 1 and prod(kernel) > 1


def _is_narrow(options: DnnlOptions) -> bool:
    """Whether a matrix unit multiplies in bfloat16."""
    return gains_by_bfloat16(options.fpmath_mode) and has_matrix_unit()


def _about_borders(region: Region, flops: int, least: int) -> str:
    """Object to convolutions that do little work for each byte of images at the border.

    An image comes and goes with its channels apart, and convolutions of the library want them
    together. Its reorder moves one float32 a cycle, four to five times slower than a copy: one byte
    costs as much as 15 operations, where code of the fallback needs 3. On the other hand
    convolutions of the library beat those of the fallback by 3 to 6 %. So a region has to do about
    200 operations for each byte at its border (measured, AVX-512, one thread: 3x3 with 64 channels
    of 56x56, 144 operations, 1.08 times the fallback's time; 1x1 from 64 to 256 channels, 26
    operations, 1.36 times; 3x3 depthwise, 2 operations, 2.5 times; ResNet-50, 13 000, 0.97).

    No byte is free where a region of bytes averages and multiplies nothing: the products stay with
    the fallback, whose images would be turned round for it. (Measured, AVX2 without VNNI, one
    thread, time by the fallback's: DS-CNN of 8 bits 5 times, ResNet-8 1.4, MobileNet-v2 1.3.)
    """
    reordered = _border_bytes(region)
    free = 0 if _averages_alone(region) else FREE_BYTES
    if reordered <= free or flops >= least * reordered:
        return ""
    return (
        f"its region does {flops / reordered:.0f} operations for each byte of images that oneDNN"
        f" has to reorder at the border, less than -min-reuse={least}"
    )


def _about_windows(
    region: Region, flops: int, options: DnnlOptions, reduced: ReducedConvolution | None
) -> str:
    """Object to a region of mostly windows that the fallback computes by Winograd's method.

    The library has that for x86 no more: it multiplies 36 times where the fallback does 16 times.
    (Measured as above, part of the operations and time by the fallback's: VGG-16, 98 %, 1.50 times;
    ResNet-50, 31 %, 1.22 times.) Products in bfloat16 gain more.
    """
    if gains_by_bfloat16(options.fpmath_mode):
        return ""
    windows = _windows(region, reduced)
    if 100 * windows <= options.max_windows * flops:
        return ""
    return (
        f"{100 * windows // flops} % of its region's operations are 3x3 convolutions of stride 1,"
        f" more than -max-windows={options.max_windows}: the fallback computes them with fewer"
    )


def _windows(region: Region, reduced: ReducedConvolution | None) -> int:
    """Return the operations of windows that the fallback computes by Winograd's method."""
    if reduced is None:
        return 0
    return sum(_flops(region, call) for call in calls(region.function) if is_reduced(call, reduced))


def _about_few_outputs(region: Region, options: DnnlOptions) -> str:
    """Object to windows of one to three outputs where the library has AVX2 and no AVX-512.

    (Measured, oneDNN 2023.2, AVX2, one thread, time by the fallback's, 32 channels of 88x88: 7x7 to
    one output 690 times, to two 770, to four 0.9; 3x3 to one 370. Basic Pitch, 11 times a peer's.)
    """
    features = usable_features()
    if not options.min_grain or "avx2" not in features or "avx512bw" in features:
        return ""
    windows = [call for call in calls(region.function) if _has_window(call)]
    if all(tensor_type(call.args[1]).static_shape[0] >= _LEAST_OUTPUTS for call in windows):
        return ""
    return (
        f"its region has a window of fewer than {_LEAST_OUTPUTS} outputs, for which oneDNN has no"
        " fast loops without AVX-512 (-min-gain=0 -min-grain=0 keeps it)"
    )


def _about_tiles(region: Region, flops: int, options: DnnlOptions) -> str:
    """Object to products of 8-bit integers where the fallback alone may use the matrix unit.

    (Measured as above, by the fallback's time with AMX: ResNet-50, 1.38 and 1.37 times.)
    """
    if options.int8 != "auto" or not hides_tiles():
        return ""
    if not _is_bytewise(region, flops):
        return ""
    return (
        "oneDNN multiplies 8-bit integers with vectors on this virtual machine, which hides the"
        " sizes of AMX's tiles; the fallback may use them (-int8=on keeps the region)"
    )


def _is_bytewise(region: Region, flops: int) -> bool:
    """Whether more than half of a region's work is in products of 8-bit integers."""
    products = (call for call in calls(region.function) if call.name in quantized.PRODUCTS)
    return 2 * sum(_flops(region, call) for call in products) > flops


def _about_calls(region: Region, flops: int, least: int) -> str:
    """Object to many operators that do too little work to repay a call each.

    A call of the library takes 0.3 to 0.6 us, the work of some 100 000 operations; code of the
    fallback has none and keeps chains of them in registers. (Measured as above, operations an
    operator and time by the fallback's: an autoencoder, 18 000, 1.18; a recurrent network,
    129 000, 1.5; MobileNet-v1 0.25, 258 000, 1.08; ResNet-8, 1 090 000, 0.98 with one thread; with
    two, which the library has meet in every operator, up to 80 beside other programs. Dense layers
    of Magika, 4 500 000, 1.03 and 1.14 with two threads; MobileNet-v2, 6 000 000, 1.17 and 1.14,
    of 8 bits, 9 100 000, 1.17 and 1.36. And to open a model takes 0.3 ms for each.)

    A few calls are free, unless all they multiply is single rows, which wait for their weights
    whoever multiplies; and beside the library the fallback has one thread for all that is left.
    (The gates of Silero's cells, 105 000: 1.07 to 1.2, with two threads 1.25.)
    """
    count = sum(call.name not in _VIEWS for call in calls(region.function))
    costly = _multiplies_rows(region) or _is_open_product(region)
    if (count < FREE_CALLS and not costly) or flops >= least * count:
        return ""
    return (
        f"its region does {flops // count} operations for each of {count} calls of oneDNN, less"
        f" than -min-grain={least}"
    )


def _multiplies_rows(region: Region) -> bool:
    """Whether there are products, and each is of a single row."""
    products = [call for call in calls(region.function) if call.name in _PRODUCTS]
    return bool(products) and all(_rows(region, call) == 1 for call in products)


def _rows(region: Region, call: Call) -> int:
    """Return how many rows of a product share its weights."""
    shape = typical_sizes(call, region.typical)
    return prod(shape[:-1]) if call.name == "matmul" else shape[0] * prod(shape[2:])


def count_flops(region: Region) -> int:
    """Return the floating-point operations of the operators that are more than element-wise."""
    return sum(_flops(region, call) for call in calls(region.function))


def _border_bytes(region: Region) -> int:
    """Return the bytes at the border that convolutions of the region want in another order."""
    function = region.function
    has_convolutions = any(call.name in _CONVOLUTIONS for call in calls(function))
    if not has_convolutions and not _averages_alone(region):
        return 0
    border: tuple[Expr, ...] = (*function.params, *function.outputs)
    shapes = {value: typical_sizes(value, region.typical) for value in border}
    return sum(
        prod(shapes[value]) * tensor_type(value).dtype.bytes
        for value in border
        if _is_rank4(shapes[value])
    )


def _averages_alone(region: Region) -> bool:
    """Whether a region averages quantized values, and multiplies nothing."""
    names = {call.name for call in calls(region.function)}
    return "qnn.mean" in names and names.isdisjoint((*_CONVOLUTIONS, *quantized.PRODUCTS))


def _is_rank4(shape: Sequence[int]) -> bool:
    """Whether a tensor has several channels, more than colours, of several elements each."""
    return len(shape) > 3 and shape[1] > 4 and prod(shape[2:]) > 1


_VIEWS: Sequence[str] = ("reshape", "transpose", "strided_slice")
_AFTER: Sequence[str] = ("reshape", "add", "nn.relu", "nn.gelu", "clip")
_PRODUCTS: Sequence[str] = ("matmul", "nn.conv")
_CONVOLUTIONS: Sequence[str] = ("nn.conv", "nn.conv_transpose", "qnn.conv")


def _flops(region: Region, call: Call) -> int:
    if call.name in _COUNTED:
        return prod(typical_sizes(call.args[0], region.typical))
    return 2 * count_products(call, region.typical)


_COUNTED: Sequence[str] = (
    *("nn.max_pool", "nn.avg_pool", "nn.lrn", "nn.softmax", "nn.log_softmax"),
    *("nn.layer_norm", "nn.batch_norm", "nn.resize", "sum", "mean", "max", "prod", "qnn.mean"),
)
