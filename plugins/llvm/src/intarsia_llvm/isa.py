# SPDX-License-Identifier: Apache-2.0
"""Which instructions LLVM may generate for a processor, as ISA features with the kernel's names.

What ``-mcpu`` and ``-mattr`` stand for is in LLVM's own tables, which no function returns. But its
inliner compares them: a function with one feature more is inlined into another exactly if that has
the feature already. So one small module answers for all features of a processor, in milliseconds.

x86 has its table in :mod:`.target`, since names of its processors promise what virtual machines
mask.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from intarsia_runtime.errors import ToolchainError

if TYPE_CHECKING:
    from llvmlite import binding


class Isa(Struct, frozen=True):
    """The features of an instruction set.

    Attributes:
        names: LLVM's name to those of the Linux kernel; of an instruction set without one, LLVM's.
        implied: A feature to one that includes it: who needs that needs not name it.
        unused: Patterns of features that processors have and no kernel uses, since only intrinsics
            or other modes give their instructions. LLVM is told to leave them alone: systems mask
            some of them, and some processors with the name of a core lack them.
        silent: What adds no instruction: it fits what users may add and nobody has to check.
    """

    names: Mapping[str, tuple[str, ...]]
    implied: Mapping[str, str]
    unused: tuple[str, ...]
    silent: re.Pattern[str]

    def leaves(self, name: str) -> bool:
        """Say whether no kernel uses a feature."""
        return any(fnmatchcase(name, pattern) for pattern in self.unused)


def _rows(text: str) -> dict[str, tuple[str, ...]]:
    """Read ``name`` or ``name=kernel+kernel``, separated by spaces."""
    callers = (word.partition("=") for word in text.split())
    return {name: tuple((kernel or name).split("+")) for name, _, kernel in callers}


def _implied(text: str) -> dict[str, str]:
    """Read ``parent>child,child``, separated by spaces."""
    callers = (word.split(">") for word in text.split())
    return {child: parent for parent, children in callers for child in children.split(",")}


_TUNING = (
    r"(?:add|addi|addr|aggressive|alu|arith|ascend|avoid|auipc|balance|bfext|branch|call-saved|cheap"
    r"|cmp|conditional|disable|dont|enable|exynos|fix|force|fuse|harden|ld|ldp|lui|max|muxed|no"
    r"|nonpipelined|optimized|permissive|predictable|prefer|prof|reserve|shifted|short|shxadd|single"
    r"|slow|splat|store|stp|tpidr|tpidrro|unaligned|use|vldn|vmlx|wide|zcm|zcz|zexth|zextw)-.*"
    r"|fpao|loop-align|ret-addr-stack|expand-fp-mlx|slowfpvmlx|slowfpvfmx|strict-align|tagged-globals"
    r"|zcz|32bit|64bit|relax|vl-dependent-latency|vxrm-pipeline-flush|log-vrgather|dlen-factor-2"
    r"|long-calls|execute-only|outline-atomics|store-pair-suppress"
)

AARCH64 = Isa(
    # fp and neon are in every AArch64 Linux, so nobody names them.
    names=_rows(
        "crc=crc32 lse=atomics rdm=asimdrdm fullfp16=fphp+asimdhp fp16fml=asimdfhm "
        "dotprod=asimddp jsconv=jscvt complxnum=fcma rcpc=lrcpc rcpc-immo=ilrcpc rcpc3=lrcpc3 "
        "flagm altnzcv=flagm2 fptoint=frint lse2=uscat lse128 i8mm bf16 sve sve2 sve2p1 "
        "sve-b16b16=sveb16b16 f32mm=svef32mm f64mm=svef64mm mops cssc hbc faminmax lut fp8=f8cvt "
        "cmpbr fprcvt sve2p2 sve2p3 lsfe"
    ),
    implied=_implied(""),
    unused=(
        *("aes", "sha2", "sha3", "sm4", "sve-aes", "sve-bitperm", "sve-sha3", "sve-sm4", "rand"),
        *("mte", "sme", "ls64", "wfxt", "gcs", "pauth-lr", "d128", "the", "cpa", "ssbs"),
    ),
    silent=re.compile(
        _TUNING
        + r"|CONTEXTIDREL2|all|am|amvs|brbe|bti|ccdp|ccidx|ccpp|chk|clrbhb|dit|ecv|el2vmsa|el3"
        r"|ete|fgt|fpac|hcx|ite|lor|mec|mpam|nmi|nv|pan|pan-rwv|pauth|perfmon|predres|ras|rasv2|rme"
        r"|sb|sel2|spe|spe-eef|specres2|specrestrict|tlb-rmi|tracev8.4|trbe|uaops|v[89].*|vh|xs"
        r"|neon|fp-armv8"
    ),
)
RISCV = Isa(
    names={},  # every extension has one name
    implied=_implied(
        "m>zmmul a>zaamo,zalrsc c>zca,zcd,zcf v>zve64d zve64d>zve64f zve64f>zve64x,zve32f "
        "zve64x>zve32x zfh>zfhmin zvfh>zvfhmin zvbb>zvkb zdinx>zfinx zhinx>zhinxmin"
    ),
    # The kernel does not say how long vectors are, so code relies on the 128 bits of V only; and
    # it seldom names extensions of vendors.
    unused=("zvl256b", "zk[nrs]*", "zbkc", "zvk[gns]*", "x*"),
    silent=re.compile(
        _TUNING + r"|[eibh]|zic(?:64b|bo[mpz]|camo[ac]|cif|clsm|crse|ntr|sr)|zifencei|zih.*"
        r"|z[ic]mop|za(?:64rs|128rs|ma16b|wrs)|zv?kt|zvl.*|s[a-z]+.*|rv[abi].*"
    ),
)
ARM = Isa(
    names=_rows(
        "dsp=edsp vfp2sp=vfp vfp3d16sp=vfpv3d16 vfp3sp=vfpv3 vfp4d16sp=vfpv4 d32=vfpd32 neon "
        "hwdiv=idivt hwdiv-arm=idiva fp-armv8d16sp=v8 v8 crc=crc32 dotprod=asimddp "
        "fullfp16=fphp+asimdhp fp16fml=asimdfhm bf16=asimdbf16 i8mm fp16"
    ),
    implied=_implied("vfp3sp>vfp3d16sp vfp4d16sp>fp16"),
    unused=("aes", "sha2", "sb"),
    silent=re.compile(
        _TUNING + r"|(?:arm)?v[4-9].*|v7clrex|aclass|acquire-release|db|fp64|fpregs.*|vfp.*"
        r"|fp-armv8.*|mp|noarm|perfmon|ras|thumb2|trustzone|virtualization|8msecext|neonfp"
    ),
)
CORTEX_M = Isa(
    # No kernel names them: these are LLVM's names.
    names=_rows(
        "v6m v7 v8m v8m.main v8.1m.main dsp hwdiv vfp2sp vfp3d16sp vfp4d16sp fp-armv8d16sp fp64 "
        "fp16 fullfp16 mve mve.fp lob"
    ),
    implied=_implied(
        "v8.1m.main>v8m.main v8m.main>v7 v7>v8m v8m>v6m mve.fp>mve mve>dsp "
        "fp-armv8d16sp>vfp4d16sp vfp4d16sp>vfp3d16sp vfp3d16sp>vfp2sp vfp4d16sp>fp16"
    ),
    unused=("pacbti",),
    silent=ARM.silent,
)


def isa_of(triple: str) -> Isa | None:
    """Return the instruction set of a triple; ``None`` if it is none of those above."""
    arch = triple.split("-")[0]
    if arch.startswith(("aarch64", "arm64")):
        return AARCH64
    if arch.startswith("riscv"):
        return RISCV
    if arch.startswith("thumb") and arch.removeprefix("thumb").startswith(
        ("v6m", "v7m", "v7em", "v8m", "v8.")
    ):
        return CORTEX_M
    return ARM if arch.startswith(("arm", "thumb")) else None


class Features(NamedTuple):
    """What code for a processor may use.

    Attributes:
        attributes: LLVM's feature string.
        needed: What a machine must have to run it, without what follows from the rest.
        offered: What code may use, all of it: an artifact that needs no more may run there.
    """

    attributes: str
    needed: tuple[str, ...]
    offered: frozenset[str]


def resolve(triple: str, cpu: str, attributes: Iterable[str]) -> Features:
    """Return what LLVM is told for ``-mcpu`` and ``-mattr``, and what code may use then.

    Args:
        triple: LLVM's name of the machine.
        cpu: LLVM's name of the processor.
        attributes: Features to add and remove: ``+sve``, ``-lse``.

    Raises:
        ToolchainError: LLVM does not know the triple.
    """
    isa, attributes = isa_of(triple), tuple(attributes)
    if isa is None:
        return Features(",".join(attributes), (), frozenset())
    added = {name[1:] for name in attributes if name.startswith("+")}
    if isa is RISCV:
        found = riscv_extensions(triple, cpu, ",".join(attributes))
        unused: Iterable[str] = filter(isa.leaves, found)
    else:
        unused = isa.unused
    told = ",".join([*(f"-{name}" for name in unused if name not in added), *attributes])
    others = sorted(name for name in added if not isa.silent.fullmatch(name))
    if isa is RISCV:
        found = riscv_extensions(triple, cpu, told)
        active = tuple(n for n in found if n in others or not isa.silent.fullmatch(n))
    else:
        asked = tuple(dict.fromkeys((*isa.names, *others)))
        active = active_features(triple, cpu, told, asked)
    needed = [name for name in active if isa.implied.get(name) not in active]
    kernel = {name: isa.names.get(name, (name,)) for name in active}
    return Features(
        told,
        tuple(dict.fromkeys(one for name in needed for one in kernel[name])),
        frozenset(one for names in kernel.values() for one in names),
    )


def attributes_of(triple: str, features: frozenset[str]) -> tuple[str, ...]:
    """Return LLVM's features for a machine that has ``features``, as the kernel names them."""
    isa = isa_of(triple)
    if isa is None:
        return ()
    if isa is RISCV:
        named = sorted(n for n in features if not isa.silent.fullmatch(n) and n not in isa.implied)
        return tuple(f"+{name}" for name in named if not isa.leaves(name))
    return tuple(f"+{name}" for name, kernel in isa.names.items() if features.issuperset(kernel))


@cache
def active_features(
    triple: str, cpu: str, attributes: str, names: tuple[str, ...]
) -> tuple[str, ...]:
    """Return those of ``names`` that LLVM may use for a processor.

    Args:
        triple: LLVM's name of the machine.
        cpu: LLVM's name of the processor.
        attributes: LLVM's feature string, of what is added and removed.
        names: LLVM's names of features.

    Raises:
        ToolchainError: LLVM does not know the triple.
    """
    from llvmlite import binding  # an SDK: loaded when code is generated

    machine = _target_machine(triple, cpu, attributes)
    tuning = binding.create_pipeline_tuning_options(speed_level=2)
    module = binding.parse_assembly(_questions(triple, cpu, attributes, names))
    builder = binding.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    called = {int(number) for number in re.findall(r"call[a-z ]* void @q(\d+)\(", str(module))}
    return tuple(name for number, name in enumerate(names) if number not in called)


@cache
def riscv_extensions(triple: str, cpu: str, attributes: str) -> tuple[str, ...]:
    """Return the extensions that LLVM may use, as it writes them into every object file.

    Raises:
        ToolchainError: LLVM does not know the triple.
    """
    from llvmlite import binding  # an SDK: loaded when code is generated

    machine = _target_machine(triple, cpu, attributes)
    code = machine.emit_object(binding.parse_assembly(f'target triple = "{triple}"\n'))
    sections = binding.ObjectFileRef.from_data(code).sections()
    (text,) = (s.data() for s in sections if s.name() == b".riscv.attributes")
    match = re.search(rb"rv\d\d([a-z0-9_]+)", text)
    words = match[1].decode().split("_") if match is not None else []
    return tuple(re.sub(r"\d+p\d+$", "", word) for word in words)


def _target_machine(triple: str, cpu: str, attributes: str) -> binding.TargetMachine:
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    try:
        target = binding.Target.from_triple(triple)
    except RuntimeError as cause:
        raise ToolchainError(
            f"LLVM cannot generate code for '{triple}': {cause}",
            hint="check -mtriple; e.g. x86_64-unknown-linux-gnu, aarch64-unknown-linux-gnu",
        ) from cause
    return target.create_target_machine(cpu=cpu, features=attributes, reloc="pic")


def _questions(triple: str, cpu: str, attributes: str, names: Iterable[str]) -> str:
    """Return a module that calls one function for each feature, from one without it."""
    lines = [f'target triple = "{triple}"', "@sink = external global i32"]
    calls: list[str] = []
    kept = f'nounwind "target-cpu"="{cpu}" "target-features"='
    for number, name in enumerate(names):
        added = f"{attributes},+{name}" if attributes else f"+{name}"
        lines += [
            f"define internal void @q{number}() #{number + 1} {{",
            f"  store volatile i32 {number}, ptr @sink",
            "  ret void",
            "}",
            f'attributes #{number + 1} = {{ {kept}"{added}" }}',
        ]
        calls.append(f"  call void @q{number}()")
    lines += ["define void @asked() #0 {", *calls, "  ret void", "}"]
    return "\n".join([*lines, f'attributes #0 = {{ {kept}"{attributes}" }}', ""])
