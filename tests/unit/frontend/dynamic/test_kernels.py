# SPDX-License-Identifier: Apache-2.0
"""Kernels on the host against NumPy, one small case for each thing an operator can be told."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from intarsia_runtime.errors import ModelError, UnsupportedError

from .nodes import f32, i64, one, run, texts

RNG = np.random.default_rng(7)


def same(found: object, wanted: object, *, tolerance: float = 0.0) -> None:
    a, b = np.asarray(found), np.asarray(wanted)
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    if tolerance:
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(a, b)


def test_top_k_orders_ties_by_position() -> None:
    x = f32([[3, 1, 3, 2], [0, -1, 5, 5]])
    values, places = run("TopK", x, i64([3]), outputs=2)
    same(values, f32([[3, 3, 2], [5, 5, 0]]))
    same(places, i64([[0, 2, 3], [2, 3, 0]]))
    values, places = run("TopK", x, i64([1]), outputs=2, largest=0, axis=0)
    same((values, places)[1], i64([[1, 1, 0, 0]]))
    with pytest.raises(ModelError, match="5 of 4 elements"):
        run("TopK", x, i64([5]), outputs=2)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64"])
def test_top_k_knows_the_ends_of_integers(dtype: str) -> None:
    """The least one has no negative, and the largest ones are one number in float64."""
    ends = np.iinfo(dtype)
    x = np.array([ends.min, ends.max - 1, ends.min + 1, ends.max, ends.max // 2], dtype)
    for largest, order in ((1, [3, 1, 4, 2, 0]), (0, [0, 2, 4, 1, 3])):
        values, places = run("TopK", x, i64([5]), outputs=2, largest=largest)
        assert places.tolist() == order
        np.testing.assert_array_equal(values, x[order])


@given(st.lists(st.integers(0, 255), min_size=1, max_size=9), st.data())
def test_top_k_of_bytes_is_a_sorted_prefix(items: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(items)))
    values, _ = run("TopK", np.array(items, np.uint8), i64([count]), outputs=2)
    assert values.tolist() == sorted(items, reverse=True)[:count]


def test_choosing_elements() -> None:
    x = f32([[0, 2], [3, 0]])
    same(one("NonZero", x), i64([[0, 1], [1, 0]]))
    half = x.astype(ml_dtypes.bfloat16)
    same(one("NonZero", half), i64([[0, 1], [1, 0]]))
    mask = np.array([False, True])
    same(one("Compress", x, mask, axis=1), f32([[2], [0]]))
    same(one("Compress", x, mask), f32(2).reshape(1))
    found = run("Unique", f32(2, 1, 1, 3, 4, 3), outputs=4)
    for value, wanted in zip(
        found[1:], ([1, 0, 3, 4], [1, 0, 0, 2, 3, 2], [2, 1, 2, 1]), strict=True
    ):
        same(value, i64(wanted))
    unsorted, first, inverse, counts = run("Unique", f32(2, 1, 1), outputs=4, sorted=0)
    same(unsorted, f32(2, 1))
    assert [first.tolist(), inverse.tolist(), counts.tolist()] == [[0, 1], [0, 1, 1], [1, 2]]
    same(one("Unique", f32([[1, 1], [2, 2]]), axis=1), f32([[1], [2]]))
    with pytest.raises(ModelError, match="axis 3"):
        one("Compress", x, mask, axis=3)


def test_scattering() -> None:
    data = np.zeros((3, 3), np.float32)
    found = one("ScatterElements", data, i64([[1, 0, -1]]), f32([[1, 2, 3]]), axis=0)
    same(found, f32([[0, 2, 0], [1, 0, 0], [0, 0, 3]]))
    added = one("ScatterElements", data, i64([[1], [1], [1]]), f32([[1], [2], [3]]), axis=1)
    same(added, f32([[0, 1, 0], [0, 2, 0], [0, 3, 0]]))
    twice = one("ScatterElements", f32(1, 1), i64([0, 0]), f32(2, 3), reduction="mul")
    same(twice, f32(6, 1))
    same(one("ScatterND", f32(1, 2, 3), i64([[1], [-1]]), f32(9, 8)), f32(1, 9, 8))
    most = one("ScatterND", f32(1, 2, 3), i64([[1], [1]]), f32(9, 8), reduction="max")
    same(most, f32(1, 9, 3))
    for op, indices in (("ScatterElements", i64([5])), ("ScatterND", i64([[5]]))):
        with pytest.raises(ModelError, match="an index is outside"):
            one(op, f32(1, 2), indices, f32([1]))
    with pytest.raises(ModelError, match="reduction='xor'"):
        one("ScatterND", f32(1, 2), i64([[0]]), f32([1]), reduction="xor")


def test_writing_into_a_cache() -> None:
    cache, update = np.zeros((2, 3, 1), np.float32), np.ones((2, 2, 1), np.float32)
    found = one("TensorScatter", cache, update, i64([0, 1]), opset=24)
    same(found[..., 0], f32([[1, 1, 0], [0, 1, 1]]))
    around = one("TensorScatter", cache, update, i64([2, 0]), opset=24, mode="circular")
    same(around[..., 0], f32([[1, 0, 1], [1, 1, 0]]))
    with pytest.raises(ModelError, match="leaves the cache of 3 at sample 0"):
        one("TensorScatter", cache, update, i64([2, 0]), opset=24)


def test_reversing_sequences() -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    same(one("ReverseSequence", x, i64([2, 3])), f32([[2, 5], [0, 3], [4, 1]]))


def test_non_max_suppression_drops_what_overlaps() -> None:
    boxes = f32([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 5, 1, 6], [1, 1, 0, 0]]])
    scores = f32([[[0.9, 0.75, 0.6, 0.95]]])
    found = one("NonMaxSuppression", boxes, scores, i64([9]), f32([0.5]), f32([0.0]))
    same(found, i64([[0, 0, 3], [0, 0, 2]]))
    centred = f32([[[0.5, 0.5, 1, 1], [0.5, 0.6, 1, 1], [5, 0.5, 1, 1]]])
    few = f32([[[0.9, 0.75, 0.6]]])
    limits = (i64([1]), f32([0.5]), f32([0.0]))
    same(one("NonMaxSuppression", centred, few, *limits, center_point_box=1), i64([[0, 0, 0]]))
    assert one("NonMaxSuppression", boxes, scores).shape == (0, 3)


def test_products_determinants_and_shifts() -> None:
    x = f32([[1, 2, 3], [4, 5, 6]])
    same(one("CumProd", x, i64(1), opset=26), np.cumprod(x, 1))
    same(one("CumProd", x, i64(0), opset=26, exclusive=1), f32([[1, 1, 1], [1, 2, 3]]))
    backwards = one("CumProd", x, i64(1), opset=26, reverse=1, exclusive=1)
    same(backwards, f32([[6, 3, 1], [30, 6, 1]]))
    square = RNG.standard_normal((2, 3, 3)).astype(np.float32)
    same(one("Det", square), np.linalg.det(square).astype(np.float32), tolerance=1e-5)


@given(st.integers(-128, 127), st.integers(-128, 127))
def test_shifts_are_defined_everywhere(x: int, amount: int) -> None:
    operands = np.array([x], np.int8), np.array([amount], np.int8)
    right = one("BitShift", *operands, opset=28, direction="RIGHT")
    left = one("BitShift", *operands, opset=28, direction="LEFT")
    inside = 0 <= amount < 8
    assert right.tolist() == [x >> amount if inside else (-1 if x < 0 else 0)]
    wanted = np.array([(x << amount) & 255 if inside else 0], np.uint8).view(np.int8)
    same(left, wanted)


def test_einsum_of_a_diagonal_and_wrapping_pad() -> None:
    x = RNG.standard_normal((2, 3, 3)).astype(np.float32)
    same(one("Einsum", x, equation="...ii->...i"), np.einsum("...ii->...i", x))
    row = f32([[1, 2, 3]])
    same(one("Pad", row, i64([0, 2, 0, 4]), mode="wrap"), f32([[2, 3, 1, 2, 3, 1, 2, 3, 1]]))
    same(one("Pad", row, i64([-1, 1]), None, i64([1]), mode="wrap"), f32([[2, 3, 1]]))


def test_lstm_with_peepholes_of_nothing_is_a_plain_lstm() -> None:
    x, w = RNG.standard_normal((3, 2, 4)), RNG.standard_normal((1, 8, 4))
    r, p = RNG.standard_normal((1, 8, 2)), np.zeros((1, 6))
    data = [value.astype(np.float32) for value in (x, w, r)]
    plain = run("LSTM", *data, hidden_size=2, outputs=3)
    rest = (None, None, None, None, p.astype(np.float32))
    for found, wanted in zip(
        run("LSTM", *data, *rest, hidden_size=2, outputs=3), plain, strict=True
    ):
        same(found, wanted, tolerance=1e-5)


def test_flex_attention_is_attention() -> None:
    q = RNG.standard_normal((1, 4, 3, 2)).astype(np.float32)
    k, v = (RNG.standard_normal((1, 2, 5, 2)).astype(np.float32) for _ in range(2))
    found = one("FlexAttention", q, k, v, domain="ai.onnx.preview", opset=24)
    scores = q @ np.repeat(k, 2, 1).swapaxes(-1, -2) / np.sqrt(2)
    chances = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    same(found, (chances @ np.repeat(v, 2, 1)).astype(np.float32), tolerance=1e-5)
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("ReduceMax", ["s"], ["t"])],
        "b",
        [info("s", TensorProto.FLOAT, [1, 4, 3, 5])],
        [info("t", TensorProto.FLOAT, [1, 1, 1, 1])],
    )
    with pytest.raises(ModelError, match="'score_mod' changes the shape"):
        one("FlexAttention", q, k, v, domain="ai.onnx.preview", opset=24, score_mod=body)


def test_fourier_transforms() -> None:
    x = RNG.standard_normal((2, 6, 1)).astype(np.float32)
    full = np.fft.fft(x[..., 0])
    pairs = np.stack([full.real, full.imag], -1).astype(np.float32)
    same(one("DFT", x, opset=20), pairs, tolerance=1e-5)
    same(one("DFT", pairs, inverse=1, opset=20)[..., :1], x, tolerance=1e-5)
    half = one("DFT", x, None, i64(1), onesided=1, opset=20)
    same(half, pairs[:, :4], tolerance=1e-5)
    same(one("DFT", half, inverse=1, onesided=1, opset=20), x, tolerance=1e-5)
    same(one("DFT", x, i64(4), axis=1, opset=17).shape, (2, 4, 2))
    with pytest.raises(ModelError, match="it is no signal"):
        one("DFT", x, None, i64(2), opset=20)
    frames = one("STFT", x, i64(2), np.ones(4, np.float32), opset=17)
    first = np.fft.rfft(x[0, :4, 0])
    same(frames[0, 0], np.stack([first.real, first.imag], -1).astype(np.float32), tolerance=1e-5)
    assert one("STFT", x, i64(2), None, i64(4), onesided=0, opset=17).shape == (2, 2, 4, 2)
    with pytest.raises(ModelError, match="frames of 9 every 2"):
        one("STFT", x, i64(2), None, i64(9), opset=17)


def test_mel_filters_peak_at_one() -> None:
    found = one("MelWeightMatrix", i64(4), i64(64), i64(8000), f32(0), f32(4000), opset=17)
    assert found.shape == (33, 4)
    same(found.max(0), np.ones(4, np.float32))


def test_grid_sample_at_the_pixels_gives_the_pixels() -> None:
    x = RNG.standard_normal((1, 2, 3, 4)).astype(np.float32)
    rows, columns = np.meshgrid(np.linspace(-1, 1, 3), np.linspace(-1, 1, 4), indexing="ij")
    grid = np.stack([columns, rows], -1)[None].astype(np.float32)
    for mode in ("linear", "nearest", "cubic"):
        same(one("GridSample", x, grid, align_corners=1, mode=mode), x, tolerance=1e-5)
    far = np.full((1, 1, 1, 2), -3, np.float32)
    same(one("GridSample", x, far), np.zeros((1, 2, 1, 1), np.float32))
    same(one("GridSample", x, far, padding_mode="border")[..., 0, 0], x[..., 0, 0])
    mirrored = one("GridSample", x, far, padding_mode="reflection", align_corners=1)
    same(mirrored[..., 0, 0], x[..., 2, 3], tolerance=1e-5)


def test_roi_align_of_a_plane_reads_the_plane() -> None:
    ys, xs = np.indices((8, 8), dtype=np.float32)
    x = (ys * 10 + xs)[None, None]
    rois, images = f32([[1, 2, 5, 6]]), i64([0])
    kwargs = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
    found = one("RoiAlign", x, rois, images, **kwargs)
    same(found, f32([[[[26.5, 28.5], [46.5, 48.5]]]]), tolerance=1e-4)
    backward = one(
        "RoiAlign", x, rois, images, coordinate_transformation_mode="output_half_pixel", **kwargs
    )
    same(backward, f32([[[[32, 34], [52, 54]]]]), tolerance=1e-4)
    largest = one("RoiAlign", x, rois, images, mode="max", **kwargs)
    assert (largest <= 77).all()
    turned = one("RoiAlign", x, f32([[5, 2, 1, 6]]), images, output_width=2, mode="max")
    same(turned, np.zeros((1, 1, 1, 2), np.float32))


def test_deformable_convolution_without_offsets_is_convolution() -> None:
    x = RNG.standard_normal((1, 2, 5, 5)).astype(np.float32)
    w = RNG.standard_normal((3, 2, 3, 3)).astype(np.float32)
    b = RNG.standard_normal(3).astype(np.float32)
    offset = np.zeros((1, 18, 5, 5), np.float32)
    found = one("DeformConv", x, w, offset, b, pads=[1, 1, 1, 1])
    same(found, one("Conv", x, w, b, pads=[1, 1, 1, 1]), tolerance=1e-4)


def test_folding_and_pooling_with_places() -> None:
    columns = np.ones((1, 4, 4), np.float32)
    found = one("Col2Im", columns, i64([3, 3]), i64([2, 2]))
    same(found[0, 0], f32([[1, 2, 1], [2, 4, 2], [1, 2, 1]]))
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    y, places = run("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], outputs=2)
    same(places, i64([[[[5, 7], [13, 15]]]]))
    by_column = run("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], storage_order=1, outputs=2)
    same(by_column[1], i64([[[[5, 13], [7, 15]]]]))
    back = one("MaxUnpool", y, places, kernel_shape=[2, 2], strides=[2, 2])
    same(back, np.where(np.isin(x, y), x, 0))
    grown = one("MaxUnpool", y, places, i64([1, 1, 5, 5]), kernel_shape=[2, 2], strides=[2, 2])
    same(grown[..., :4, :4], back)


def test_resizing_with_a_filter_and_of_a_region() -> None:
    x = np.arange(8, dtype=np.float32).reshape(1, 1, 1, 8)
    scales = f32(1, 1, 1, 0.5)
    found = one("Resize", x, None, scales, mode="linear", antialias=1)
    same(found[0, 0, 0, 1:3], f32(2.5, 4.5), tolerance=1e-5)
    region = f32(0, 0, 0, 0, 1, 1, 1, 2)
    crop = one(
        "Resize", x, region, None, i64([1, 1, 1, 3]), mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=-1.0,
    )  # fmt: skip
    same(crop[0, 0, 0], f32(0, 7, -1), tolerance=1e-5)
    words = {"mode": "linear", "antialias": 1, "keep_aspect_ratio_policy": "not_larger"}
    ratio = one("Resize", x, None, None, i64([3]), axes=(3,), **words)
    same(ratio, one("Resize", x, None, None, i64([1, 1, 1, 3]), mode="linear", antialias=1))
    with pytest.raises(ModelError, match="leaves nothing of dimension 0"):
        one("Resize", x, None, None, i64([1, 1, 1, 3]), **words)


def test_steps_of_training() -> None:
    rate, count = f32(0.1), i64(1)
    x, g, s = f32(1, 2), f32(-1, 3), f32(2, 4)
    domain = "ai.onnx.preview.training"
    new, total = run("Adagrad", rate, count, x, g, s, domain=domain, outputs=2)
    same(total, s + g * g)
    same(new, x - np.float32(0.1) * g / (np.sqrt(total) + np.float32(1e-6)), tolerance=1e-6)
    words = {"norm_coefficient": 0.0, "alpha": 0.9, "beta": 1.0, "domain": domain, "outputs": 2}
    moved, speed = run("Momentum", rate, count, x, g, s, mode="standard", **words)
    same(speed, np.float32(0.9) * s + g, tolerance=1e-6)
    same(moved, x - np.float32(0.1) * speed, tolerance=1e-6)
    ahead, _ = run("Momentum", rate, count, x, g, s, mode="nesterov", **words)
    same(ahead, x - np.float32(0.1) * (g + np.float32(0.9) * speed), tolerance=1e-6)
    first = run("Adam", rate, i64(0), x, g, s, s, domain=domain, outputs=3)
    mean, square = 0.9 * s + 0.1 * g, 0.999 * s + 0.001 * g * g
    same(first[0], (x - 0.1 * mean / (np.sqrt(square) + 1e-6)).astype(np.float32), tolerance=1e-5)
    with pytest.raises(ModelError, match="cannot be shared among groups of 3"):
        run("Adagrad", rate, count, x, g, domain=domain, outputs=2)


def test_dropout_and_batch_norm_in_training() -> None:
    x = np.ones((100,), np.float32)
    y, kept = run("Dropout", x, f32(0.25), np.array(True), seed=3, outputs=2)
    same(y, np.where(kept, np.float32(1 / 0.75), 0))
    assert 60 <= kept.sum() <= 90
    again = run("Dropout", x, f32(0.25), np.array(True), seed=3, outputs=2)
    same(again[1], kept)
    same(run("Dropout", x, f32(0), np.array(True), outputs=2)[0], x)
    data = RNG.standard_normal((4, 3, 5)).astype(np.float32)
    row = np.arange(3, dtype=np.float32)
    y, mean, var = run(
        "BatchNormalization", data, row, row, row, row, training_mode=1, momentum=0.5, outputs=3
    )
    same(mean, (row * 0.5 + data.mean((0, 2)) * 0.5).astype(np.float32), tolerance=1e-5)
    same(var, (row * 0.5 + data.var((0, 2)) * 0.5).astype(np.float32), tolerance=1e-5)
    same(y[:, 0], np.zeros((4, 5), np.float32))


def tree(**more: object) -> dict[str, object]:
    """One node: feature 0 at most 1 goes to leaf 0, else to leaf 1."""

    def tensor(name: str, kind: int, *values: float):
        return helper.make_tensor(name, kind, [len(values)], values)

    return {
        "n_targets": 2, "tree_roots": [0], "nodes_featureids": [0],
        "nodes_splits": tensor("s", TensorProto.FLOAT, 1.0),
        "nodes_modes": tensor("m", TensorProto.UINT8, 0),
        "nodes_truenodeids": [0], "nodes_trueleafs": [1],
        "nodes_falsenodeids": [1], "nodes_falseleafs": [1],
        "leaf_targetids": [0, 1], "leaf_weights": tensor("w", TensorProto.FLOAT, 5.0, 7.0),
        "domain": "ai.onnx.ml", **more,
    }  # fmt: skip


def test_tree_ensembles() -> None:
    x = f32([[0.5], [2.0], [np.nan]])
    same(one("TreeEnsemble", x, **tree()), f32([[5, 0], [0, 7], [0, 7]]))
    same(one("TreeEnsemble", x, **tree(nodes_missing_value_tracks_true=[1]))[2], f32(5, 0))
    soft = one("TreeEnsemble", x, **tree(post_transform=1))
    same(soft.sum(1), np.ones(3, np.float32), tolerance=1e-6)
    same(one("TreeEnsemble", x, **tree(aggregate_function=0))[0], f32(5, 0))
    assert one("TreeEnsemble", x, **tree(aggregate_function=3))[0, 0] == 5
    assert one("TreeEnsemble", x, **tree(aggregate_function=2))[0, 0] == 5
    same(one("TreeEnsemble", x, **tree(post_transform=2))[0, 1], np.float32(0.5))
    same(one("TreeEnsemble", x, **tree(post_transform=3))[0, 1], np.float32(0))
    with pytest.raises(UnsupportedError, match="post_transform=4"):
        one("TreeEnsemble", x, **tree(post_transform=4))
    with pytest.raises(ModelError, match="form a cycle"):
        one("TreeEnsemble", x, **tree(nodes_trueleafs=[0]))


def test_columns_and_thresholds() -> None:
    same(
        one("ArrayFeatureExtractor", f32([[1, 2, 3]]), i64([2, 0]), domain="ai.onnx.ml"),
        f32([[3, 1]]),
    )
    same(one("Binarizer", f32(0, 1, 2), domain="ai.onnx.ml", threshold=1.0), f32(0, 0, 1))


def test_strings() -> None:
    same(one("StringConcat", texts("a", "b"), texts("x"), opset=20), texts("ax", "bx"))
    parts, counts = run("StringSplit", texts("a,b", "c"), opset=20, delimiter=",", outputs=2)
    same(parts, np.array([["a", "b"], ["c", ""]], object))
    same(counts, i64([2, 1]))
    same(one("RegexFullMatch", texts("ab", "b"), opset=20, pattern="a.*"), np.array([True, False]))
    same(one("Equal", texts("a", "b"), texts("a")), np.array([True, False]))
    words = texts("Monday", "tuesday")
    same(
        one("StringNormalizer", words, stopwords=["monday"], case_change_action="UPPER"),
        texts("TUESDAY"),
    )
    same(one("StringNormalizer", words, stopwords=["monday"], is_case_sensitive=1), words)
    lower = one("StringNormalizer", words, case_change_action="LOWER")
    same(lower, texts("monday", "tuesday"))
    with pytest.raises(ModelError, match="one row of words"):
        one("StringNormalizer", np.array([["a"], ["b"]], object))
    with pytest.raises(ModelError, match="no regular expression"):
        one("RegexFullMatch", words, opset=20, pattern="(")


def test_labels() -> None:
    words = {"domain": "ai.onnx.ml", "keys_strings": ["a", "b"], "values_int64s": [1, 2]}
    same(one("LabelEncoder", texts("b", "z"), **words, default_int64=9), i64([2, 9]))
    by_number = {"domain": "ai.onnx.ml", "keys_floats": [float("nan"), 1.0]}
    found = one("LabelEncoder", f32(np.nan, 1, 3), **by_number, values_strings=["n", "one"])
    same(found, texts("n", "one", "_Unused"))
    found = one("LabelEncoder", f32(1, 5), **by_number, values_floats=[4.0, 6.0], default_float=0.5)
    same(found, f32(6, 0.5))
    table = {
        "keys_tensor": helper.make_tensor("k", TensorProto.INT64, [2], [1, 2]),
        "values_tensor": helper.make_tensor("v", TensorProto.INT64, [2], [10, 20]),
        "default_tensor": helper.make_tensor("d", TensorProto.INT64, [1], [-1]),
    }
    same(one("LabelEncoder", i64([2, 3]), domain="ai.onnx.ml", **table), i64([20, -1]))
    with pytest.raises(ModelError, match="2 keys for 1 values"):
        one("LabelEncoder", i64([1]), domain="ai.onnx.ml", keys_int64s=[1, 2], values_int64s=[1])
    with pytest.raises(ModelError, match="has no table of values"):
        one("LabelEncoder", i64([1]), domain="ai.onnx.ml", keys_int64s=[1, 2])


@pytest.mark.parametrize("labels", [[5], [5, 3], [2, 0, 1], [4, 5, 6, 7]])
def test_maps_of_labels(labels: list[int]) -> None:
    scores = np.arange(2 * len(labels), dtype=np.float32).reshape(2, -1)
    (found,) = run("ZipMap", scores, domain="ai.onnx.ml", classlabels_int64s=labels)
    assert found == [dict(zip(labels, row, strict=True)) for row in scores.tolist()]


def test_labels_of_the_first_version() -> None:
    classes = {"domain": "ai.onnx.ml", "classes_strings": ["a", "b", "c"]}
    same(one("LabelEncoder", texts("c", "a", "z"), **classes), i64([2, 0, -1]))
    same(one("LabelEncoder", texts("z"), **classes, default_int64=7), i64([7]))
    same(one("LabelEncoder", i64([1, 3]), **classes), texts("b", "_Unused"))


def test_counts_of_n_grams() -> None:
    words = {
        "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 1, "mode": "TF",
        "ngram_counts": [0, 2], "ngram_indexes": [0, 1, 2], "pool_int64s": [2, 3, 5, 4],
    }  # fmt: skip
    x = i64([2, 3, 5, 9, 4])
    same(one("TfIdfVectorizer", x, **words), f32(1, 1, 1))
    weighed = {**words, "mode": "TFIDF", "weights": [2.0, 3.0, 4.0], "max_skip_count": 0}
    same(one("TfIdfVectorizer", np.stack([x, x]), **weighed), f32([[2, 3, 0], [2, 3, 0]]))
    same(one("TfIdfVectorizer", x, **{**weighed, "mode": "IDF"}), f32(2, 3, 0))
    with pytest.raises(ModelError, match="3 n-grams for 2 places"):
        one("TfIdfVectorizer", x, **{**words, "ngram_indexes": [0, 1]})


def test_images_are_decoded() -> None:
    header = b"P6 2 1 255\n"
    stream = np.frombuffer(header + bytes([255, 0, 0, 0, 0, 255]), np.uint8)
    pytest.importorskip("PIL", reason="images are decoded by Pillow")
    red, blue = [255, 0, 0], [0, 0, 255]
    same(one("ImageDecoder", stream, opset=20), np.array([[red, blue]], np.uint8))
    same(
        one("ImageDecoder", stream, opset=20, pixel_format="BGR"), np.array([[blue, red]], np.uint8)
    )
    assert one("ImageDecoder", stream, opset=20, pixel_format="Grayscale").shape == (1, 2, 1)
    assert one("ImageDecoder", stream[:5], opset=20).shape == (0, 0, 3)


def test_images_need_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(UnsupportedError, match="needs the package 'pillow'"):
        one("ImageDecoder", np.zeros(3, np.uint8), opset=20)
