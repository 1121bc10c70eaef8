# SPDX-License-Identifier: Apache-2.0
"""Wheels of plugins with one fault each, written without a build tool: twenty take milliseconds."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path

_HEAD = """
import ctypes, os, signal, sys, threading, time, warnings
from dataclasses import dataclass
from intarsia.plugin import (
    CompiledUnit, Region, Role, Support, SupportRow, SupportTable, Target, TargetKind,
    UnsupportedError, hookimpl, op,
)

@dataclass(frozen=True)
class Options:
    pass

@hookimpl
def register_target_kind():
    return [TargetKind({kind!r}, Role.ACCELERATOR, Options)]

def yes(match):
    return Support.yes()

@hookimpl
def annotate(target):
    return SupportTable([SupportRow("nn.relu", op("nn.relu"), yes)])
"""


@dataclass(frozen=True)
class Fault:
    """A plugin that does one thing wrong.

    Attributes:
        at_import: Source that runs when its hooks are imported, before anything else.
        hooks: Source with further hooks; one defined again replaces the good one.
        says: What a build that asks for the plugin says on stderr.
        code: Exit code of such a build; 5 also for want of a code generator.
        breaks: Whether it cannot be used at all.
        doctor: What ``doctor`` says of it; empty if it finds nothing.
        api: Hook API range.
        kind: Its target kind, if not its name.
        manifest: A whole manifest instead of the right one.
        entry: Value of the entry point instead of the right one.
        slow: Whether it waits for a time limit.
    """

    at_import: str = ""
    hooks: str = ""
    says: str = ""
    code: int = 5
    breaks: bool = True
    doctor: str = ""
    api: str = ">=2.0,<3"
    kind: str = ""
    manifest: str = ""
    entry: str = ""
    slow: bool = False


NO_CODE = "does not implement relay_codegen() or lower()"

FAULTS = {
    "no-sdk": Fault(
        "import no_such_sdk",
        says="ModuleNotFoundError: No module named 'no_such_sdk'",
        doctor="No module named 'no_such_sdk'",
    ),
    "syntax": Fault("def broken(:", says="SyntaxError", doctor="SyntaxError"),
    "sysexit": Fault("import sys; sys.exit(3)", says="SystemExit: 3", doctor="SystemExit: 3"),
    "hardexit": Fault(
        "import os; os._exit(0)",
        says="ends the process (exit code 0) when it is imported",
        doctor="it ends the process (exit code 0) when it is imported",
    ),
    "segfault": Fault(
        "import ctypes; ctypes.string_at(0)",
        says="kills the process (signal SIGSEGV) when it is imported",
        doctor="it kills the process (signal SIGSEGV) when it is imported",
    ),
    "endless": Fault(
        "while True: pass",
        says="does not end within",
        doctor="it does not end within",
        slow=True,
    ),
    "sleeper": Fault(
        hooks="@hookimpl\ndef register_target_kind():\n    time.sleep(1e6)\n",
        says="does not end within",
        doctor="it does not end within",
        slow=True,
    ),
    "slow-hook": Fault(
        hooks="@hookimpl\ndef annotate(target):\n    while True: pass\n",
        says="annotate(): OutOfTime: it took longer than",
        slow=True,
    ),
    "slow-partition": Fault(
        hooks="@hookimpl\ndef partition(regions, target):\n    while True: pass\n",
        says="partition(): OutOfTime: it took longer than",
        slow=True,
    ),
    "slow-probe": Fault(
        hooks="@hookimpl\ndef probe(target):\n    while True: pass\n",
        breaks=False,
        says=NO_CODE,
        doctor="the plugin does not end within",
        slow=True,
    ),
    "raises": Fault(
        hooks="@hookimpl\ndef annotate(target):\n    raise KeyError('lost')\n",
        says="failed in annotate(): KeyError: 'lost'",
    ),
    "gives-none": Fault(
        hooks="@hookimpl\ndef annotate(target):\n    return None\n",
        says="gave no answer to annotate()",
    ),
    "gives-object": Fault(
        hooks="@hookimpl\ndef annotate(target):\n    return object()\n",
        says="answered annotate() with object, not SupportTable",
    ),
    "gives-generator": Fault(
        hooks="@hookimpl\ndef register_target_kind():\n    yield 1\n",
        says="answered register_target_kind() with generator, not a list of TargetKind",
        doctor="with generator, not a list of TargetKind",
    ),
    "gives-huge": Fault(
        hooks="@hookimpl\ndef partition(regions, target):\n    return list(regions) * 1_000_000\n",
        says="returned a call of region 'gives_huge_0' twice",
    ),
    "mutates": Fault(
        hooks="@hookimpl\ndef relay_codegen(region, target):\n    region.function = None\n",
        says="failed in relay_codegen(): FrozenInstanceError",
    ),
    "adds-calls": Fault(
        hooks="from dataclasses import replace\n@hookimpl\ndef partition(regions, target):\n"
        "    return [replace(regions[0], origins={regions[0]: regions[0]})]\n",
        says="added calls to region 'adds_calls_0' in partition()",
    ),
    "misspelt": Fault(
        hooks="@hookimpl\ndef anotate(target):\n    return None\n",
        says="has an unknown hook, or one with other arguments",
        doctor="unknown hook 'anotate'",
    ),
    "extra-argument": Fault(
        hooks="@hookimpl\ndef annotate(target, more):\n    return None\n",
        says="has an unknown hook, or one with other arguments",
        doctor="more",
    ),
    "too-new": Fault(
        "raise RuntimeError('imported')",
        says="it needs hook API >=9,<10; this intarsia has 2.0",
        doctor="it needs hook API >=9,<10; this intarsia has 2.0",
        api=">=9,<10",
    ),
    "too-old": Fault(
        "raise RuntimeError('imported')",
        says="it needs hook API >=1.0,<2; this intarsia has 2.0",
        doctor="it needs hook API >=1.0,<2; this intarsia has 2.0",
        api=">=1.0,<2",
    ),
    "bad-manifest": Fault(
        manifest="schema = 1\nname = ",
        says="plugin.toml does not parse",
        doctor="plugin.toml does not parse",
    ),
    "old-entry": Fault(
        entry="faulty_old_entry.plugin:Missing",
        says="its entry point is 'faulty_old_entry.plugin:Missing', not 'package:plugin.toml'",
        doctor="its entry point is",
    ),
    "no-manifest": Fault(
        entry="faulty_no_manifest:absent.toml",
        says="absent.toml is not in the distribution",
        doctor="absent.toml is not in the distribution",
    ),
    "clash-a": Fault(kind="clash", code=2, says="is claimed by both", doctor="is claimed by both"),
    "clash-b": Fault(kind="clash", code=2, says="is claimed by both", doctor="is claimed by both"),
    "other-kind": Fault(
        hooks="@hookimpl\ndef register_target_kind():\n"
        "    return [TargetKind('surprise', Role.ACCELERATOR, Options)]\n",
        says="registers the kinds surprise, but its manifest declares other-kind",
        doctor="registers the kinds surprise",
    ),
    "noisy": Fault("print('x' * 1_000_000)", breaks=False,
        says=NO_CODE, doctor="prints 1000001 bytes"),
    "overclaims": Fault(
        hooks="@hookimpl\ndef relay_codegen(region, target):\n"
        "    raise UnsupportedError('no such kernel')\n",
        says="but cannot compile it",
    ),
    "patches": Fault(
        hooks="original = Support.yes\nSupport.yes = staticmethod(lambda: original())\n"
        "import builtins\nplain = sorted\n"
        "builtins.sorted = lambda *args, **named: plain(*args, **named)\n",
        breaks=False,
        says=NO_CODE,
        doctor="replaces builtins.sorted",
    ),
    "meddles": Fault(
        hooks="signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsys.path.append('/nowhere')\n"
        "warnings.simplefilter('error')\nimport numpy\nnumpy.seterr(all='raise')\n"
        "import locale\nlocale.setlocale(locale.LC_NUMERIC, 'C.UTF-8')\n"
        "import multiprocessing\nmultiprocessing.set_start_method('spawn', force=True)\n",
        breaks=False,
        says=NO_CODE,
        doctor="changes signal handlers",
    ),
    "thread": Fault(
        hooks="threading.Thread(target=time.sleep, args=(1e6,), name='idler').start()\n",
        breaks=False,
        says=NO_CODE,
        doctor="leaves the thread 'idler' running",
    ),
}  # fmt: skip


def write_wheel(folder: Path, name: str, fault: Fault, version: str = "1.0") -> Path:
    """Write the wheel of a faulty plugin, as an installer takes it."""
    package = f"faulty_{name.replace('-', '_')}"
    kind = fault.kind or name
    manifest = fault.manifest or (
        f'schema = 1\nname = "{name}"\napi = "{fault.api}"\nsummary = "faulty"\n'
        f'hooks = "{package}.plugin"\n\n[[target-kind]]\nname = "{kind}"\n'
        'role = "accelerator"\nsummary = "faulty"\n'
    )
    entry = fault.entry or f"{package}:plugin.toml"
    info = f"{package}-{version}.dist-info"
    files = {
        f"{package}/__init__.py": "",
        f"{package}/plugin.py": fault.at_import + _HEAD.format(kind=kind) + fault.hooks,
        f"{package}/plugin.toml": manifest,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: faulty-{name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[intarsia.plugins]\n{name} = {entry}\n",
    }
    path = folder / f"{package}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        record = f"{info}/RECORD"
        for where, text in files.items():
            wheel.writestr(where, text)
        lines = [f"{where},sha256={_digest(text)},{len(text)}" for where, text in files.items()]
        wheel.writestr(record, "\n".join([*lines, f"{record},,", ""]))
    return path


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
