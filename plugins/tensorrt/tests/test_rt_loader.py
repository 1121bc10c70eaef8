# SPDX-License-Identifier: Apache-2.0
"""Running: copies and calls on memory of the host, and every way in which it can fail."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

from intarsia_runtime.artifact.plan import TensorSpec
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError, ResourceError, ToolchainError, WorkerLost
from intarsia_runtime.loading import LoadRequest
from intarsia_tensorrt import loader
from intarsia_tensorrt.codegen import compile_region
from intarsia_tensorrt.device import Gpu, require_driver
from intarsia_tensorrt.loader import LoadedNetwork, load
from intarsia_tensorrt.sdk import Library
from intarsia_tensorrt.signature import (
    FILE,
    PLAN_FILE,
    EngineBorder,
    EngineSignature,
    parse_signature,
)
from intarsia_tensorrt.target import ARCHITECTURES, TensorrtOptions
from intarsia_testkit.expressions import apply, expected, function_of, var

from .host_gpu import Engine, HostDriver, module
from .regions import inputs_of, library, region_of, spec

SHAPES = {"input_0": (2, 3), "input_1": (3,), "output_0": (2, 3)}
SIGNATURE = EngineSignature(
    edition="tensorrt-rtx",
    version="1.7",
    device="sm_80",
    inputs=(EngineBorder("input_0", "float32", (2, 3)), EngineBorder("input_1", "float32", (3,))),
    outputs=(EngineBorder("output_0", "float32", (2, 3)),),
    options={},
)
INPUTS = (TensorSpec("a", (2, 3), DType.FLOAT32), TensorSpec("b", (3,), DType.FLOAT32))
OUTPUTS = (TensorSpec("y", (2, 3), DType.FLOAT32),)


def request_for(files: dict[str, bytes]) -> LoadRequest:
    return LoadRequest("tensorrt_0", files, {}, INPUTS, OUTPUTS, 1, 0)


def files(**changed: bytes) -> dict[str, bytes]:
    return {FILE: SIGNATURE.to_json(), PLAN_FILE: b"plan", **changed}


def loaded(engine: Engine | None, driver: HostDriver | None = None) -> LoadedNetwork:
    vendor = Library("tensorrt-rtx", module(engine), "1.7")
    return LoadedNetwork("tensorrt_0", b"plan", SIGNATURE, vendor, Gpu(driver or HostDriver()))


def test_inputs_go_in_and_outputs_come_out() -> None:
    region = loaded(Engine(np.subtract, SHAPES))
    for round_ in range(2):
        a, b = np.arange(6, dtype=np.float32).reshape(2, 3) + round_, np.ones(3, np.float32)
        y = np.full((2, 3), np.nan, np.float32)
        region.run(a, b, y)
        np.testing.assert_array_equal(y, a - b)


def test_everything_is_given_back_and_the_gpu_last() -> None:
    driver = HostDriver()
    engine = Engine(np.add, SHAPES)
    engine.told = driver.calls
    region = loaded(engine, driver)
    del engine
    region.run(np.ones((2, 3), np.float32), np.ones(3, np.float32), np.ones((2, 3), np.float32))
    assert len(driver.memory) == 3
    del region
    gc.collect()
    assert driver.memory == {}
    assert driver.calls.index("engine is gone") < driver.calls.index("cuMemFree")
    assert driver.calls[-1] == "cuDevicePrimaryCtxRelease"


def test_a_refused_engine_is_told_in_the_library_own_words() -> None:
    with pytest.raises(ArtifactError, match=r"built by tensorrt-rtx 1\.7 for sm_80") as caught:
        loaded(None)
    assert "engine of another version" in str(caught.value)
    assert "compile the model again" in caught.value.hint


def test_an_engine_without_memory_is_a_resource_error() -> None:
    with pytest.raises(ResourceError, match="no memory for the engine"):
        loaded(Engine(np.add, SHAPES, context=False))


def test_an_engine_with_other_tensors_is_refused() -> None:
    with pytest.raises(ArtifactError, match="has no tensor input_1"):
        loaded(Engine(np.add, {"input_0": (2, 3), "output_0": (2, 3)}))


@pytest.mark.parametrize(
    "engine",
    [
        Engine(np.add, {**SHAPES, "output_0": (2, 4)}),
        Engine(np.add, {**SHAPES, "output_0": (6,)}),
        Engine(np.add, SHAPES, dtypes={"input_1": "half"}),
        Engine(np.add, SHAPES, dtypes={"output_0": "half"}),
    ],
)
def test_an_engine_that_writes_more_than_the_artifact_says_is_refused(engine: Engine) -> None:
    with pytest.raises(
        ArtifactError, match=r"has the tensor \w+ of .*; the artifact says"
    ) as raised:
        loaded(engine)
    assert raised.value.hint == "compile the model again"


def test_a_run_that_fails_is_an_error() -> None:
    region = loaded(Engine(np.add, SHAPES, works=False))
    with pytest.raises(WorkerLost, match="the engine of region 'tensorrt_0' failed"):
        region.run(np.ones((2, 3), np.float32), np.ones(3, np.float32), np.ones((2, 3)))


@pytest.mark.parametrize(
    ("call", "status", "error"),
    [
        ("cuMemAlloc", 2, ResourceError),
        ("cuInit", 100, WorkerLost),
        ("cuMemcpyHtoDAsync", 700, WorkerLost),
    ],
)
def test_failures_of_the_driver_are_errors(call: str, status: int, error: type[Exception]) -> None:
    def load_and_run() -> None:
        region = loaded(Engine(np.add, SHAPES), HostDriver({call: status}))
        region.run(np.ones((2, 3), np.float32), np.ones(3, np.float32), np.ones((2, 3)))

    with pytest.raises(error):
        load_and_run()


def test_without_the_binding_the_error_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    with pytest.raises(ToolchainError, match="binding of the CUDA driver") as caught:
        require_driver()
    assert "intarsia-tensorrt[cuda13]" in caught.value.hint


@pytest.mark.parametrize("missing", [FILE, PLAN_FILE])
def test_a_unit_without_a_file_is_refused(missing: str) -> None:
    kept = {name: content for name, content in files().items() if name != missing}
    with pytest.raises(ArtifactError, match=f"has no {missing}"):
        load(request_for(kept))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"schema": 1}'])
def test_a_damaged_signature_is_refused(text: bytes) -> None:
    with pytest.raises(ArtifactError, match=r"signature\.json is damaged"):
        load(request_for(files(**{FILE: text})))


def test_a_signature_of_another_schema_is_refused() -> None:
    text = SIGNATURE.to_json().replace(b'"schema": 1', b'"schema": 2')
    with pytest.raises(ArtifactError, match="schema 2"):
        load(request_for(files(**{FILE: text})))


def test_a_unit_of_another_border_is_refused() -> None:
    text = SIGNATURE.to_json().replace(b"float32", b"float16")
    with pytest.raises(ArtifactError, match="was compiled for"):
        load(request_for(files(**{FILE: text})))


def test_signatures_are_read_as_they_were_written() -> None:
    assert parse_signature(SIGNATURE.to_json()) == SIGNATURE


def test_a_region_is_loaded_with_the_library_that_built_it(monkeypatch) -> None:
    vendor = Library("tensorrt-rtx", module(Engine(np.add, SHAPES)), "1.7")
    monkeypatch.setattr(loader, "Gpu", lambda: Gpu(HostDriver()))
    monkeypatch.setattr(loader, "find_library", {"tensorrt-rtx": vendor}.__getitem__)
    y = np.empty((2, 3), np.float32)
    load(request_for(files()))(np.ones((2, 3), np.float32), np.ones(3, np.float32), y)
    np.testing.assert_array_equal(y, np.full((2, 3), 2, np.float32))


def test_a_gpu_is_given_back_when_loading_fails(monkeypatch) -> None:
    driver = HostDriver()
    monkeypatch.setattr(loader, "Gpu", lambda: Gpu(driver))
    vendor = Library("tensorrt-rtx", module(None), "1.7")
    monkeypatch.setattr(loader, "find_library", {"tensorrt-rtx": vendor}.__getitem__)
    with pytest.raises(ArtifactError):
        load(request_for(files()))
    assert driver.calls[-1] == "cuDevicePrimaryCtxRelease"


def test_without_a_gpu_loading_says_so_and_what_next() -> None:
    pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    try:
        Gpu().close()
    except WorkerLost:
        with pytest.raises(WorkerLost, match=r"(no|the) CUDA driver") as caught:
            load(request_for(files()))
        assert "machine with an NVIDIA GPU" in caught.value.hint
    else:
        pytest.skip("there is a GPU here")


def test_on_a_gpu_the_engine_gives_the_reference() -> None:
    try:
        gpu = Gpu()
    except (WorkerLost, ToolchainError) as error:
        pytest.skip(f"not run: {error.message}")
    capability = gpu.identity.split(", ")[1]
    gpu.close()
    function = function_of(apply("nn.softmax", apply("nn.relu", var("x", 4, 5)), axis=1))
    if capability not in ARCHITECTURES:
        pytest.skip(f"TensorRT-RTX builds for no GPU of {capability}")
    options = TensorrtOptions(library=library().edition, arch=capability)
    unit = compile_region(region_of(function), options)
    inputs = tuple(spec(p.name, p) for p in function.params)
    outputs = tuple(spec("y", value) for value in function.outputs)
    run = load(LoadRequest("tensorrt_0", unit.files, {}, inputs, outputs, 1, 0))
    arrays, result = inputs_of(function), np.empty((4, 5), np.float32)
    run(*arrays, result)
    np.testing.assert_allclose(result, expected(function, arrays)[0], rtol=1e-5)
