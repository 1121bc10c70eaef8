# SPDX-License-Identifier: Apache-2.0
"""Exported programs of open sizes, with what published architectures do to these sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import intarsia
from intarsia_runtime.errors import ModelError, UnsupportedError, UsageError
from intarsia_torch.exported import import_exported

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
pytest.importorskip("llvmlite", reason="needs a backend that generates code")
nn = torch.nn
functions = torch.nn.functional
symbolic = pytest.importorskip("torch.fx.experimental.symbolic_shapes")
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


class Chunked(nn.Module):
    """Pads rows to whole chunks, as scans of state spaces do."""

    def __init__(self, mode: str = "constant") -> None:
        super().__init__()
        self.mode = mode

    def forward(self, x):
        rest = -x.shape[1] % 4
        value = 2.0 if self.mode == "constant" else None
        x = functions.pad(x, (0, -1, 0, rest, 1, 0)[: 6 if value else 4], self.mode, value)
        return x.reshape(x.shape[0], x.shape[1] // 4, 4, x.shape[2]).sum(2)


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


class Branching(nn.Module):
    """Computes something else for fewer rows in the first of its inputs."""

    def forward(self, x, y):
        return x.sum(0) if x.shape[0] > y.shape[0] else x.sum(0) + y.sum(0)


class Differing(nn.Module):
    """Computes something else for as many rows in both inputs."""

    def forward(self, x, y):
        return x.sum(0) + y.sum(0) if x.shape[0] != y.shape[0] else x.sum(0)


class Doubled(nn.Module):
    """Has twice as many rows in the second input; torch finds its operator for it nowhere else."""

    def forward(self, x, y):
        torch._check(x.shape[0] * 2 == y.shape[0])
        return torch.det(x[:, :, None] @ x[:, None]).sum() + y.sum(0)


class Grouped(nn.Module):
    """Takes rows in groups of four."""

    def forward(self, x, y):
        return x.reshape(x.shape[0] // 4, 4, -1).sum(0) + y.sum()


class Scaled(nn.Module):
    """Compares sizes by arithmetic that sizes of compiled programs do not have."""

    def forward(self, x, y):
        return x.sum(0) if x.shape[0] * 0.3 > y.shape[0] else x.sum(0) + y.sum(0)


class Either(nn.Module):
    """Asserts one of several relations."""

    def forward(self, x, y):
        rows, others = x.shape[0], y.shape[0]
        smaller = symbolic.sym_and(rows < others, others != 9)
        far = symbolic.sym_or(rows > 2 * others, smaller, rows == others)
        torch._check(symbolic.sym_or(far, rows >= 30, others <= 2))
        return x.sum(0) + y.sum(0)


class Collections(nn.Module):
    """Has inputs in lists and dictionaries."""

    def forward(self, images, *rest, boxes):
        count = int(images["a"][1].shape[0] // 2 * 2)
        return rest[0][:count] + boxes[:4] + images["a"][0][:4]


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


def test_pads_of_open_widths() -> None:
    sizes = [[(2, n, 8)] for n in (9, 10, 23, 30)]
    check(Chunked(), [torch.randn(2, 25, 8)], sizes, [(1,)])


def test_pads_of_open_widths_by_reflection_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"pad: widths .* of mode 'reflect'"):
        check(Chunked("reflect"), [torch.randn(2, 25, 8)], [], [(1,)])


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
        with pytest.raises(ModelError, match=r"exported for \(7\*\(x.size\(\)\[2\] // 7\)\) == 28"):
            program.run([torch.randn(1, 2, 35, 8).numpy()])
    with pytest.raises(UsageError, match="28, and 35 == 28 does not hold"):
        import_exported(torch, exported, {"x": (1, 2, 35, 8)})


ROWS = {0: OPEN}
PAIRS = [
    (Branching(), (5, 4), (9, 3), (3, 4), "> y.size|s17 < s77"),
    (Branching(), (4, 5), (3, 9), (9, 3), "<= y.size|s77 <= s17"),
    (Differing(), (5, 4), (9, 3), (4, 4), "!= y.size|Ne.s77, s17"),
    (Doubled(), (5, 10), (7, 14), (3, 5), r"2\*s77, 3. where|== 2\*s77"),
    (Grouped(), (8, 2), (12, 5), (10, 2), "% |Mod"),
    (Grouped(), (8, 2), (16, 3), (3, 2), "!= 0|Ne"),
]


@pytest.mark.parametrize("saved", [False, True], ids=["program", "file"])
@pytest.mark.parametrize("asserted", [False, True], ids=["relations", "assertions"])
@pytest.mark.parametrize(("model", "example", "other", "wrong", "text"), PAIRS)
def test_relations_of_the_export_are_checked(
    tmp_path, model, example, other, wrong, text, asserted, saved
) -> None:
    exported = export(model, example, asserted)
    torch.export.save(exported, tmp_path / "model.pt2")
    module = intarsia.from_torch(tmp_path / "model.pt2" if saved else exported)
    with intarsia.build(module, "llvm").load() as program:
        for sizes in example, other:
            given = [torch.randn(size, 3) for size in sizes]
            (found,) = program.run([x.numpy() for x in given]).values()
            torch.testing.assert_close(torch.from_numpy(found), model(*given), atol=1e-5, rtol=1e-5)
        with pytest.raises(ModelError, match=text):
            program.run([torch.randn(size, 3).numpy() for size in wrong])


def test_relations_of_inputs_in_collections(tmp_path) -> None:
    x = torch.randn(5, 3)
    given = ({"a": [x, x.clone()]}, x.clone())
    images = {"a": [ROWS, ROWS]}
    dynamic = {"images": images, "rest": (ROWS,), "boxes": ROWS}
    boxes = {"boxes": x.clone()}
    exported = torch.export.export(Collections(), given, boxes, dynamic_shapes=dynamic)
    torch.export.save(exported, tmp_path / "model.pt2")
    with intarsia.build(intarsia.from_torch(tmp_path / "model.pt2"), "llvm").load() as program:
        rows = np.ones((7, 3), np.float32)
        (found,) = program.run([rows, rows[:4], rows, rows]).values()
        np.testing.assert_array_equal(found, np.full((4, 3), 3, np.float32))
        with pytest.raises(ModelError, match=r"images.*1.*== 4"):
            program.run([rows, rows[:6], rows, rows])


def test_relations_without_counterpart_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"for 0.3\*.*cannot be checked of open sizes"):
        intarsia.from_torch(export(Scaled(), (20, 3)))
    exported = export(Differing(), (5, 4))
    size, deep = "L['x'].size()[0]", "-" * 100_000
    for text in (
        f"not {size} > 3",
        f"{size} in {size}",
        f"{deep}{size} > 3",
        f"{size} >",
        f"{size}\0",
    ):
        exported._guards_code.append(text)
        with pytest.raises(UnsupportedError, match=r"for .*cannot be checked of open sizes"):
            import_exported(torch, exported, None)
        exported._guards_code.pop()
    exported._guards_code.append(size)
    exported._guards_code[-1] = "L['z'].size()[0] > 3"
    with pytest.raises(UnsupportedError, match=r"for z.size.*cannot be checked of open sizes"):
        import_exported(torch, exported, None)


@pytest.mark.parametrize("asserted", [False, True], ids=["relations", "assertions"])
def test_one_of_several_relations_suffices(asserted) -> None:
    exported = export(Either(), (20, 4), asserted)
    if not asserted:  # the export keeps what holds of the example alone
        exported._guards_code[:] = [
            "L['x'].size()[0] > 2*L['y'].size()[0] or L['x'].size()[0] < L['y'].size()[0]"
            " and L['y'].size()[0] != 9 or L['x'].size()[0] == L['y'].size()[0]"
            " or L['x'].size()[0] >= 30 or L['y'].size()[0] <= 2"
        ]
    with intarsia.build(intarsia.from_torch(exported), "llvm").load() as program:
        for sizes in (20, 4), (9, 4), (3, 4), (4, 4), (40, 30):
            program.run([np.ones((size, 3), np.float32) for size in sizes])
        for sizes in (5, 4), (8, 4), (8, 9):
            with pytest.raises(ModelError, match=r" or |\|"):
                program.run([np.ones((size, 3), np.float32) for size in sizes])


def test_assertions_without_counterpart_are_refused() -> None:
    exported = export(Differing(), (5, 4), asserted=True)
    (asserted,) = (n.args[0] for n in exported.graph.nodes if "_assert_scalar" in str(n.target))
    known = asserted.meta["val"].node
    left, right = known.expr.args
    made = type(known)((left > right) ^ (left > 9), known.shape_env, bool, None)
    asserted.meta["val"] = torch.SymBool(made)
    with pytest.raises(UnsupportedError, match=r"asserts .*, which cannot be checked"):
        import_exported(torch, exported, None)


def test_a_given_size_meets_the_relations_and_ranges() -> None:
    with pytest.raises(UsageError, match="and 3 > 7 does not hold"):
        intarsia.from_torch(export(Branching(), (5, 4)), shapes={"x": (3, 3), "y": (7, 3)})
    with pytest.raises(UsageError, match="not 1"):
        intarsia.from_torch(export(Doubled(), (5, 10)), shapes={"x": (1, 3), "y": (2, 3)})


def export(model, sizes, asserted: bool = False):
    """Export a module of two inputs of three columns and open numbers of rows."""
    given = tuple(torch.randn(size, 3) for size in sizes)
    return torch.export.export(
        model,
        given,
        dynamic_shapes=(ROWS, ROWS),
        prefer_deferred_runtime_asserts_over_guards=asserted,
    )
