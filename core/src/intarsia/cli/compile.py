# SPDX-License-Identifier: Apache-2.0
"""``intarsia compile``: a model and a target in, an artifact out."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from ..errors import UsageError
from ..target.kinds import GIVEN_NAME
from .composed import ComposedCommand
from .idle import say_idle
from .model_options import BuildSettings, build_options, keep_model
from .output import echo, emit_json, progress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..artifact.deferred import Weights
    from ..artifact.write import Aside
    from ..build.artifact import Artifact
    from ..build.cache import KeptArtifact, Save


@click.command("compile", cls=ComposedCommand)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(), help="Where to write it.")
@click.option(
    "--output-format",
    type=click.Choice(["artifact", "mlf", "folder"]),
    help="What to write; sources can be a tar (mlf) or a folder. By the name if left away: "
    "model.tar, model/.",
)
@build_options()
@click.option("--sign", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="KEY",
              help="Sign the artifact with a private key of OpenSSH: OUTPUT.sig.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    model: Path,
    output: str,
    output_format: str | None,
    settings: BuildSettings,
    sign: Path | None,
    as_json: bool,
) -> None:
    """Compile MODEL, an ONNX file or a .pt2, into an artifact that runs without the compiler.

    An artifact is native code, as a program is; --sign says who made it.
    """
    from ..artifact.archive import is_artifact
    from ..artifact.signing import sign_artifact
    from ..artifact.write import ArtifactWriter  # help does without the compiler
    from ..build.cache import KeptArtifact
    from ..partition.report import bytes_text, float_text

    path = Path(output)
    keep_model(model, path)
    with closing(ArtifactWriter(path)) as writer:

        def save(built: Artifact, aside: Aside | None) -> None:
            built.save(output, output_format=output_format, aside=aside, writer=writer)

        artifact = compile_model(model, settings, save, writer.begin)
    if isinstance(artifact, KeptArtifact):
        artifact.save(output, output_format=output_format)
    if sign is not None:
        if not is_artifact(path):
            raise UsageError("--sign is for artifacts", hint="leave away --output-format")
        sign_artifact(path, sign)
    say_idle(artifact.passport)
    size = _bytes_of(path)
    if as_json:
        passport = artifact.passport
        emit_json(
            {
                "artifact": str(path),
                "bytes": size,
                "target": passport.target,
                "executor": dict(passport.executor),
                "runtime": dict(passport.runtime),
                "placement": dict(passport.placement),
            }
        )
        return
    echo(str(artifact.placement))
    text = float_text(cast("Sequence[str]", artifact.passport.placement.get("in_float", ())))
    if text:
        echo(f"{text} ('intarsia explain' names them)")
    echo(f"wrote {path} ({bytes_text(size)})")


def _bytes_of(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def compile_model(
    model: Path,
    settings: BuildSettings,
    save: Save | None = None,
    weights_known: Callable[[Weights], object] | None = None,
) -> Artifact | KeptArtifact:
    """Build an artifact as the options say, or fetch it from the cache; progress on a terminal.

    Args:
        model: What is compiled.
        settings: The options.
        save: Writes what was built now, and not fetched, where the user wants it.
        weights_known: Called with the weights of what is built before there is code.
    """
    from .cached import Keyed, Sources, build_or_fetch, cache_of  # help does without the compiler

    cache = cache_of(settings)
    sources = None if cache is None else Sources(model)
    from ..build.build import STAGES, build  # beside the reading of the sources

    target = settings.target.read(settings.host)
    if settings.target.origin.name != GIVEN_NAME:
        echo(f"target: {settings.target.text} (from {settings.target.origin.name})", err=True)

    def make() -> Artifact:
        with progress(f"compiling {model.name}", len(STAGES)) as advance:
            return run(advance)

    def run(advance: Callable[[int], None]) -> Artifact:
        def stage(_: str) -> None:
            advance(1)

        return build(
            model,
            target=target,
            executor=settings.executor if settings.is_executor_given else None,
            runtime=settings.runtime,
            mod_name=model.stem,
            host=settings.host,
            shapes=settings.shapes,
            rules=settings.rules,
            plan=settings.plan,
            require_offload=settings.require_offload,
            max_regions=settings.max_regions,
            dump_ir=settings.dump_ir,
            measure=settings.measure,
            allow_overflow=settings.allow_overflow,
            records=settings.records,
            time_limit=settings.time_limit,
            memory_limit=settings.memory_limit,
            mapped=True,
            progress=stage,
            weights_known=weights_known,
        )

    keyed = Keyed(model, target, settings)
    return build_or_fetch(keyed, make, save, cache=cache, sources=sources)
