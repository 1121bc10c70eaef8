# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import os
import signal
import threading
import timeit
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from intarsia_runtime.abi import data_address
from intarsia_runtime.errors import ArtifactError, ModelError, PluginError, UsageError
from intarsia_runtime.load import load

X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
Y = 2 * np.maximum(X, 0) + np.array([1, 2, 3], np.float32)


def check(results: dict[str, np.ndarray]) -> None:
    assert list(results) == ["y", "z"]
    np.testing.assert_array_equal(results["y"], Y)
    np.testing.assert_array_equal(results["z"], X)


@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_runs_by_name_and_by_position(artifact: Path, executor: str) -> None:
    with load(artifact, executor=executor) as executable:
        check(executable.run({"x": X}))
        check(executable.run([X]))
        check(executable.run((X,)))
        assert [spec.name for spec in executable.inputs] == ["x"]
        assert [spec.shape for spec in executable.outputs] == [(2, 3), (2, 3)]
        assert executable.passport.name == "sample"


@pytest.mark.parametrize(
    "array",
    [np.ones((2, 3), np.float32), np.ones(()), np.empty((0, 3)), np.ones(2, ml_dtypes.bfloat16)],
    ids=["plain", "scalar", "empty", "bfloat16"],
)
def test_addresses_are_found_without_the_slow_way(array: np.ndarray) -> None:
    assert data_address(array) == array.ctypes.data
    array.flags.writeable = False
    assert data_address(array) == array.ctypes.data


class Foreign:
    """An array of another library."""

    def __dlpack__(self, **options: object) -> object:
        return X.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def unaligned() -> np.ndarray:
    memory = np.zeros(25, np.uint8)
    array = memory[1:].view(np.float32).reshape(2, 3)
    array[:] = X
    return array


def read_only() -> np.ndarray:
    array = X.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "value",
    [
        np.asfortranarray(X),
        X[::-1].copy()[::-1],
        unaligned(),
        read_only(),
        Foreign(),
        X.view(np.matrix),
    ],
    ids=["fortran", "negative-stride", "unaligned", "read-only", "dlpack", "subclass"],
)
def test_takes_any_layout_of_memory(artifact: Path, value: object) -> None:
    check(load(artifact).run({"x": value}))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": X[:1]}, r"input 'x' must be float32 \(2, 3\), got float32 \(1, 3\)"),
        ({"x": X.astype(np.float64)}, r"must be float32 \(2, 3\), got float64 \(2, 3\)"),
        ({"x": X.astype(">f4")}, "got float32 with swapped bytes"),
        ({"X": X}, "the model has no input 'X'; expected 1 input: 'x'"),
        ({}, "no input 'x' was given"),
        ({"x": X, "extra": X}, "the model has no input 'extra'"),
        ([X, X], "expected 1 input: 'x', got 2 inputs"),
        (X, "the inputs are a ndarray, not a mapping or a sequence"),
        ({"x": object()}, "got object"),
        ({"x": [[1], [2, 3]]}, "input 'x' cannot be read as an array"),
    ],
)
def test_refuses_what_does_not_fit(artifact: Path, inputs: object, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        load(artifact).run(inputs)
    assert caught.value.exit_code == 3


def test_suggests_the_name_that_was_meant(artifact: Path) -> None:
    with pytest.raises(ModelError, match="did you mean 'x' instead of 'xx'"):
        load(artifact).run({"xx": X})


def test_writes_into_the_callers_arrays(artifact: Path) -> None:
    y, z = np.zeros_like(X), np.zeros_like(X)
    load(artifact).run_into([X], {"z": z, "y": y})
    check({"y": y, "z": z})


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ([np.zeros_like(X), X], "output 'z' overlaps"),
        ([np.zeros_like(X), read_only()], "output 'z' is not a writable"),
        ([np.zeros_like(X), [0]], "output 'z' is a list"),
        ([np.zeros_like(X), np.zeros(6, "f")], r"output 'z' must be float32 \(2, 3\)"),
    ],
)
def test_refuses_outputs_it_cannot_fill(artifact: Path, outputs: object, message: str) -> None:
    for executor in ("aot", "graph"):
        with pytest.raises(ModelError, match=message):
            load(artifact, executor=executor).run_into([X], outputs)


def test_a_closed_executable_says_so(artifact: Path) -> None:
    for executor in ("aot", "graph"):
        executable = load(artifact, executor=executor)
        executable.close()
        executable.close()
        with pytest.raises(ModelError, match="was closed"):
            executable.run([X])


def test_threads_share_one_executable(artifact: Path) -> None:
    executable = load(artifact)
    wrong: list[object] = []

    def work(factor: int) -> None:
        for _ in range(200):
            results = executable.run([X * factor])
            if not np.array_equal(results["z"], X * factor):
                wrong.append(factor)

    workers = [threading.Thread(target=work, args=(factor,)) for factor in range(1, 9)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_a_run_costs_little_beside_the_kernels(artifact: Path) -> None:
    executable = load(artifact, threads=1)
    inputs = {"x": X}
    best = min(timeit.repeat(lambda: executable.run(inputs), number=200, repeat=20)) / 200
    assert best < 50e-6  # measured 5.5 us; the limit leaves room for busy machines


def test_a_forked_process_can_run(artifact: Path) -> None:
    executables = [load(artifact, executor=executor) for executor in ("aot", "graph")]
    child = os.fork()
    if not child:
        signal.alarm(20)
        right = [np.array_equal(executable.run([X])["y"], Y) for executable in executables]
        os._exit(0 if all(right) else 1)
    assert os.waitpid(child, 0)[1] == 0
    check(executables[0].run([X]))


@pytest.mark.parametrize("copies", [copy.copy, copy.deepcopy])
def test_a_loaded_model_is_not_copied(artifact: Path, copies: Callable[[object], object]) -> None:
    executable = load(artifact)
    with pytest.raises(UsageError, match="can be neither copied nor pickled"):
        copies(executable)
    check(executable.run([X]))


@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_two_loads_share_no_state(artifact: Path, executor: str) -> None:
    first, second = load(artifact, executor=executor), load(artifact, executor=executor)
    first.close()
    check(second.run([X]))


def test_hosts_a_region_in_python(
    save: Callable[..., Path], toy_loader: Callable[..., None]
) -> None:
    toy_loader(
        "import numpy as np\n"
        "def load(request):\n"
        "    assert request.name == 'double_0' and 'lib.so' in request.files\n"
        "    assert request.constants['bias'].tolist() == [1, 2, 3]\n"
        "    assert not request.constants['bias'].flags.writeable\n"
        "    assert request.inputs[0].shape == (2, 3) and request.threads == 1\n"
        "    return lambda x, y: np.multiply(x, 2, out=y)\n"
    )
    path = save("toy")
    for executor in ("aot", "graph"):
        check(load(path, threads=1, executor=executor).run([X]))


RAISES = "def load(request):\n    def run(x, y):\n        raise {error}\n    return run\n"
INTERRUPTED = (
    "import signal\n"
    "def load(request):\n    return lambda x, y: signal.raise_signal(signal.SIGINT)\n"
)
NOTHING = "def load(request):\n    return 3\n"
BROKEN = "def load(request):\n    raise OSError('no device')\n"
OWN_ERROR = (
    "from intarsia_runtime.errors import ResourceError\n"
    "def load(request):\n    raise ResourceError('no memory on the device')\n"
)
FAILS = """
import ctypes
from intarsia_runtime.loading import NativeCall
def load(request):
    code = ctypes.c_int(7)
    pointer, number = ctypes.c_void_p, ctypes.c_int
    signature = ctypes.CFUNCTYPE(number, pointer, pointer, number, pointer)
    function = signature(lambda *_: -1)
    address = ctypes.cast(function, ctypes.c_void_p).value
    return NativeCall(address, 0, function, {describe})
"""


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            RAISES.format(error="ValueError('bad luck')"),
            r"the loader 'toy' \(intarsia-toy==1.0\) failed in the run.*ValueError.*bad luck",
        ),
        (NOTHING, "returned int, not a NativeCall"),
        (BROKEN, r"the loader 'toy' \(intarsia-toy==1.0\) fails on region 'double_0'.*no device"),
        ("raise RuntimeError('half installed')\n", "importing it fails.*half installed"),
        ("raise SystemExit(3)\n", "importing it fails.*SystemExit"),
        ("raise KeyboardInterrupt\n", "importing it fails.*KeyboardInterrupt"),
        ("def load(request):\n    raise SystemExit(3)\n", "'toy'.*fails on region.*SystemExit"),
        (
            "def load(request):\n    raise KeyboardInterrupt\n",
            "'toy'.*fails on region.*KeyboardInterrupt",
        ),
        (RAISES.format(error="KeyboardInterrupt"), "'toy'.*failed in the run.*KeyboardInterrupt"),
        (RAISES.format(error="SystemExit(3)"), "'toy'.*failed in the run.*SystemExit"),
        ("load = 1\n", "is not a function"),
        (FAILS.format(describe="lambda: 'status 7'"), "region 'double_0' failed: status 7"),
        (FAILS.format(describe="None"), "the model failed and gave no reason"),
    ],
)
def test_a_region_that_fails_is_named(
    save: Callable[..., Path], toy_loader: Callable[..., None], source: str, message: str
) -> None:
    toy_loader(source)
    with pytest.raises(PluginError, match=message):
        load(save("toy", "intarsia-toy==1.0")).run([X])


def test_errors_of_a_loader_and_a_region_keep_their_class(
    save: Callable[..., Path], toy_loader: Callable[..., None]
) -> None:
    toy_loader(OWN_ERROR)
    with pytest.raises(Exception, match="no memory on the device") as caught:
        load(save("toy"))
    assert caught.value.exit_code == 8


@pytest.mark.usefixtures("heeds_interrupts")
def test_an_interrupt_in_a_region_stays_one(
    save: Callable[..., Path], toy_loader: Callable[..., None]
) -> None:
    toy_loader(INTERRUPTED)
    executable = load(save("toy"), executor="graph")
    with pytest.raises(KeyboardInterrupt):
        executable.run([X])


def test_a_missing_plugin_is_named_with_its_version(save: Callable[..., Path]) -> None:
    with pytest.raises(ArtifactError, match=r"needs intarsia-absent==2\.1.*not installed"):
        load(save("absent", "intarsia-absent==2.1"))
    with pytest.raises(ArtifactError, match="needs a plugin with the loader 'absent'"):
        load(save("absent"))


def test_two_owners_of_a_loader_are_both_named(
    save: Callable[..., Path], toy_loader: Callable[..., None]
) -> None:
    toy_loader(NOTHING, "intarsia-toy")
    toy_loader(NOTHING, "other-toy")
    with pytest.raises(PluginError, match="claimed by intarsia-toy and other-toy"):
        load(save("toy"))


def test_unknown_executor_and_no_threads(artifact: Path) -> None:
    with pytest.raises(UsageError, match="no executor 'fast'"):
        load(artifact, executor="fast")
    with pytest.raises(UsageError, match="compiled for executor 'aot', which 'vm' cannot replace"):
        load(artifact, executor="vm")
    with pytest.raises(UsageError, match="0 threads"):
        load(artifact, threads=0)
