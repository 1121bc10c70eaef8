# SPDX-License-Identifier: Apache-2.0
"""Weights in the order in which register tiles read them: packed when they are wanted."""

from __future__ import annotations

import numpy as np

from intarsia_ir.writing.deferred import DeferredArray
from intarsia_loops.cpu.packing import (
    conv_deferred,
    dense_deferred,
    depthwise_deferred,
    pack_conv,
    pack_dense,
    pack_depthwise,
    pack_winograd,
    unpack_conv,
    unpack_dense,
    unpack_depthwise,
    unpack_winograd,
    winograd_deferred,
)


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def packed(deferred: DeferredArray) -> np.ndarray:
    """Pack into used memory, of which every element has to be written."""
    memory = np.full(deferred.nbytes + 64, 255, np.uint8)
    found = deferred.into(memory)
    assert not np.isnan(found).any()
    np.testing.assert_array_equal(found, deferred.array())
    return found


def test_taps_of_groups() -> None:
    taps = weights(20, 5, 3, 3)
    for groups in (1, 2, 4):
        found = packed(conv_deferred(taps, groups, 8))
        np.testing.assert_array_equal(found, pack_conv(taps, groups, 8))
        np.testing.assert_array_equal(unpack_conv(found, 20, (3, 3), groups), taps)


def test_transformed_taps() -> None:
    taps = weights(20, 5, 3, 3)
    found = packed(winograd_deferred(taps, 8))
    np.testing.assert_array_equal(found, pack_winograd(taps, 8))
    np.testing.assert_allclose(unpack_winograd(found, 20), taps, atol=1e-6)


def test_taps_within_channels() -> None:
    plane = weights(6, 1, 3, 2)
    found = packed(depthwise_deferred(plane))
    np.testing.assert_array_equal(found, pack_depthwise(plane))
    np.testing.assert_array_equal(unpack_depthwise(found), plane)


def test_a_matrix() -> None:
    matrix = weights(7, 21)
    found = packed(dense_deferred(matrix, 8))
    np.testing.assert_array_equal(found, pack_dense(matrix, 8))
    np.testing.assert_array_equal(unpack_dense(found, 21), matrix)
    np.testing.assert_array_equal(unpack_dense(packed(dense_deferred(matrix.T, 8)), 7), matrix.T)
