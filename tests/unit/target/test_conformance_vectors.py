# SPDX-License-Identifier: Apache-2.0
"""Target strings as TVM's users write them: what ours mean, and where they differ on purpose.

Each row is a behaviour of TVM's target system, adapted to kinds of this file. ``difference`` is
empty where the meaning is the same; where it is not, it says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from intarsia.target.kind import Role, TargetKind
from intarsia.target.kind_table import KindTable
from intarsia.target.options import option
from intarsia.target.read import read_spec
from intarsia_runtime.errors import IntarsiaError


@dataclass(frozen=True, kw_only=True)
class Cpu:
    mcpu: str = option("generic", doc="processor")
    mattr: tuple[str, ...] = option((), doc="features")
    mtriple: str = option("", doc="machine")
    num_cores: int = option(0, doc="cores", minimum=0)
    fast_math: bool = option(False, doc="relax")
    cl_opt: tuple[str, ...] = option((), doc="options of the generator")
    device_name: str = option("", doc="what the driver calls it")


@dataclass(frozen=True, kw_only=True)
class Gpu:
    arch: str = option("sm_75", doc="architecture")
    max_num_threads: int = option(1024, doc="threads of a block", minimum=1)
    supports_float16: bool = option(False, doc="half precision")
    libs: tuple[str, ...] = option((), doc="libraries")


@dataclass(frozen=True, kw_only=True)
class Npu:
    accelerator_config: str = option("ethos-u55-256", doc="configuration")


def kind(name: str, role: Role, options: type, **named: Any) -> TargetKind:
    return TargetKind(name, role, options, **named)


GPU = {"device_type": 2, "default_keys": ("gpu",), "host": "llvm"}
KINDS = KindTable.of(
    kind("llvm", Role.BACKEND, Cpu),
    kind("c", Role.BACKEND, Cpu),
    kind("cuda", Role.BACKEND, Gpu, **GPU),
    kind("opencl", Role.BACKEND, Gpu, **GPU),
    kind("cmsis-nn", Role.ACCELERATOR, Npu),
    kind("ethos-u", Role.ACCELERATOR, Npu),
    kind("compute-library", Role.ACCELERATOR, Npu),
    tags={
        "nvidia/jetson-nano": "cuda -arch=sm_53, llvm -mcpu=cortex-a57",
        "nvidia/geforce-rtx-2080-ti": "cuda -arch=sm_75",
    },
)


@dataclass(frozen=True)
class Vector:
    """A string or object, the canonical string it means, or the message it gets."""

    spec: Any
    means: str = ""
    refused: str = ""
    host: Any = None
    difference: str = ""


DEVICE = "-device was one more key of a kind; -keys and the hardware's tag give keys"
HOST = "the host is the last target of a list, or target_host; it is no option, so str() keeps it"
DEVICES = "a composite is accelerators, fallback and host by role, not a bare list of devices"
STRICT = "booleans are true, false, 1 or 0 in any case"
VECTORS = (
    Vector("cuda -libs=cublas,cudnn", "cuda -libs='cublas,cudnn', llvm",
           difference="the default host is part of the target and of its string"),
    Vector("cuda -model=unknown -libs=cublas,cudnn", refused="-model is called -hardware",
           difference="-model was a label that two names of one card made two of; a tag is it now"),
    Vector("llvm -device_name='a name, with spaces'", "llvm -device-name='a name, with spaces'"),
    Vector("composite --host=llvm --devices=cuda,opencl", refused="no target kind or alias is",
           difference=DEVICES),
    Vector({"kind": "composite", "fallback": "cuda", "target_host": "llvm"}, "cuda, llvm",
           difference=DEVICES),
    Vector("cuda --host llvm", refused="-host is not an option", difference=HOST),
    Vector("cuda, llvm -mcpu=a57", "cuda, llvm -mcpu=a57", difference=HOST),
    Vector("cuda", "cuda, llvm -mcpu=a57", host="llvm -mcpu=a57"),
    Vector("cuda", refused="'cuda' is a backend for another device and cannot be the host",
           host="cuda", difference="TVM takes any kind as host and fails when it generates code"),
    Vector("cuda", refused="target_host is one backend, not 2 targets", host="nvidia/jetson-nano",
           difference="a board implies a device and its host, which is not one backend"),
    Vector({"kind": "cuda", "host": "llvm -mcpu=a57"}, "cuda, llvm -mcpu=a57"),
    Vector({"kind": "cuda", "target_host": {"kind": "llvm"}}, "cuda, llvm"),
    Vector("nvidia/jetson-nano", "cuda -arch=sm_53 -hardware=nvidia/jetson-nano, "
           "llvm -mcpu=cortex-a57 -hardware=nvidia/jetson-nano"),
    Vector("nvidia/jetson-nano -max_num_threads=512",
           "cuda -arch=sm_53 -max-num-threads=512 -hardware=nvidia/jetson-nano, "
           "llvm -mcpu=cortex-a57 -hardware=nvidia/jetson-nano",
           difference="a tag takes options; TVM planned [hardware-str] [attributes], never had it"),
    Vector("nvidia/geforce-rtx-2080-ti", "cuda -hardware=nvidia/geforce-rtx-2080-ti, llvm"),
    *(
        Vector(f"opencl --supports_float16={word}", meaning)
        for word, meaning in (
            ("True", "opencl -supports-float16=true, llvm"),
            ("true", "opencl -supports-float16=true, llvm"),
            ("1", "opencl -supports-float16=true, llvm"),
            ("False", "opencl, llvm"),
            ("false", "opencl, llvm"),
        )
    ),
    Vector("opencl -supports_float16=yes", refused="is true or false, not 'yes'",
           difference=STRICT),
    Vector("opencl -supports_float16", "opencl -supports-float16=true, llvm"),
    Vector("llvm -cl-opt='-unroll-threshold:uint=100,-unroll-count:uint=3'",
           "llvm -cl-opt=-unroll-threshold:uint=100,-unroll-count:uint=3"),
    Vector({"kind": "cuda", "libs": {"a": 1}}, refused="-libs is a list of strings"),
    Vector({"kind": "llvm", "features": {"has_dsp": True}}, refused="has no option '-features'"),
    Vector("llvm -keys=cpu,arm_cpu", "llvm -keys='cpu,arm_cpu'"),
    Vector("llvm -keys=cpu,arm_cpu -device=arm_cpu", refused="has no option '-device'",
           difference=DEVICE),
    Vector("llvm -mattr=' +a, +b '", "llvm -mattr=+a,+b",
           difference="an element has no comma, so nested arrays have no spelling to escape"),
    Vector("llvm -mattr '+a , +b'", "llvm -mattr=+a,+b"),
    Vector("llvm -mcpu cortex-m55 --num-cores 4", "llvm -mcpu=cortex-m55 -num-cores=4"),
    Vector("llvm\t-mcpu=a\n-num-cores=1", "llvm -mcpu=a -num-cores=1",
           difference="any white space separates; in TVM only the space does"),
    Vector("llvm -fast-math=0 -fast-math=1", refused="-fast-math is given twice"),
    Vector("llvm, llvm", refused="'llvm' and 'llvm' are both backends for the CPU"),
    Vector("cuda, opencl, llvm", refused="3 backends in one target"),
    Vector("cuda, opencl", refused="cannot be the host",
           difference="TVM calls the second one host, and fails when it generates code"),
    Vector("invalidtarget", refused="no target kind or alias is called 'invalidtarget'"),
    Vector("opencl -libs=mali, llvm -mtriple=aarch64-linux-gnu",
           "opencl -libs=mali, llvm -mtriple=aarch64-linux-gnu"),
    Vector("compute-library, llvm -mattr=+neon,-sve -mcpu=a.b+c,d",
           "compute-library, llvm -mcpu='a.b+c,d' -mattr=+neon,-sve"),
    Vector("ethos-u,cmsis-nn,c", "ethos-u, cmsis-nn, c"),
    Vector("cmsis-nn,ethos-u -accelerator-config=ethos-u55-128,c",
           "cmsis-nn, ethos-u -accelerator-config=ethos-u55-128, c",
           difference="TVM's tokenizer reads the value up to ',c' and finds two targets"),
    Vector("cmsis-nn -accelerator_config=ethos-u55-64, llvm",
           "cmsis-nn -accelerator-config=ethos-u55-64, llvm"),
    Vector("llvm -mtriple=a/b:c=d", "llvm -mtriple=a/b:c=d",
           difference="TVM's command line drops or splits values with / : ="),
    Vector("tensorrt, llvm", refused="no target kind or alias is called 'tensorrt'"),
    Vector("ethos-u", refused="is an accelerator and cannot compile a whole model"),
    Vector("llvm, ethos-u", refused="so later targets get nothing"),
    Vector("", refused="the target is empty"),
    Vector("llvm -", refused="an option is one or two dashes and a name"),
    Vector("llvm mcpu=x", refused="is neither an option of target kind 'llvm' nor"),
    Vector("llvm -mcpu='x", refused="the quote that starts here does not end"),
    Vector("llvm -num-cores=two", refused="is an integer, not 'two'"),
    Vector({"kind": "llvm", "mcpu": 3}, refused="-mcpu is a string, not 3"),
    Vector({"mcpu": "x"}, refused="'kind' is missing"),
    Vector(None, refused="not NoneType",
           difference="TVM returns (None, None); a build without target is an error at once"),
    Vector(["cuda", "llvm"], "cuda, llvm",
           difference="a list is one heterogeneous target, not a map of device to target"),
    Vector([], refused="the target is empty"),
    Vector([], "llvm", host="llvm",
           difference="TVM asserts that a host alone is nothing; here it is the fallback"),
    Vector("llvm -executor=aot -runtime=c", refused="-executor is not an option of a target"),
)  # fmt: skip


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v.spec}{'|' if v.host else ''}")
def test_vector(vector: Vector) -> None:
    assert bool(vector.means) != bool(vector.refused)
    if vector.refused:
        with pytest.raises(IntarsiaError) as caught:
            read_spec(vector.spec, KINDS, vector.host)
        assert vector.refused in str(caught.value)
        return
    target = read_spec(vector.spec, KINDS, vector.host)
    assert str(target) == vector.means
    assert read_spec(str(target), KINDS) == target
    assert read_spec(target.to_json(), KINDS) == target


def test_every_difference_is_explained_once_or_by_a_rule() -> None:
    reasons = [vector.difference for vector in VECTORS if vector.difference]
    rules = {HOST, DEVICES, STRICT}
    single = [reason for reason in reasons if reason not in rules]
    assert len(single) == len(set(single))
    assert all(len(reason) > 30 for reason in reasons)


def test_a_canonical_target_hashes_and_orders_as_a_key() -> None:
    table: Mapping[object, str] = {read_spec("c", KINDS): "found"}
    assert table[read_spec("c -mcpu=generic", KINDS)] == "found"
