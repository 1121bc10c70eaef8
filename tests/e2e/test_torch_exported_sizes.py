# SPDX-License-Identifier: Apache-2.0
"""Exported programs of open sizes, with what published architectures do to these sizes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import intarsia
from intarsia_runtime.errors import ModelError, UsageError
from intarsia_torch.exported import import_exported

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
pytest.importorskip("llvmlite", reason="needs a backend that generates code")
nn = torch.nn
functions = torch.nn.functional
OPEN = torch.export.Dim.DYNAMIC


class WeightNormed(nn.Module):
    """A convolution whose weight is a direction and a length, as those of speech encoders are."""

    def __init__(self) -> None:
        super().__init__()
        conv = nn.Conv1d(4, 4, 3, padding=1)
        self.conv = nn.utils.parametrizations.weight_norm(conv, dim=2)

    def forward(self, x):
        return functions.gelu(self.conv(x))


class Cached(nn.Module):
    """Attention over a cache and new rows, masked along both."""

    def forward(self, x, past, mask):
        rows = torch.cat([past, x], 1)
        scores = x @ rows.transpose(1, 2) + mask[:, None, : rows.shape[1]]
        return scores.softmax(-1) @ rows


class RelativePositions(nn.Module):
    """Scores of relative positions ``-(n - 1)..n - 1``, cut from a table around its middle."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1, 99, 8))

    def forward(self, x):
        length = x.shape[1] // 3 - 1
        x = x[:, :length]
        rows = self.table[:, 49 - length + 1 : 49 + length]
        scores = x @ rows.transpose(1, 2)
        padded = functions.pad(scores, (1, 0)).view(x.shape[0], 2 * length, length)
        return padded[:, 1:].reshape(scores.shape)[..., :length]


class Cubic(nn.Module):
    """Positions interpolated as those of vision transformers are."""

    def __init__(self, aligned: bool) -> None:
        super().__init__()
        self.aligned = aligned

    def forward(self, x):
        size = x.shape[2] * 2 - 3, x.shape[3] // 2 + 1
        return functions.interpolate(x, size, mode="bicubic", align_corners=self.aligned)


class Fixed(nn.Module):
    """Resizes to a number, which torch takes from the example and guards."""

    def forward(self, x):
        return functions.interpolate(x, (int(x.shape[2] // 7 * 7), 8), mode="nearest")


def check(model, examples: Sequence, sizes: Sequence[Sequence[Sequence[int]]], axes) -> None:
    """Compare one program, imported by its ATen operators, with the module at several sizes."""
    torch.manual_seed(0)
    dynamic = tuple(dict.fromkeys(own, OPEN) for own in axes)
    exported = torch.export.export(model.eval(), tuple(examples), dynamic_shapes=dynamic)
    module = import_exported(torch, exported, None)
    with torch.no_grad(), intarsia.build(module, "llvm").load() as program:
        for shapes in sizes:
            given = [torch.randn(*shape) for shape in shapes]
            (found,) = program.run([x.numpy() for x in given]).values()
            torch.testing.assert_close(torch.from_numpy(found), model(*given), rtol=1e-4, atol=1e-5)


def test_normed_weights_are_decomposed_in_two_rounds() -> None:
    sizes = [[(2, 4, 7)], [(3, 4, 40)], [(5, 4, 3)]]
    check(WeightNormed(), [torch.randn(2, 4, 9)], sizes, [(0, 2)])


def test_a_range_of_a_sum_of_sizes_is_checked() -> None:
    examples = [torch.randn(2, 3, 8), torch.randn(2, 4, 8), torch.randn(2, 7)]
    sizes = [[(2, n, 8), (2, m, 8), (2, n + m)] for n, m in ((2, 5), (6, 3), (20, 31))]
    check(Cached(), examples, sizes, [(1,), (1,), (1,)])


def test_a_part_has_the_size_that_torch_says_whatever_follows() -> None:
    sizes = [[(2, n, 8)] for n in (9, 22, 70, 12)]
    check(RelativePositions(), [torch.randn(2, 24, 8)], sizes, [(1,)])


@pytest.mark.parametrize("aligned", [False, True])
def test_cubics_over_open_sizes(aligned: bool) -> None:
    sizes = [[(1, 2, h, w)] for h, w in ((5, 7), (8, 40), (33, 2), (4, 12))]
    check(Cubic(aligned), [torch.randn(1, 2, 6, 10)], sizes, [(2, 3)])


def test_sizes_that_the_export_fixed_are_checked() -> None:
    exported = torch.export.export(
        Fixed(), (torch.randn(1, 2, 30, 8),), dynamic_shapes=({2: OPEN},)
    )
    module = import_exported(torch, exported, None)
    with intarsia.build(module, "llvm").load() as program:
        for height in (28, 34):
            x = torch.randn(1, 2, height, 8)
            (found,) = program.run([x.numpy()]).values()
            torch.testing.assert_close(torch.from_numpy(found), exported.module()(x))
        with pytest.raises(ModelError, match="exported for equal sizes"):
            program.run([torch.randn(1, 2, 35, 8).numpy()])
    with pytest.raises(UsageError, match="exported for Eq"):
        import_exported(torch, exported, {"x": (1, 2, 35, 8)})
