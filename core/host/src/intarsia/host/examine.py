# SPDX-License-Identifier: Apache-2.0
"""Looks at every plugin as ``doctor`` shows it: used in a child process, and asked for its SDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from .discovery import Found, State
from .trial import Trial, try_plugin

_AT_ONCE = 4


class PluginFinding(Struct, frozen=True):
    """A plugin and what is the matter with it.

    Attributes:
        name: The plugin.
        distribution: Where it comes from.
        version: Of the distribution.
        api: Range of hook API versions it works with.
        fits: Whether this host's is among them; ``None`` if the manifest cannot be read.
        kinds: Its target kinds.
        state: As ``plugins list`` shows it; ``broken`` also if the trial went wrong.
        reason: Why it cannot be used; empty if it can.
        remedy: What to do about that.
        seconds: How long its import took.
        changes: What its import changed that belongs to the process, in words.
        noise: Bytes it wrote on stdout and stderr.
        probes: Answer of its ``probe`` hook for each kind.
    """

    name: str
    distribution: str
    version: str
    api: str
    fits: bool | None
    kinds: tuple[str, ...]
    state: str
    reason: str
    remedy: str
    seconds: float = 0.0
    changes: tuple[str, ...] = ()
    noise: int = 0
    probes: Mapping[str, Mapping[str, object]] = field(
        default_factory=dict[str, "Mapping[str, object]"]
    )

    @property
    def broken(self) -> bool:
        """Whether someone who asks for it gets an error; a plugin that is blocked is not broken."""
        return bool(self.reason) and self.state != State.BLOCKED.value

    def to_json(self) -> dict[str, object]:
        """Return the row as the command line prints it."""
        return {
            "name": self.name,
            "distribution": self.distribution,
            "version": self.version,
            "api": self.api,
            "api_fits": self.fits,
            "kinds": list(self.kinds),
            "state": self.state,
            "reason": self.reason,
            "remedy": self.remedy,
            "import_seconds": round(self.seconds, 4),
            "changes": list(self.changes),
            "output_bytes": self.noise,
            "probes": {kind: dict(answer) for kind, answer in self.probes.items()},
        }


def examine(plugins: Sequence[Found], seconds: float) -> tuple[PluginFinding, ...]:
    """Use each usable plugin in a child process of its own, some at a time.

    Args:
        plugins: Installed plugins in any state.
        seconds: What each child may take.
    """

    def look(plugin: Found) -> PluginFinding:
        usable = plugin.state in (State.DISCOVERED, State.LOADED) and plugin.hooks is None
        return _finding(plugin, try_plugin(plugin, seconds, probe=True) if usable else Trial())

    from concurrent.futures import ThreadPoolExecutor  # commands that only name findings do without

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return tuple(pool.map(look, plugins))


def _finding(plugin: Found, trial: Trial) -> PluginFinding:
    manifest = plugin.manifest
    state, reason, remedy = plugin.state.value, plugin.reason, plugin.remedy
    report = f"report it to {plugin.distribution}, or set INTARSIA_DISABLE_PLUGINS={plugin.name}"
    kinds = tuple(row.name for row in manifest.kinds) if manifest else ()
    probes = dict(trial.probes or {})
    if trial.fatal and trial.stage == "probe":  # compiling does not ask that hook
        probes = {kind: {"error": f"the plugin {trial.fatal}"} for kind in kinds}
    elif trial.fatal:
        reason = f"it {trial.fatal} when it is imported"
        state, remedy = State.BROKEN.value, report
    elif trial.error:
        state, reason, remedy = State.BROKEN.value, trial.error, trial.remedy or report
    return PluginFinding(
        name=plugin.name,
        distribution=plugin.distribution,
        version=plugin.version,
        api=manifest.api if manifest else "",
        fits=plugin.state is not State.INCOMPATIBLE if manifest else None,
        kinds=kinds,
        state=state,
        reason=reason,
        remedy=remedy,
        seconds=trial.seconds,
        changes=trial.changes,
        noise=trial.noise,
        probes=probes,
    )
