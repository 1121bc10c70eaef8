# SPDX-License-Identifier: Apache-2.0
"""Every string, dictionary and call of the proposals, verbatim, and what it means here.

``says`` is a fragment of a proposal as it stands there. A :class:`Row` says what a user gives with
it, which often is the fragment itself, and what comes out: a canonical target, or an error.
"""

from __future__ import annotations

from dataclasses import dataclass

COMPOSITE, ATTRIBUTES, EXECUTOR = (
    "composite-target.md",
    "target-and-attributes.md",
    "executor-runtime-registries.md",
)
"""Files of the three proposals."""

ARM = "-mcpu=cortex-a72 -mtriple=aarch64-unknown-linux-gnu"


@dataclass(frozen=True)
class Row:
    """A fragment, what a user gives, and the result that the text asks for.

    Attributes:
        of: The proposal.
        says: The fragment.
        given: A target; the fragment itself if ``None``.
        begins: How the canonical string begins.
        hardware: The hardware that the target then names.
        refused: A part of the message, where a sentence of the documentation says why.
        hint: A part of the hint.
    """

    of: str
    says: str
    given: object = None
    begins: str = ""
    hardware: str = ""
    refused: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Setting:
    """A fragment on an executor or runtime: what it is on a target, and where it went.

    Attributes:
        says: The fragment.
        what: ``executor`` or ``runtime``.
        given: The executor or runtime.
        means: Its canonical string; empty if it is refused.
        refused: A part of the message.
        target: The same on a target, which is refused with its new place.
    """

    says: str
    what: str
    given: str
    means: str = ""
    refused: str = ""
    target: str = ""


ACCELERATORS = '.add_attr_option<Array<Target>>("accelerators") // Accelerator targets in order.'

TARGETS = (
    Row(COMPOSITE, '.add_attr_option<Array<String>>("keys")', f"llvm {ARM} -keys=arm_cpu,cpu",
        f"llvm {ARM} -keys='arm_cpu,cpu'"),
    Row(COMPOSITE, ACCELERATORS,
        {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "accelerators": [{"kind": "arm_acl"}]},
        "arm_acl, llvm -mcpu=generic -mtriple=aarch64-linux-gnu"),
    Row(COMPOSITE, ACCELERATORS,
        "llvm -accelerators=arm_acl", refused="accelerators stand in front of the backend"),
    Row(COMPOSITE, '.add_attr_option<Array<String>>("libs")', "llvm -libs=cblas",
        refused="a library is an accelerator of its own", hint="in front of the backend"),
    Row(COMPOSITE, '.add_attr_option<String>("mcpu")', "llvm -mcpu=haswell", "llvm -mcpu=haswell"),
    Row(COMPOSITE, '.add_attr_option<Array<String>>("mattr")', "llvm -mcpu=x86-64-v2 -mattr=+fma "
        "-mtriple=x86_64-linux-gnu", "llvm -mcpu=x86-64-v2 -mattr=+fma -mtriple=x86_64-linux-gnu"),
    Row(COMPOSITE, '.add_attr_option<String>("mtriple")', f"llvm {ARM}", f"llvm {ARM}"),
    Row(COMPOSITE, '.add_attr_option<String>("mfloat-abi")',
        "llvm -mcpu=cortex-a7 -mtriple=armv7-linux-gnueabi -mfloat-abi=hard",
        "llvm -mcpu=cortex-a7 -mtriple=armv7-linux-gnueabihf"),
    Row(COMPOSITE, '.add_attr_option<Target>("target_host")',
        {"kind": "composite", "target_host": {"kind": "llvm", "mtriple": "aarch64-linux-gnu"},
         "accelerators": [{"kind": "arm_acl"}]},
        "arm_acl, llvm -mcpu=generic -mtriple=aarch64-linux-gnu"),
    Row(COMPOSITE, 'TVM_REGISTER_TARGET_KIND("composite")', "composite", hint="known: ",
        refused="no target kind or alias is called 'composite'"),
    Row(COMPOSITE, 'TVM_REGISTER_ACCEL_TARGET_KIND("arm_acl")', "arm_acl",
        refused="is an accelerator and cannot compile a whole model",
        hint="arm_acl, llvm -mtriple=aarch64-linux-gnu"),
    Row(COMPOSITE, ".add_attr_option<...>... // arm_acl specific attributes.",
        "arm_acl -num-threads=2, llvm -mtriple=aarch64-linux-gnu", "arm_acl -num-threads=2, llvm"),
    Row(COMPOSITE, "acl", begins="arm_acl, llvm -mcpu=generic -mtriple=aarch64-linux-gnu"),
    Row(COMPOSITE, "acl", "acl -num-threads=2 -mcpu=cortex-a72",
        "arm_acl -num-threads=2, llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu"),
    Row(ATTRIBUTES, "cuda, llvm, vulkan, dnnl", "cuda", "cuda, llvm "),
    Row(ATTRIBUTES, "cuda, llvm, vulkan, dnnl", "llvm", "llvm "),
    Row(ATTRIBUTES, "cuda, llvm, vulkan, dnnl", "vulkan",
        refused="no target kind or alias is called 'vulkan'", hint="known: "),
    Row(ATTRIBUTES, "cuda, llvm, vulkan, dnnl", "dnnl", hint="'dnnl, llvm'",
        refused="'dnnl' is an accelerator and cannot compile a whole model"),
    Row(ATTRIBUTES, "“cuda”", "cuda", "cuda, llvm "),
    Row(ATTRIBUTES, "llvm -mcpu=avx2", refused="-mcpu: no x86 processor 'avx2'",
        hint="'avx2' is a feature of processors: -mattr=+avx2"),
    Row(ATTRIBUTES, "llvm -mcpu=avx2", "llvm -mcpu=x86-64 -mattr=+avx2",
        "llvm -mcpu=x86-64 -mattr=+avx2 -mtriple=x86_64"),
    Row(ATTRIBUTES, "llvm -mcpu=cortex-a74 -hardware=rasp4b", hint="did you mean 'cortex-a7",
        refused="LLVM knows no processor 'cortex-a74'"),
    Row(ATTRIBUTES, "llvm -mcpu=cortex-a74 -hardware=rasp4b", "llvm -mcpu=cortex-a72 "
        "-hardware=rasp4b", f"llvm {ARM} -hardware=raspberrypi/4b", "raspberrypi/4b"),
    Row(ATTRIBUTES, "rasp4b", begins=f"llvm {ARM} -hardware=raspberrypi/4b",
        hardware="raspberrypi/4b"),
    Row(ATTRIBUTES, "nvidia/gtx2080ti", begins="cuda -arch=sm_75 ", hardware="nvidia/rtx-2080-ti"),
    Row(ATTRIBUTES, "aws/c4.xlarge", begins="llvm -mcpu=haswell ", hardware="aws/c4.xlarge"),
    Row(ATTRIBUTES, "rk3399/gpu", begins="opencl ", hardware="rockchip/rk3399:gpu"),
    Row(ATTRIBUTES, "rk3399/bigcpu", begins=f"llvm {ARM} ", hardware="rockchip/rk3399:bigcpu"),
    Row(ATTRIBUTES, "rename -model to -hardware", "cuda -model=nvidia-t4",
        refused="-model is called -hardware", hint="-hardware=NAME"),
    Row(ATTRIBUTES, "rename -model to -hardware", "cuda -hardware=nvidia-t4", "cuda -arch=sm_75 ",
        "nvidia/t4"),
    Row(ATTRIBUTES, "broadcom/bcm2711", begins=f"llvm {ARM} ", hardware="broadcom/bcm2711"),
    Row(ATTRIBUTES, "rockchip/rk3399", begins=f"llvm {ARM} ", hardware="rockchip/rk3399"),
    Row(ATTRIBUTES, "users may use t4, nvidia-t4 for the same GPU", "t4", "cuda -arch=sm_75 ",
        "nvidia/t4"),
    Row(ATTRIBUTES, "users may use t4, nvidia-t4 for the same GPU", "nvidia-t4",
        "cuda -arch=sm_75 ", "nvidia/t4"),
    Row(ATTRIBUTES, "cuda/nvidia-t4", begins="cuda -arch=sm_75 ", hardware="nvidia/t4"),
    Row(ATTRIBUTES, "broadcom/rasp4b", begins=f"llvm {ARM} ", hardware="raspberrypi/4b"),
    Row(ATTRIBUTES, "rockchip/rk3399:gpu", begins="opencl ", hardware="rockchip/rk3399:gpu"),
    Row(ATTRIBUTES, "rockchip/rk3399", "rockchip/rk3399:bigcpu", f"llvm {ARM} ",
        "rockchip/rk3399:bigcpu"),
    Row(ATTRIBUTES, "cortex-a73", begins="llvm -mcpu=cortex-a73 ", hardware="arm/cortex-a73"),
    Row(ATTRIBUTES, "runtime=host", "llvm -runtime=host", hint="--runtime KIND",
        refused="the runtime is chosen for the whole model"),
    Row(ATTRIBUTES, "runtime=standalone", "llvm -runtime=standalone", hint="--runtime KIND",
        refused="the runtime is chosen for the whole model"),
    Row(ATTRIBUTES, "the TensorRT codegen would prefer to use CUDA instead of LLVM", "trt",
        "tensorrt -arch=sm_80, cuda, llvm "),
    Row(EXECUTOR, 'TVM_REGISTER_TARGET_KIND("c", kDLCPU)', "c", "c"),
    Row(EXECUTOR, '.add_attr_option<String>("mcpu")', "c -mcpu=cortex-m4", "c -mcpu=cortex-m4"),
    Row(EXECUTOR, '.add_attr_option<String>("march")', "c -march=armv7e-m", "c -march=armv7e-m"),
    Row(EXECUTOR, '.add_attr_option<String>("executor")', "c -executor=aot",
        refused="the executor is chosen for the whole model", hint="--executor KIND"),
)  # fmt: skip
"""What is given as a target."""

SETTINGS = (
    Setting('.add_attr_option<Bool>("system-lib")', "runtime", "c -system-lib",
            "c -system-lib=true", target="c -system-lib"),
    Setting('.add_attr_option<Bool>("link-params", Bool(false))', "runtime", "c -link-params",
            "c -link-params=true", target="c -link-params"),
    Setting('.add_attr_option<String>("runtime")', "runtime", "c -runtime=x",
            refused="runtime 'c' has no option '-runtime'", target="c -runtime=c"),
    Setting('.add_attr_option<Integer>("workspace-byte-alignment")', "executor",
            "aot -workspace-byte-alignment=8", "aot -workspace-byte-alignment=8",
            target="c -workspace-byte-alignment=8"),
    Setting('.add_attr_option<Bool>("unpacked-api")', "executor", "aot -unpacked-api",
            "aot -unpacked-api=true", target="c -unpacked-api=1"),
    Setting('.add_attr_option<String>("interface-api")', "executor", "aot -interface-api=c",
            "aot -interface-api=c", target="c -interface-api=c"),
    Setting('TVM_REGISTER_EXECUTOR_KIND("vm");', "executor", "vm", "vm"),
    Setting('TVM_REGISTER_EXECUTOR_KIND("graph");', "executor", "graph", "graph"),
    Setting('TVM_REGISTER_EXECUTOR_KIND("aot")', "executor", "aot", "aot"),
    Setting('TVM_REGISTER_RUNTIME_KIND("c")', "runtime", "c", "c"),
)  # fmt: skip
"""What is given as an executor or a runtime; all of the third proposal."""

OLD_SIGNATURE = 'def build(ir_mod, target=None, target_host=None, params=None, mod_name="default")'
NEW_SIGNATURE = (
    "def build(ir_mod, target=None, target_host=None, executor=None, runtime=None, params=None, "
    'mod_name="default")'
)
CALL = """\
tvm.relay.build(
    ir_module,
    target,
    target_host=target,
    executor=Executor({
      "kind": "aot",
      "unpacked-api": False
    }),
    runtime=Runtime({
      "kind": "c",
      "link-params": False
    }),
    params=params,
    mod_name="the_ultimate_cat_spotter",
)"""
ANNOTATION = """\
  ir_mod.set_attr("Runtime", runtime)
  ir_mod.set_attr("Executor", executor)"""
KIND_FACTS = ('.set_default_keys({"cpu"})', ".set_device_type(kDLCPU);")
OBJECT = """\
{
kind: composite,
target_host: { ... },
accelerators: [{kind: arm_acl, ...}]
}"""
ALIAS_CALL = 'writetarget="acl"'
COLUMN = (
    'TVM_REGISTER_TARGET("dnnl")',
    '.set_attr<FRelayCodegen>("FRelayCodegen", DNNLCodegen);',
)
CALLBACK = ('TVM_REGISTER_GLOBAL("tvm.target.dnnl.relay_codegen")', ".set_body(DNNLCodegen)")
ROW_WISE = ".set_relay_codegen(DNNLCodegen)"
VALUES = "how to determine -mcpu=?"
INTRINSIC = ("call_llvm_intrinsic", "call_target_intrinsic")
TABLE_FILE = "target/hardware.py"
NAMES = ("`Target`", "`IRModule`", "`Executor`")

CODE = (
    *(OLD_SIGNATURE, NEW_SIGNATURE, CALL, ANNOTATION, *KIND_FACTS, OBJECT, ALIAS_CALL, *COLUMN),
    *(*CALLBACK, ROW_WISE, VALUES, *INTRINSIC, TABLE_FILE, *NAMES),
)
"""Fragments that a test of their own carries out."""

NOT_INPUT = {
    "# ... more things ...": "a comment of the sketch",
    NEW_SIGNATURE + ":": "the head of the sketch; the signature is carried out",
    'TVM_REGISTER_TARGET_KIND("llvm")': "heads the options of llvm, which are rows",
    '.set_default_keys({"cpu"});': "the same as for llvm; one test asks both kinds",
    '.add_attr_option<String>("interface-api");': "a row, here with its semicolon",
    '.add_attr_option<String>("runtime");': "a row, here with its semicolon",
    "target_host": "a name in a sentence; it is a row as a member of a composite",
    "executor": "a name in a sentence; it is a row as an option",
    "unpacked-api": "a name in a sentence; it is a row as an option",
    "c": "a name in a sentence; it is a row as a kind",
    "relay.build": "a name in a sentence; the call is carried out",
    "TargetKind": "TVM's class of what is a TargetKind here too; users do not write it",
    "ExecutorRegistry": "a class of TVM; kinds of executor are registered by a hook here",
    "AttrRegistry": "a class of TVM, base of the other",
    "tvmc": "TVM's command; `intarsia` is ours",
    "PassConfig": "a registry of TVM that the proposal only compares with",
    "Function": "a class of TVM that the proposal only compares with",
    "<vendor-id>/<device-id>": "a pattern; names made by it are rows",
    "<backend>/<backend-specific-triple-format>": "a pattern; cuda/nvidia-t4 is a row",
    "op_attrs_type": "a header of TVM that the proposal only compares with",
    "compiler": "a word in quotation marks, not an input",
    "keywords": "a word in quotation marks, not an input",
}
"""Fragments that look like code and are nothing that a user gives, and why."""
