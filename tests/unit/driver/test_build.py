# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intarsia
from intarsia.driver.artifact import Artifact
from intarsia.driver.build import STAGES, build
from intarsia.driver.config import Executor, Runtime
from intarsia.host.host import Host
from intarsia.plugin import CompiledUnit, Region, Role, Target, TargetKind, hookimpl, option
from intarsia_ir.graph.expr import Function, Var, call, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops.activation import Relu
from intarsia_ir.ops.nn import Matmul
from intarsia_ir.partition.cost import Plan
from intarsia_ir.writing.artifact_writer import ArtifactWriter
from intarsia_ir.writing.deferred import Weights
from intarsia_runtime.artifact.archive import open_artifact
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import (
    ArtifactError,
    GateFailed,
    IntarsiaError,
    PluginError,
    ResourceError,
    TargetError,
    ToolchainError,
    UnsupportedError,
    UsageError,
)

from .toy import Accelerator, Backend, Choosy, NoOptions, host_of


def model() -> IRModule:
    x = Var("x", TensorType((4, 5), DType.FLOAT32))
    weight = constant(np.arange(15, dtype=np.float32).reshape(5, 3), name="w")
    product = call(Matmul, x, weight, attrs=Matmul.Attrs())
    return IRModule.from_function(Function((x,), call(Relu, product), ("y",)))


def compiled(target: str = "fast, toy", host: Host | None = None, **options: Any) -> Artifact:
    return build(model(), target, host=host or host_of(), plan=Plan.GREEDY, **options)


def test_the_passport_says_what_was_built_by_whom() -> None:
    passport = compiled(mod_name="sample").passport
    assert passport.name == "sample"
    assert passport.target == "fast, toy"
    assert [unit.name for unit in passport.units] == ["main", "fast_0"]
    assert [unit.loader for unit in passport.units] == ["shared-library", "fast"]
    assert [unit.plugin.split("==")[0] for unit in passport.units] == ["acme-toy", "acme-fast"]
    assert passport.units[1].inputs[0].shape == (4, 5)
    assert passport.units[1].outputs[0].shape == (4, 3)
    assert passport.units[1].constants == ("fast_0.scale",)
    assert passport.plan.regions == ("fast_0",)
    assert [spec.name for spec in passport.plan.inputs] == ["x"]
    assert [spec.name for spec in passport.plan.outputs] == ["y"]
    assert passport.cpu_features == ("fastbit",)
    assert passport.versions == {"toycc": "3"}
    assert set(passport.plugins) == {"acme-toy", "acme-fast"}
    assert passport.placement["summary"].startswith("1/2 nodes offloaded (50 %), 1 region")
    assert passport.executor == Executor("aot").to_json()


def test_an_artifact_is_saved_the_same_every_time(tmp_path: Path) -> None:
    first = compiled().save(tmp_path / "a.intarsia")
    second = compiled().save(tmp_path / "b.intarsia")
    assert first.read_bytes() == second.read_bytes()
    opened = open_artifact(first)
    assert opened.unit_files("fast_0") == {"graph.json": b"{}"}
    assert "fast_0.scale" in opened.weights


def test_a_backend_alone_compiles_everything() -> None:
    artifact = compiled("toy")
    assert artifact.placement.offloaded == 0
    assert artifact.passport.plan.regions == ()


def test_code_for_another_machine_is_known_by_its_header() -> None:
    elf = bytearray(b"\x7fELF\x02\x01".ljust(64, b"\0"))
    for number, arch in ((183, "aarch64"), (62, "x86_64"), (999, "elf-999")):
        elf[18:20] = number.to_bytes(2, "little")
        unit = CompiledUnit("main", "shared-library", {"lib.so": bytes(elf)})
        artifact = compiled("toy", host_of(Backend(answer_with(unit))))
        assert artifact.passport.arch == arch


def test_a_region_for_another_machine_than_the_rest_is_refused() -> None:
    elf = bytearray(b"\x7fELF\x02\x01".ljust(64, b"\0"))
    units: dict[str, CompiledUnit] = {}
    for name, number in (("main", 62), ("fast_0", 183)):
        elf[18:20] = number.to_bytes(2, "little")
        units[name] = CompiledUnit(name, "shared-library", {"lib.so": bytes(elf)})
    host = host_of(Backend(answer_with(units["main"])), Compiled(units["fast_0"]))
    with pytest.raises(TargetError, match=r"'fast_0' is code for aarch64, the rest .* for x86_64"):
        compiled("fast, toy", host)


@dataclass(frozen=True, kw_only=True)
class Triple:
    """The machine."""

    mtriple: str = option("", doc="machine")


class ClaimedMatch(Accelerator):
    """Makes code for one processor, and has the channels last."""

    @hookimpl
    def register_target_kind(self) -> list[TargetKind]:
        kind = TargetKind(
            "fast", Role.ACCELERATOR, NoOptions, arches=("aarch64",), channels_last=True
        )
        return [kind]


def test_one_processor_runs_backend_and_accelerators() -> None:
    backend = Backend()
    backend.kind = replace(backend.kind, options=Triple)
    host = host_of(backend, ClaimedMatch())
    with pytest.raises(TargetError, match=r"'fast' makes code for aarch64, 'toy' for x86_64"):
        compiled("fast, toy -mtriple=x86_64-linux-gnu", host)
    assert compiled("fast, toy -mtriple=aarch64-linux-gnu", host).placement.offloaded == 1
    assert compiled("fast, plain", host).placement.offloaded == 1  # who knows what plain is for


def test_images_that_change_their_layout_are_counted() -> None:
    host = host_of(accelerator=ClaimedMatch())
    shapes = {"a": (2, 3, 4, 5), "b": (2, 3, 5, 6), "c": (1, 1, 6, 4)}
    a, b, c = (Var(name, TensorType(shape, DType.FLOAT32)) for name, shape in shapes.items())
    attrs = Matmul.Attrs()
    body = call(Matmul, call(Matmul, a, b, attrs=attrs), c, attrs=attrs)
    module = IRModule.from_function(Function((a, b, c), body, ("y",)))
    placement = build(module, "fast, toy", host=host, plan=Plan.GREEDY).placement
    assert [row.turned for row in placement.regions] == [3]  # one channel has no other order
    assert str(placement).endswith(", 3 images turned between NCHW and NHWC")
    assert placement.regions[0].to_json()["turned"] == 3


def test_loading_checks_the_machine() -> None:
    with pytest.raises(ArtifactError, match="this machine has no fastbit"):
        compiled().load()


def test_stages_are_told_in_order() -> None:
    heard: list[str] = []
    compiled(progress=heard.append)
    assert tuple(heard) == STAGES


def test_weights_are_known_before_there_is_code(tmp_path: Path) -> None:
    heard: list[tuple[str, dict[str, np.ndarray]]] = []
    stages: list[str] = []

    def known(weights: Weights) -> None:
        heard.append((stages[-1], dict(weights)))

    with closing(ArtifactWriter(tmp_path / "x")) as writer:
        artifact = compiled(progress=stages.append, weights_known=known)
        ((stage, weights),) = heard
        assert stage == "lower"
        assert weights.keys() == artifact.constants.keys()
        assert all(weights[name] is array for name, array in artifact.constants.items())
        broken = host_of(Backend(fail_with(ToolchainError("no ld"))))
        with pytest.raises(ToolchainError, match="no ld"):
            compiled(host=broken, weights_known=writer.begin)
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def test_params_are_weights(tmp_path: Path) -> None:
    x, w = (Var(name, TensorType((4, 4), DType.FLOAT32)) for name in "xw")
    module = IRModule.from_function(
        Function((x, w), call(Matmul, x, w, attrs=Matmul.Attrs()), ("y",))
    )
    artifact = build(
        module, "toy", host=host_of(), params={"w": np.arange(16, dtype=np.float32).reshape(4, 4)}
    )
    assert [spec.name for spec in artifact.passport.plan.inputs] == ["x"]
    assert len(artifact.constants) == 1


def test_each_stage_can_be_dumped(tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    compiled(dump_ir=folder)
    names = sorted(path.name for path in folder.iterdir())
    assert names[:3] == ["01-imported.txt", "02-prepared.txt", "03-partitioned.txt"]
    assert names[-1].endswith("plan.json")
    assert "matmul" in (folder / "01-imported.txt").read_text()
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        compiled(dump_ir=blocked)


def test_a_plugin_may_give_its_regions_back() -> None:
    assert compiled(host=host_of(accelerator=Choosy())).placement.offloaded == 0


class Refusing(Accelerator):
    @hookimpl
    def relay_codegen(self, region: Region, target: Target) -> CompiledUnit:
        raise UnsupportedError("too many rows")


class Renaming(Accelerator):
    @hookimpl
    def relay_codegen(self, region: Region, target: Target) -> CompiledUnit:
        return CompiledUnit(region.name, "fast", {}, {"w": np.zeros(15, np.float32)})


class Compiled(Accelerator):
    """Answers with a unit."""

    def __init__(self, unit: CompiledUnit) -> None:
        self.unit = unit

    @hookimpl
    def relay_codegen(self, region: Region, target: Target) -> CompiledUnit:
        return self.unit


class Rewriting(Backend):
    """Rewrites graph and kernels as told."""

    def __init__(self, main: Any = None, kernel: Any = None) -> None:
        super().__init__()
        self.change = (main, kernel)

    @hookimpl
    def rewrite_relay(self, function: Function, target: Target) -> Function:
        return self.change[0](function) if self.change[0] else function

    @hookimpl
    def rewrite_tir(self, function: Any, target: Target) -> Any:
        return self.change[1](function) if self.change[1] else function


def without_inputs(function: Function) -> Function:
    return replace(function, params=())


def renamed(function: Any) -> Any:
    return replace(function, name="other")


def fail_with(error: Exception) -> Any:
    def generate(module: object, target: object) -> CompiledUnit:
        raise error

    return generate


def answer_with(value: object) -> Any:
    def generate(module: object, target: object) -> object:
        return value

    return generate


@pytest.mark.parametrize(
    ("host", "error", "message"),
    [
        (
            host_of(accelerator=Refusing()),
            PluginError,
            "'fast' took region 'fast_0'.*too many rows",
        ),
        (
            host_of(Backend(None)),
            PluginError,
            "acme-toy does not implement tir_codegen.* for the backend 'toy'",
        ),
        (
            host_of(Backend(fail_with(ValueError("x")))),
            PluginError,
            "acme-toy 0.*failed in tir_codegen.*ValueError: x",
        ),
        (host_of(Backend(fail_with(ToolchainError("no ld")))), ToolchainError, "no ld"),
        (
            host_of(Backend(answer_with(3))),
            PluginError,
            r"acme-toy 0\) answered tir_codegen.*with int",
        ),
        (
            host_of(Backend(fail_with(OSError(errno.ENOSPC, "disk full")))),
            ResourceError,
            "acme-toy.* ran out of memory or disk in tir_codegen.*disk full",
        ),
        (host_of(Rewriting(without_inputs)), PluginError, "rewrite_relay.*changed parameters"),
        (host_of(Rewriting(None, renamed)), PluginError, "rewrite_tir.*changed the interface"),
    ],
    ids=["refuses", "no-codegen", "raises", "toolchain", "nonsense", "full", "relay", "tir"],
)
def test_what_a_plugin_does_wrong_is_told(
    host: Host, error: type[IntarsiaError], message: str
) -> None:
    with pytest.raises(error, match=message):
        compiled(host=host)


def test_a_device_is_not_driven_yet() -> None:
    with pytest.raises(UnsupportedError, match="'toy' compiles for a device"):
        compiled("toy, plain", host_of(Backend(device=2)))


def test_a_rewrite_that_changes_nothing_passes() -> None:
    assert compiled(host=host_of(Rewriting())).passport.units[0].name == "main"


def test_a_source_that_is_no_file_of_its_unit_is_refused() -> None:
    from intarsia.driver.stages import sources_of

    unit = CompiledUnit("fast_0", "fast", {"fast.c": b"int x;"}, sources=("fast.c",))
    assert sources_of(unit) == {"fast.c": b"int x;"}
    with pytest.raises(PluginError, match="unit of region 'fast_0' names a source"):
        sources_of(CompiledUnit("fast_0", "fast", {}, sources=("fast.h",)))


def test_two_weights_of_one_name_are_refused() -> None:
    from intarsia.driver.artifact import collect_constants

    unit = CompiledUnit("fast_0", "fast", {}, {"w": np.zeros(3)})
    with pytest.raises(PluginError, match="unit 'fast_0' calls a weight 'w'"):
        collect_constants({"w": np.zeros(3)}, [unit])


def test_gates() -> None:
    with pytest.raises(GateFailed, match="90 % required"):
        compiled(require_offload=90)
    with pytest.raises(GateFailed, match="at most 0 allowed"):
        compiled(max_regions=0)


def test_what_is_asked_must_exist() -> None:
    with pytest.raises(TargetError, match=r"no target is set\n.*installed backends: plain, toy"):
        build(model(), host=host_of())
    with pytest.raises(UsageError, match=r"build.. has no option 'max_region'"):
        compiled(max_region=3)
    with pytest.raises(UsageError, match="unpacked-api needs a freestanding runtime"):
        compiled(executor=Executor("aot", {"unpacked-api": True}))
    with pytest.raises(UnsupportedError, match="'toy' makes no code for runtime 'c'"):
        compiled(runtime=Runtime("c"))


def test_the_faces_of_the_package() -> None:
    assert intarsia.build is build or callable(intarsia.build)
    assert intarsia.Executor is Executor
    assert set(intarsia.__all__) <= set(dir(intarsia))
    for name in intarsia.__all__:
        assert getattr(intarsia, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        intarsia.absent  # noqa: B018


@pytest.mark.parametrize(
    "order",
    ["import intarsia.driver.config", "from intarsia import Executor", "intarsia.build"],
)
def test_build_can_be_called_whatever_was_imported_before(order: str) -> None:
    code = (
        f"import intarsia\n{order}\n"
        "try: intarsia.build('absent.onnx', 'x')\n"
        "except intarsia.IntarsiaError as error: print(type(error).__name__)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "TargetError"


def test_an_artifact_is_one_line_in_a_session() -> None:
    import intarsia

    text = repr(build(model(), "fast, toy", host=host_of(), plan=Plan.GREEDY))
    assert text == "<Artifact 'default' for 'fast, toy': 2 units, 1 weight>"
    assert repr(intarsia.Target("toy", host=host_of())) == "Target('toy')"
