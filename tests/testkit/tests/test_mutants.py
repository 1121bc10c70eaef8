# SPDX-License-Identifier: Apache-2.0
"""Each bad plugin is caught, by the check that the table names; the good one passes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Check = Callable[..., dict[str, Any]]
HOOKS, SUPPORT, CODE = "plugin.py", "support.py", "codegen.py"
LOADER, KERNELS, TARGET = "loader.py", "kernels.py", "target.py"
MANIFEST, METADATA = "plugin.toml", "METADATA"


@dataclass(frozen=True)
class Mutant:
    """An edit and what it must lead to.

    Attributes:
        name: What the plugin does wrong.
        file: File of the package, or of its metadata.
        old: Text that is there once; empty deletes the file.
        new: What stands there instead.
        check: The check that must fail.
        says: What its message must hold.
    """

    name: str
    file: str
    old: str
    new: str
    check: str
    says: str = ""


_IMPORT = "from .support import support_table"
_RUN = "        results: list[np.ndarray] = []\n"
_MADE = "    program = region_program(region)\n"
_STEPS = "program.to_json()"
_RANK = "    rank = max("

MUTANTS = (
    Mutant("lies about support", SUPPORT, 'Row("nn.relu", op("nn.relu"))', 'Row("exp", op("exp"))',
           "numeric_operator[exp]", "exp"),
    Mutant("accepts every element type", KERNELS, "return a + b", "return a * 1.0 + b * 1.0 + 1e-3",
           "numeric_operator[add]", "elements"),
    Mutant("computes in a narrower type", KERNELS, "return np.maximum(x, 0)",
           "return np.maximum(x, 0).astype(np.float16)", "numeric_operator[nn.relu]", "elements"),
    Mutant("sums along the wrong axis", KERNELS, 'shifted.sum(axis=attrs["axis"], keepdims=True)',
           "shifted.sum(axis=-1, keepdims=True)", "numeric_operator[nn.softmax]", "elements"),
    Mutant("swaps the operands of a fused pattern", KERNELS, "return a * b + c",
           "return a * c + b", "numeric_fused_patterns", "multiply_add"),
    Mutant("takes nothing", SUPPORT, "    return Support.yes()",
           '    return Support.no("unsupported-op", "not today")', "numeric_something_is_taken",
           "declined"),
    Mutant("writes to its input", LOADER, _RUN, _RUN + "        arrays[0][...] = 0.5\n",
           "isolation_inputs_are_not_changed", "the input '"),
    Mutant("writes to a weight", CODE, _MADE,
           _MADE + "    for data in program.constants.values():\n"
           "        data.flags.writeable = True\n        data[...] = 0\n",
           "isolation_inputs_are_not_changed", "weight"),
    Mutant("prints", HOOKS, "    return compile_region(region)",
           '    print("compiling")\n    return compile_region(region)',
           "isolation_nothing_is_printed", "compiling"),
    Mutant("leaves a file", HOOKS, "    return compile_region(region)",
           '    open("dump.json", "w").close()\n    return compile_region(region)',
           "isolation_no_file_is_left", "dump.json"),
    Mutant("changes the working directory", LOADER, _RUN,
           _RUN + '        __import__("os").chdir("/")\n',
           "isolation_process_state_is_kept", "working directory"),
    Mutant("changes sys.path", HOOKS, _IMPORT, _IMPORT + '\n__import__("sys").path.append("/x")',
           "isolation_process_state_is_kept", "sys.path"),
    Mutant("silences warnings", LOADER, _RUN,
           _RUN + '        __import__("warnings").simplefilter("ignore")\n',
           "isolation_process_state_is_kept", "warning filters"),
    Mutant("changes np.errstate", LOADER, '        with np.errstate(all="ignore"):',
           '        np.seterr(all="ignore")\n        if True:', "isolation_process_state_is_kept",
           "np.errstate"),
    Mutant("catches signals", LOADER, _RUN,
           _RUN + "        import signal\n        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n",
           "isolation_process_state_is_kept", "signal handlers"),
    Mutant("patches NumPy", HOOKS, _IMPORT,
           _IMPORT + "\nimport numpy\nnumpy.matmul = numpy.dot", "isolation_nothing_is_patched",
           "numpy.matmul"),
    Mutant("patches the host", HOOKS, _IMPORT,
           _IMPORT + "\nimport intarsia_ir.passes.prepare as p\np.PREPARE = None",
           "isolation_nothing_is_patched", "PREPARE"),
    Mutant("kills the process", HOOKS, "    return compile_region(region)",
           '    __import__("os")._exit(3)', "isolation_a_model_runs", "exit code 3"),
    Mutant("orders by hash", CODE, _STEPS,
           '{"names": list({"alpha", "beta", "gamma", "delta"}), **program.to_json()}',
           "determinism_two_processes_give_the_same_bytes", "differs"),
    Mutant("keeps state between regions", CODE, _STEPS,
           '{"serial": SEEN.append(1) or len(SEEN), **program.to_json()}',
           "determinism_units_do_not_depend_on_what_was_compiled_before", "differs"),
    Mutant("keeps state between runs", LOADER, "        for (kind, key), output in",
           "        constants[''] = results[0] + constants.get('', 0)\n"
           "        results[-1] = results[-1] + 0 * results[-1] + constants[''].ravel()[0] * 1e-3\n"
           "        for (kind, key), output in",
           "determinism_runs_do_not_depend_on_runs_before", "third run"),
    Mutant("ignores an option", HOOKS, "count < least", "count < 1", "contract_options_take_effect",
           "-min-calls"),
    Mutant("is slow to import", HOOKS, _IMPORT, _IMPORT + "\nimport time\ntime.sleep(1.3)",
           "contract_first_use_is_cheap", "takes"),
    Mutant("imports an SDK at import", HOOKS, _IMPORT, _IMPORT + "\nimport hypothesis",
           "contract_first_use_is_cheap", "hypothesis"),
    Mutant("misspells a hook", HOOKS, "def partition(", "def partion(",
           "contract_code_keeps_the_manifest", "partion"),
    Mutant("forgets to mark a hook", HOOKS, "@hookimpl\ndef partition(", "def partition(",
           "contract_hooks_are_hooks", "not marked"),
    Mutant("asks for an argument that does not exist", HOOKS,
           "def annotate(target: Target[Options])",
           "def annotate(target: Target[Options], module: object)",
           "contract_code_keeps_the_manifest", "module"),
    Mutant("lacks a required hook", HOOKS, "@hookimpl\ndef relay_codegen(", "def generate(",
           "contract_hooks_are_hooks", "relay_codegen"),
    Mutant("returns garbage", HOOKS, "    return support_table(",
           "    return str(support_table)\n    return support_table(",
           "contract_every_no_has_its_reason", "annotate() with str"),
    Mutant("raises in a predicate", SUPPORT, _RANK, f"    {{}}[match]\n{_RANK}",
           "contract_every_no_has_its_reason", "raised"),
    Mutant("gives no reason", SUPPORT, '"takes {taken} only, not {type}"', '""',
           "contract_every_no_has_its_reason", "no reason"),
    Mutant("says what the host should say", SUPPORT, "    return Support.yes()",
           '    return Support.no("too-small", "it is small")',
           "contract_every_no_has_its_reason", "too-small"),
    Mutant("answers a bool", SUPPORT, "    return Support.yes()", "    return True",
           "contract_every_no_has_its_reason", "with bool, not Support"),
    Mutant("names an operator that does not exist", SUPPORT, 'op("nn.relu")', 'op("nn.reloo")',
           "contract_rows_name_operators", "nn.reloo"),
    Mutant("adds calls to a region", HOOKS, "    return drop_regions(regions, objection",
           "    from dataclasses import replace\n"
           "    return [replace(r, function=regions[-1].function) for r in regions]\n"
           "    return drop_regions(regions, objection", "partition_hook_only_drops", "adds"),
    Mutant("returns a region that is not convex", HOOKS,
           "    return drop_regions(regions, objection",
           "    from dataclasses import replace\n"
           "    both = {k: v for r in regions for k, v in r.origins.items()}\n"
           "    return [replace(regions[0], origins={**both, regions[0].function: regions})]\n"
           "    return drop_regions(regions, objection",
           "partition_random_graphs_are_cut_into_convex_regions", "added calls"),
    Mutant("claims another's kind", MANIFEST, 'name = "sample"\nrole', 'name = "llvm"\nrole',
           "contract_names_have_one_owner", "llvm"),
    Mutant("registers another kind than it declares", TARGET, 'name="sample"', 'name="simple"',
           "contract_code_keeps_the_manifest", "simple"),
    Mutant("wants another hook API", MANIFEST, ">=2.0,<3", ">=3.0,<4", "contract_manifest_is_read",
           "incompatible"),
    Mutant("promises every hook API", MANIFEST, ">=2.0,<3", ">=1.0", "packaging_api_range_fits",
           "3.0"),
    Mutant("lacks its manifest", MANIFEST, "", "", "contract_manifest_is_read", "broken"),
    Mutant("does not depend on the host", METADATA, "Requires-Dist: intarsia<1,>=0.1\n", "",
           "packaging_metadata_is_complete", "depend on intarsia"),
    Mutant("asks for a loader it does not have", CODE, 'loader="sample"', 'loader="other"',
           "packaging_entry_points_lead_somewhere", "'other'"),
    Mutant("imports the compiler to run", LOADER, "from .kernels",
           "from . import plugin\nfrom .kernels",
           "packaging_running_needs_no_compiler", "plugin"),
)  # fmt: skip


def mutated(mutant: Mutant, site: Path, folder: Path) -> Path:
    """A copy of the installed sample with the edit."""
    copy = folder / "site"
    shutil.copytree(site, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (path,) = copy.rglob(mutant.file)
    if not mutant.old:
        path.unlink()
        return copy
    text = path.read_text()
    assert text.count(mutant.old) == 1, f"{mutant.old!r} stands {text.count(mutant.old)} times"
    head = "SEEN: list[int] = []\n" if "SEEN" in mutant.new else ""
    future = "from __future__ import annotations\n"
    text = text.replace(mutant.old, mutant.new)
    path.write_text(text.replace(future, future + head, 1) if head else text)
    return copy


@pytest.mark.parametrize("mutant", MUTANTS, ids=[m.name.replace(" ", "-") for m in MUTANTS])
def test_each_mutant_is_caught(
    mutant: Mutant, sample: Path, run_kit: Check, tmp_path: Path
) -> None:
    site = mutated(mutant, sample, tmp_path)
    words = re.findall(r"[\w.]+", mutant.check)
    result = run_kit("sample", "-k", " and ".join(words), site=site)
    rows = {row["check"]: row for row in result["checks"]}
    assert rows[mutant.check]["outcome"] == "failed", rows[mutant.check]
    assert mutant.says in rows[mutant.check]["detail"]
    assert result["tier"] < rows[mutant.check]["tier"]


def test_mutants_are_many_and_reach_every_group() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20
    groups = {mutant.check.partition("_")[0] for mutant in MUTANTS}
    assert groups >= {"contract", "numeric", "isolation", "determinism", "packaging", "partition"}


@pytest.mark.slow
def test_the_sample_passes_everything(sample: Path, run_kit: Check) -> None:
    result = run_kit("sample", site=sample)
    assert [row for row in result["checks"] if row["outcome"] in ("failed", "exempt")] == []
    assert result["tier"] == 3
    assert result["plugin"] == "sample"
    assert result["distribution"] == "intarsia-sample 0.1.0"
    declined = [row for row in result["checks"] if row["outcome"] == "declined"]
    assert all(row["check"].startswith("numeric_operator[") for row in declined)
    assert all(row["detail"] for row in declined)
    assert result["counts"]["declined"] == len(declined) > 50
