# SPDX-License-Identifier: Apache-2.0
"""Sizes that a model computes, as machine code: one call, memory that grows, no crash."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia.cli.main import main
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.text.parser import parse_function
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.evaluate import evaluate
from intarsia_runtime.errors import ModelError, ResourceError, UnsupportedError
from intarsia_runtime.executors.open import OpenExecutor
from intarsia_runtime.load import load
from intarsia_runtime.memory import available_memory, check_memory

FOUND = """
fn(%x: Tensor[(N, 5), float32])
    -> (Tensor[(2, "n#0"), int64], Tensor[("n#0",), float32], Tensor[(N, 5), bool])
    as ("places", "twice", "mask") {
  %0 = greater(%x, const(0.5, float32));
  %1 = cast(%0, dtype=int64);
  %2 = sum(%1, axes=(0, 1));
  %3 = size_of(%2, size=`"n#0"`);
  %4 = with_sizes(%0, %3);
  %5 = non_zero(%4, count=`"n#0"`);
  %6 = transpose(%5, axes=(1, 0));
  %7 = gather_nd(%x, %6);
  %8 = add(%7, %7);
  (%5, %8, %0)
}
"""

FILLED = """
fn(%n: Tensor[(2,), int64]) -> (Tensor[(`"n#0"*"n#1"`,), float32], Tensor[(), float32]) {
  %0 = strided_slice(%n, begin=(0,), end=(1,), strides=(1,));
  %1 = strided_slice(%n, begin=(1,), end=(2,), strides=(1,));
  %2 = size_of(%0, size=`"n#0"`);
  %3 = size_of(%1, size=`"n#1"`);
  %4 = full(%2, %3, shape=(`"n#0"`, `"n#1"`), value=1.0, dtype=float32);
  %5 = cumsum(%4, axis=1);
  %6 = reshape(%5, shape=(`"n#0"*"n#1"`,));
  %7 = sum(%5, axes=(0, 1));
  (%6, %7)
}
"""


def module_of(text: str) -> IRModule:
    """Read a function as a module."""
    return IRModule.from_function(parse_function(text, operators=OPERATORS))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "found.intarsia"
    intarsia.build(module_of(FOUND), "llvm").save(path)
    return path


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "filled.intarsia"
    intarsia.build(module_of(FILLED), "llvm").save(path)
    return path


def given(rows: int, share: float) -> np.ndarray:
    """A matrix of which a share is found."""
    return (np.random.default_rng(rows).random((rows, 5)) < share).astype(np.float32)


def test_an_artifact_finds_any_number(found: Path) -> None:
    main_function = module_of(FOUND).main
    with load(found) as executable:
        assert isinstance(executable, OpenExecutor)
        assert executable.outputs[0].shape == (2, '"n#0"')
        for rows in (3, 0, 1, 700, 2):
            for share in (0.5, 0.0, 1.0):
                x = given(rows, share)
                got, want = executable.run([x]), evaluate(main_function, {"x": x})
                assert list(got) == ["places", "twice", "mask"]
                for mine, theirs in zip(got.values(), want, strict=True):
                    np.testing.assert_array_equal(mine, theirs)


def test_results_are_the_callers_own(found: Path) -> None:
    with load(found) as executable:
        first = executable.run([given(9, 0.5)])["twice"].copy()
        kept = executable.run([given(9, 0.5)])["twice"]
        executable.run([np.ones((9, 5), np.float32)])
        np.testing.assert_array_equal(kept, first)
        into = {"places": np.zeros((2, first.size), np.int64), "twice": np.zeros_like(first)}
        into["mask"] = np.zeros((9, 5), bool)
        executable.run_into([given(9, 0.5)], into)
        np.testing.assert_array_equal(into["twice"], first)


def test_memory_is_kept_from_run_to_run(filled: Path) -> None:
    with load(filled) as executable:
        assert isinstance(executable, OpenExecutor)
        memory = executable._program.open
        assert memory is not None
        executable.run([np.array([9, 50])])
        kept = [chunk.ctypes.data for chunk in memory.workspaces]
        executable.run([np.array([3, 5])])
        executable.run([np.array([9, 50])])
        assert [chunk.ctypes.data for chunk in memory.workspaces] == kept


def test_a_profile_comes_to_the_sizes_by_the_steps(found: Path) -> None:
    with load(found, executor="graph") as executable:
        assert isinstance(executable, OpenExecutor)
        rows = executable.profile([given(20, 0.5)], 2)
        assert [row.label for row in rows].count("sizes") == 1
        before = executable.run([given(20, 0.5)])
        executable.profile([given(300, 1.0)])
        after = executable.run([given(20, 0.5)])
        for one, other in zip(before.values(), after.values(), strict=True):
            np.testing.assert_array_equal(one, other)


def test_steps_one_by_one_give_the_same(found: Path) -> None:
    with load(found) as executable:
        assert isinstance(executable, OpenExecutor)
        x = given(33, 0.3)
        walked = executable.walk_regions([x], lambda *_: None)
        for one, other in zip(walked.values(), executable.run([x]).values(), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("sizes", [(0, 0), (1, 0), (0, 7), (1, 1), (3, 70), (130, 2)])
def test_sizes_that_are_values(filled: Path, sizes: tuple[int, int]) -> None:
    with load(filled) as executable:
        vector, total = executable.run([np.array(sizes)]).values()
        wanted = np.cumsum(np.ones(sizes, np.float32), 1)
        np.testing.assert_array_equal(vector, wanted.reshape(-1))
        np.testing.assert_array_equal(total, wanted.sum())


HUGE = [
    (-1, 4, ModelError, r"computes -1 for the size 'n#0'"),
    (4, -(1 << 63), ModelError, r"computes -9223372036854775808 for the size 'n#1'"),
    ((1 << 63) - 1, 1, ResourceError, r"computes 9223372036854775807 for the size 'n#0'"),
    (1 << 61, 1, ResourceError, r"larger than any memory"),
    (1 << 32, 1 << 32, ResourceError, r"larger than any memory"),
    (1 << 62, 1 << 62, ResourceError, r"larger than any memory"),
    (1 << 20, 1 << 30, ResourceError, r"no memory for"),
    (1 << 57, 1, ResourceError, r"no memory for"),
]


@pytest.mark.parametrize(("rows", "columns", "error", "message"), HUGE)
def test_no_size_crashes(
    filled: Path, rows: int, columns: int, error: type[Exception], message: str
) -> None:
    with load(filled) as executable:
        for _ in range(2):
            with pytest.raises(error, match=message):
                executable.run([np.array([rows, columns])])
        assert executable.run([np.array([2, 2])])["output_1"] == 6


def test_a_size_that_exceeds_memory_ends_the_command_with_8(filled: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "given.npz", n=np.array([1 << 20, 1 << 30]))
    assert main(["run", str(filled), "--inputs", str(tmp_path / "given.npz")]) == 8


def test_memory_that_there_is_not_is_refused() -> None:
    check_memory(1 << 20)
    with pytest.raises(ResourceError, match="no memory for a workspace"):
        check_memory(available_memory() + (1 << 40))


def test_other_targets_refuse() -> None:
    with pytest.raises(UnsupportedError, match="a device does not compute sizes while it runs"):
        intarsia.build(module_of(FILLED), "cuda -emulate")


def test_a_size_that_nothing_computes_is_refused() -> None:
    text = 'fn(%x: Tensor[(3,), float32]) -> Tensor[("n#0", 3), float32] {\n'
    text += '  %0 = broadcast_to(%x, shape=(`"n#0"`, 3));\n  %0\n}\n'
    with pytest.raises(UnsupportedError, match="the size 'n#0' is that of no input"):
        intarsia.build(module_of(text), "llvm")
