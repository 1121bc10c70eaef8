# SPDX-License-Identifier: Apache-2.0
"""Tries a plugin in a child process before this process imports it.

What a plugin raises can be caught; ``os._exit``, a segmentation fault and an endless loop cannot.
So the first use of a plugin happens in a child with a time limit. That it went well is remembered
for these files of the plugin and this Python; that it went wrong is not: mending is seen at once.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

from msgspec import Struct

from intarsia_runtime.errors import PluginError, ResourceError, UsageError

from .discovery import Found
from .fingerprint import fingerprint
from .time_limit import time_limit_of

SKIP = "INTARSIA_NO_PROBE"
"""Environment variable: set to 1, plugins are imported without a trial; 0 is as good as unset."""

CACHE = "INTARSIA_CACHE_DIR"
"""Environment variable: the folder for what is remembered, instead of the user's cache folder."""

_ANSWER_BYTES = 1 << 16

_CHILD = (
    "import json, sys; job = json.load(sys.stdin); sys.path[:] = job['path']; "
    "from intarsia.host.trial_child import run; run(job)"
)


class Trial(Struct, frozen=True):
    """What became of a plugin in a child process.

    Attributes:
        fatal: How it took the process down, or that it did not end; empty if it did neither.
        stage: What it was doing last: ``import``, ``probe`` or ``done``.
        seconds: How long its import took.
        noise: Bytes that it wrote on stdout and stderr.
        changes: What it changed that belongs to the process, in words.
        error: What it raised; empty if nothing.
        remedy: What to do about that.
        probes: For each of its target kinds with the hook ``probe``, the answer or an ``error``.
    """

    fatal: str = ""
    stage: str = ""
    seconds: float = 0.0
    noise: int = 0
    changes: tuple[str, ...] = ()
    error: str = ""
    remedy: str = ""
    probes: Mapping[str, Mapping[str, object]] | None = None


def skips_trials(env: Mapping[str, str]) -> bool:
    """Whether plugins are to be imported without a trial.

    Raises:
        UsageError: The setting is neither 0 nor 1.
    """
    text = env.get(SKIP, "").strip()
    if text not in ("", "0", "1"):
        raise UsageError(f"{SKIP} is {text[:40]!r}, neither 0 nor 1", hint=f"{SKIP}=1")
    return text == "1"


def survive(plugin: Found, env: Mapping[str, str]) -> None:
    """See that using a plugin does not end or hold up the process; quick if that is known.

    Raises:
        PluginError: It does; the message says how.
    """
    if skips_trials(env) or plugin.hooks is not None or not sys.executable:
        return
    key = fingerprint(plugin)
    record = _record(env, key)
    if record is not None and _remembers(record, key):
        return
    trial = try_plugin(plugin, time_limit_of(env))
    if trial.fatal:
        raise PluginError(
            f"{plugin.label} {trial.fatal} when it is imported",
            hint=f"report it to {plugin.distribution}, or go on without: --no-plugin {plugin.name}",
        )
    if record is not None and not trial.error:
        _remember(record, key)


def try_plugin(plugin: Found, seconds: float, *, probe: bool = False) -> Trial:
    """Activate a plugin in a child process, and ask its ``probe`` hook too if wanted.

    Args:
        plugin: An installed plugin that is neither blocked nor incompatible.
        seconds: When the child is ended, with all processes that it started.
        probe: Whether to ask the hook.

    Raises:
        ResourceError: There is no place for the child's answer, or no process left.
    """
    try:
        return _try_plugin(plugin, seconds, probe)
    except OSError as error:
        raise ResourceError(
            f"{plugin.label} cannot be tried in a process of its own: {error.strerror or error}",
            hint="free some space or processes; TMPDIR names the folder for temporary files",
        ) from None


def _try_plugin(plugin: Found, seconds: float, probe: bool) -> Trial:
    """Do so; raises OSError."""
    import secrets
    import subprocess  # 8 ms that a remembered plugin does not cost

    from intarsia_runtime.artifact.abandoned import temporary_folder

    with temporary_folder("trial") as folder:
        answer, printed = folder / "answer.json", folder / "stdout"
        answer.write_bytes(bytes(_ANSWER_BYTES))  # a full disk is not the plugin's fault
        answer.unlink()
        token = secrets.token_hex(8)
        job = {
            "path": [os.path.abspath(part) for part in sys.path],
            "name": plugin.name,
            "distribution": plugin.distribution,
            "answer": str(answer),
            "token": token,
            "probe": probe,
        }
        with printed.open("wb") as stdout:
            child = subprocess.Popen(
                [sys.executable, "-c", _CHILD],
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            late = False
            try:
                child.communicate(json.dumps(job).encode(), timeout=seconds)
            except subprocess.TimeoutExpired:
                late = True
            finally:
                _end(child)
        return _judge(answer, token, printed.stat().st_size, seconds if late else None, child)


def _end(child: object) -> None:
    """End the child and whatever it started."""
    import signal
    import subprocess

    process = cast("subprocess.Popen[bytes]", child)
    with suppress(OSError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def _judge(answer: Path, token: str, noise: int, limit: float | None, child: object) -> Trial:
    """Read what the child left; without its word that it is done, it came to a bad end."""
    import subprocess

    code = cast("subprocess.Popen[bytes]", child).returncode
    try:
        value = json.loads(answer.read_bytes())
    except (OSError, ValueError):
        value = {}
    found = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    if found.get("token") != token:
        found = {}
    stage = str(found.get("stage", "import"))
    fatal = ""
    if stage != "done":
        fatal = f"does not end within {limit:g} s" if limit is not None else _ending(code)
    return Trial(
        fatal=fatal,
        stage=stage,
        seconds=float(str(found.get("seconds", 0.0))),
        noise=noise,
        changes=tuple(cast("list[str]", found.get("changes", []))),
        error=str(found.get("error", "")),
        remedy=str(found.get("remedy", "")),
        probes=cast("Mapping[str, Mapping[str, object]]", found.get("probes", {})),
    )


def _ending(code: int) -> str:
    import signal

    if code >= 0:
        return f"ends the process (exit code {code})"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    return f"kills the process (signal {name})"


def cache_folder(env: Mapping[str, str]) -> Path | None:
    """The folder for what is remembered; ``None`` if there is no home folder to have it."""
    if env.get(CACHE):
        return Path(env[CACHE])
    from platformdirs import user_cache_path

    try:
        return user_cache_path("intarsia", appauthor=False)
    except (OSError, RuntimeError):  # no home
        return None


def _record(env: Mapping[str, str], key: str) -> Path | None:
    """The file that remembers a success; ``None`` if there is no place for one."""
    from hashlib import sha256

    name = sha256(key.encode(errors="surrogateescape")).hexdigest()[:32]
    folder = cache_folder(env)
    return None if folder is None else folder / "plugins" / f"{name}.txt"


def _remembers(record: Path, key: str) -> bool:
    try:
        return record.read_bytes() == key.encode(errors="surrogateescape")
    except OSError:
        return False


def _remember(record: Path, key: str) -> None:
    """Write beside and rename, so that nobody reads half of it; no cache is no error."""
    temporary = record.with_suffix(f".{os.getpid()}")
    try:
        record.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary.write_bytes(key.encode(errors="surrogateescape"))
        temporary.replace(record)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
