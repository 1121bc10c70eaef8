# SPDX-License-Identifier: Apache-2.0
"""One program of torch.compile, or of torch.export, for inputs of changing sizes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia.cli.main import main
from intarsia_runtime.errors import ModelError, UsageError
from intarsia_torch import dynamo

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: torch.onnx needs it")
pytest.importorskip("llvmlite", reason="needs a backend that generates code")
nn = torch.nn

from .torch_open_models import CASES, Decoder, Encoder  # noqa: E402 # it needs torch

STRICT = {"target": "llvm", "fallback": False}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch.compiler.reset()
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        yield


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[intarsia.IRModule]:
    """Every module that is built."""
    seen: list[intarsia.IRModule] = []
    build = dynamo.build_or_fetch

    def watch(module: intarsia.IRModule, *args: object, **named: object) -> object:
        seen.append(module)
        return build(module, *args, **named)

    monkeypatch.setattr(dynamo, "build_or_fetch", watch)
    return seen


def compiled(function: Callable[..., object], **options: object) -> Callable[..., object]:
    return torch.compile(function, backend="intarsia", options=STRICT | options, dynamic=True)


def close(found: object, want: object) -> None:
    torch.testing.assert_close(found, want, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_one_program_agrees_with_eager_at_every_size(name: str, builds: list) -> None:
    make, arguments, sizes = CASES[name]
    model = make().eval()
    fast = compiled(model)
    for size in sizes:
        given = arguments(size)
        close(fast(*given), model(*given))
    assert len(builds) == 1


def test_a_decoder_runs_forty_steps_on_one_program(builds: list) -> None:
    model = Decoder().eval()
    fast = compiled(model)
    own = want = [tuple(torch.randn(1, 2, 3, 8) for _ in range(2)) for _ in range(2)]
    ids = torch.tensor([[7]])
    for _ in range(40):
        found, own = fast(ids, own)
        logits, want = model(ids, want)
        close((found, own), (logits, want))
        ids = logits[:, -1:].argmax(-1)
    assert len(builds) == 1


def test_an_integer_argument_is_a_size_of_the_program(builds: list) -> None:
    def function(x, count):
        return torch.arange(count) + x.sum().long(), x * count, count * 2

    fast = compiled(function)
    for count in (3, 5, 8, 13, 0):
        x = torch.ones(count + 2)
        close(fast(x, count), function(x, count))
    assert len(builds) == 2  # torch makes a graph of its own for 0


def test_a_view_of_open_size_is_a_view() -> None:
    def function(x):
        return x[1:].t(), x * 2

    fast = compiled(function)
    for rows in (3, 4, 9):
        x = torch.randn(rows, 4)
        found = fast(x)
        close(found, function(x))
        assert found[0].data_ptr() == x[1:].data_ptr()


def test_writes_to_a_part_of_a_result_are_seen() -> None:
    def function(x):
        y = x * 2
        y[:, 0] = 7
        y[1:].add_(1)
        return y.relu_() + y

    fast = compiled(function)
    for rows in (3, 4, 9):
        x = torch.randn(rows, 4)
        close(fast(x), function(x))


def test_strides_of_inputs_of_open_size_do_not_matter() -> None:
    fast = compiled(lambda x: torch.relu(x) + 1)
    for rows in (3, 5, 6):
        x = torch.randn(4, rows).t()
        close(fast(x), torch.relu(x) + 1)


def test_autocast_computes_in_its_type(builds: list) -> None:
    model = nn.Linear(8, 8).eval()
    fast = compiled(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for rows in (3, 5, 9):
            x = torch.randn(rows, 8)
            found = fast(x)
            assert found.dtype is torch.bfloat16
            torch.testing.assert_close(found, model(x), rtol=2e-2, atol=2e-2)
    assert len(builds) == 1


def test_autocast_inside_a_graph() -> None:
    model = nn.Linear(8, 8).eval()

    def function(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = model(x)
        return y.float() + x

    fast = compiled(function)
    for rows in (3, 5, 9):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(fast(x), function(x), rtol=2e-2, atol=2e-2)


@pytest.fixture
def one_thread() -> Iterator[Callable[[], None]]:
    """Set OpenMP's threads of the calling thread to 1.

    Torch makes a guard of that number, and what ran before may have set it for one thread alone.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield lambda: torch.set_num_threads(1)
    torch.set_num_threads(before)


def test_threads_share_one_program(builds: list, one_thread: Callable[[], None]) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
    fast = compiled(model)
    fast(torch.randn(3, 8))
    wrong: list[object] = []

    def work(seed: int) -> None:
        one_thread()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for _ in range(20):
                rows = 2 + int(torch.randint(30, (1,), generator=generator))
                x = torch.randn(rows, 8, generator=generator)
                if not torch.allclose(fast(x), model(x), rtol=1e-3, atol=1e-5):
                    wrong.append(rows)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (wrong, len(builds)) == ([], 1)


def test_a_second_process_would_fetch_the_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    model, x = nn.Linear(8, 8).eval(), torch.randn(3, 8)
    for _ in range(2):
        torch.compiler.reset()  # as a new process has it
        close(compiled(model)(x), model(x))
    assert len(list((tmp_path / "builds").glob("*.json"))) == 1
    model.weight.mul_(2)
    torch.compiler.reset()
    close(compiled(model)(x), model(x))
    assert len(list((tmp_path / "builds").glob("*.json"))) == 2


def test_weights_that_change_are_seen_at_every_size(builds: list) -> None:
    model = nn.Linear(4, 3).eval()
    fast = compiled(model)
    for rows in (2, 5, 9):
        x = torch.randn(rows, 4)
        close(fast(x), model(x))
        model.weight.mul_(3)
    assert len(builds) == 2  # the second takes weights as arguments


def test_a_module_is_exported_with_dynamic_shapes_and_ranges() -> None:
    batch, length = torch.export.Dim("batch", max=8), torch.export.Dim("length", min=2, max=64)
    model, (ids, mask) = Encoder().eval(), CASES["encoder"][1](16)
    shapes = {0: batch, 1: length}
    module = intarsia.from_torch(model, (ids, mask), dynamic_shapes=(shapes, shapes))
    executable = intarsia.build(module, target="llvm").load()
    for rows, columns in ((1, 5), (2, 64), (8, 3), (3, 17), (5, 2)):
        given = torch.randint(0, 30, (rows, columns)), torch.ones(rows, columns, dtype=torch.bool)
        (found,) = executable.run(list(given)).values()
        np.testing.assert_allclose(found, model(*given).numpy(), rtol=1e-3, atol=1e-5)
    for rows, columns, reason in ((9, 4, "up to 8"), (2, 1, "of 2 or more"), (2, 65, "up to 64")):
        given = torch.zeros(rows, columns, dtype=torch.int64), torch.ones(rows, columns).bool()
        with pytest.raises(ModelError, match=f"exported for sizes .* {reason}"):
            executable.run(list(given))


@pytest.mark.parametrize("kind", ["AUTO", "DYNAMIC"])
def test_sizes_that_the_export_finds_stay_open(kind: str) -> None:
    open_size = getattr(torch.export.Dim, kind)
    make, arguments, sizes = CASES["pictures"]
    model = make().eval()
    shapes = ({2: open_size, 3: open_size},)
    module = intarsia.from_torch(model, arguments(9), dynamic_shapes=shapes)
    executable = intarsia.build(module, target="llvm").load()
    for size in sizes:
        (x,) = arguments(size)
        (found,) = executable.run([x]).values()
        np.testing.assert_allclose(found, model(x).numpy(), rtol=1e-3, atol=1e-5)


def test_a_saved_program_compiles_once_for_all_its_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(model, (torch.randn(3, 6),), dynamic_shapes=({0: rows},))
    torch.export.save(program, "net.pt2")
    assert main(["compile", "net.pt2", "--target", "llvm", "-o", "net.intarsia"]) == 0
    executable = intarsia.load("net.intarsia")
    for count in (2, 3, 10, 33, 100):
        x = torch.randn(count, 6)
        (found,) = executable.run([x]).values()
        np.testing.assert_allclose(found, model(x).numpy(), rtol=1e-3, atol=1e-5)
    assert main(["explain", "net.pt2", "--target", "llvm"]) == 0
    assert main(["run", "net.pt2", "--target", "llvm", "--shape", "input:5,6", "--verify"]) == 0


def test_shapes_out_of_the_range_of_an_export_are_refused() -> None:
    rows = torch.export.Dim("rows", min=2, max=9)
    program = torch.export.export(
        nn.ReLU().eval(), (torch.randn(3, 6),), dynamic_shapes=({0: rows},)
    )
    assert intarsia.from_torch(program, shapes={"input": (9, 6)}).main.params[0].type.is_static
    with pytest.raises(UsageError, match=r"exported for sizes .* in 2\.\.9, not 10"):
        intarsia.from_torch(program, shapes={"input": (10, 6)})
    with pytest.raises(UsageError, match="the given shape has 3"):
        intarsia.from_torch(program, shapes={"input": (9, 6, 1)})
