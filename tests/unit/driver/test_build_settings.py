# SPDX-License-Identifier: Apache-2.0
"""``build`` as the RFC on target attributes writes it, and the settings that a module carries."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from intarsia.driver.build import build
from intarsia.driver.config import Executor, Runtime
from intarsia.driver.text import read_module
from intarsia.plugin import CompiledUnit, TensorModule, hookimpl
from intarsia.target.target import CompositeTarget, Target
from intarsia_ir.graph.expr import Function, Var, call
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops.nn import Matmul
from intarsia_ir.tir.expr import Load, PrimExpr, intrinsic
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.intrinsic import Intrinsic, IntrinsicRule
from intarsia_ir.tir.target_call import call_target_intrinsic
from intarsia_ir.tir.walk import rewrite_stmt
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ModelError, UnsupportedError, UsageError

from .toy import Backend, compile_main, host_of


def module() -> IRModule:
    x = Var("x", TensorType((4, 5), DType.FLOAT32))
    weight = Var("w", TensorType((5, 3), DType.FLOAT32))
    product = call(Matmul, x, weight, attrs=Matmul.Attrs())
    return IRModule.from_function(Function((x, weight), product, ("y",)))


PARAMS = {"w": np.ones((5, 3), np.float32)}


def test_the_signature_is_that_of_the_proposal() -> None:
    names = list(inspect.signature(build).parameters)
    assert names[:7] == [
        *("ir_mod", "target", "target_host", "executor", "runtime", "params", "mod_name")
    ]
    assert [p.default for p in inspect.signature(build).parameters.values()][1:7] == [
        *(None, None, None, None, None, "default")
    ]


def test_the_call_of_the_proposal_builds() -> None:
    host = host_of()
    artifact = build(
        module(),
        "toy",
        target_host="toy",
        executor=Executor({"kind": "aot", "unpacked-api": False}),
        runtime=Runtime({"kind": "cpp"}),
        params=PARAMS,
        mod_name="the_ultimate_cat_spotter",
        host=host,
    )
    assert artifact.passport.name == "the_ultimate_cat_spotter"
    assert artifact.passport.executor == Executor("aot").to_json()
    assert artifact.passport.runtime == Runtime("cpp").to_json()
    with pytest.raises(UnsupportedError, match="'toy' makes no code for runtime 'c'"):
        build(
            module(),
            "toy",
            runtime=Runtime({"kind": "c", "link-params": False}),
            params=PARAMS,
            host=host,
        )


def test_build_annotates_the_module(tmp_path: Path) -> None:
    host = host_of()
    build(module(), "toy", executor=Executor("graph"), params=PARAMS, host=host, dump_ir=tmp_path)
    text = next(tmp_path.glob("*-imported.txt")).read_text()
    assert text.startswith(
        'set CompositeTarget "toy";\nset Executor "graph";\nset Runtime "cpp";\n'
    )
    again = read_module(text, host=host)
    assert again.attr(Executor) == Executor("graph")
    assert again.attr(CompositeTarget) == host.target("toy")


def test_settings_of_a_module_hold_where_none_is_given() -> None:
    host = host_of()
    carrying = module().with_attr(Executor, Executor("graph"))
    carrying = carrying.with_attr(CompositeTarget, host.target("toy"))
    assert build(carrying, params=PARAMS, host=host).passport.executor == {"kind": "graph"}
    given = build(carrying, executor=Executor("aot"), params=PARAMS, host=host)
    assert given.passport.executor["kind"] == "aot"
    bad = carrying.with_attr(Runtime, Runtime("c"))
    with pytest.raises(UsageError, match="rule a-walk-needs-a-process"):
        build(bad, params=PARAMS, host=host)


def test_the_current_target_is_used() -> None:
    host = host_of()
    with host.target("fast, toy"):
        assert build(module(), params=PARAMS, host=host).passport.target == "fast, toy"
        assert build(module(), "toy", params=PARAMS, host=host).passport.target == "toy"


def test_rules_are_checked_before_the_model_is_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing.onnx"
    with pytest.raises(UsageError, match="rule unpacked-needs-freestanding"):
        build(missing, "toy", executor=Executor("aot", {"unpacked-api": True}), host=host_of())
    with pytest.raises(ModelError, match="cannot be opened"):
        build(missing, "toy", executor=Executor("vm"), host=host_of())


def test_the_passport_keeps_executor_and_runtime() -> None:
    passport = build(module(), "toy", params=PARAMS, host=host_of()).passport
    said = json.loads(json.dumps(passport.to_json()))
    assert said["executor"]["kind"] == "aot"
    assert said["executor"]["interface-api"] == "packed"
    assert said["runtime"] == {"kind": "cpp"}


class Calling(Backend):
    """Rewrites kernels to call a function that no code generator has."""

    @hookimpl
    def rewrite_tir(self, function: PrimFunc, target: Target) -> PrimFunc:
        return replace(function, body=rewrite_stmt(function.body, called))


def called(expr: PrimExpr) -> PrimExpr | None:
    return call_target_intrinsic("toy", "toy.mac", expr) if isinstance(expr, Load) else None


def test_a_kernel_that_calls_what_is_not_there_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"generator 'toy' has no function 'toy\.mac'"):
        build(module(), "toy", params=PARAMS, host=host_of(Calling()))


class Ruling(Backend):
    """Has a rule for a machine function, and counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__(self.generate)
        self.asked = 0
        self.modules: list[TensorModule] = []

    def generate(self, module: TensorModule, target: Target) -> CompiledUnit:
        self.modules.append(module)
        return compile_main(module, target)

    @hookimpl
    def lower_intrinsic(self, target: Target) -> dict[Intrinsic, IntrinsicRule]:
        self.asked += 1
        return {Intrinsic.RSQRT: inverse_root}


def inverse_root(x: PrimExpr) -> PrimExpr:
    return 1.0 / intrinsic(Intrinsic.SQRT, x)


def test_the_code_generator_gets_the_rules_of_its_kind() -> None:
    backend = Ruling()
    build(module(), "toy", params=PARAMS, host=host_of(backend))
    assert backend.asked == 1
    assert [dict(made.rules) for made in backend.modules] == [{Intrinsic.RSQRT: inverse_root}]


def test_settings_have_names_and_a_module_does_not_change() -> None:
    host = host_of()
    target = host.target("toy")
    carrying = module().with_attr("Executor", Executor("graph")).with_attr("Target", target)
    assert carrying.attr(Executor) == carrying.attr("Executor") == Executor("graph")
    assert carrying.attr("Target") == carrying.attr(CompositeTarget) == target
    assert carrying.attr("Runtime") is None
    artifact = build(carrying, params=PARAMS, host=host)
    assert artifact.passport.executor["kind"] == "graph"
    with pytest.raises(UsageError, match="the setting 'Runtime' of a module cannot be a Executor"):
        carrying.with_attr("Runtime", Executor("graph"))
    with pytest.raises(UsageError, match=r"(?s)change.*module.with_attr\('Runtime', ...\)"):
        carrying.set_attr("Runtime", Runtime())
    with pytest.raises(UsageError, match="has no setting 'Executor' set"):
        carrying.set_attr(Executor, Executor())


@pytest.mark.parametrize("executor", ["graph", {"kind": "graph"}, Executor("graph")])
def test_an_executor_may_be_a_string_or_an_object(executor: object) -> None:
    built = build(module(), "toy", params=PARAMS, host=host_of(), executor=executor)  # type: ignore[arg-type]
    assert built.passport.executor["kind"] == "graph"


def test_a_runtime_is_no_executor() -> None:
    with pytest.raises(UsageError, match=r"executor is Runtime\('cpp'"):
        build(module(), "toy", params=PARAMS, host=host_of(), executor=Runtime())  # type: ignore[arg-type]


def test_a_target_is_made_of_its_string() -> None:
    import intarsia

    host = host_of()
    target = intarsia.Target("toy", host=host)
    assert isinstance(target, intarsia.CompositeTarget)
    assert isinstance(target, intarsia.Target)
    assert isinstance(target.fallback, intarsia.Target)
    assert not isinstance("toy", intarsia.Target)
    assert target == host.target("toy") == intarsia.Target(target, "toy", host=host)
    with target:
        assert intarsia.Target.current() is target
        assert build(module(), params=PARAMS, host=host).passport.target == "toy"
