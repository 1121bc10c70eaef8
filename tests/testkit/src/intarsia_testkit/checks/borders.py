# SPDX-License-Identifier: Apache-2.0
"""Tier 3: tensors cross the borders of regions in every form a model gives them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from intarsia.driver.build import build
from intarsia_ir.graph.expr import Expr, Function, Var, make_tuple
from intarsia_ir.graph.module import IRModule
from intarsia_ir.partition.cost import Plan
from intarsia_runtime.load import load

from ..blocks import Block, Blocks, choose_blocks
from ..marks import check, decline, refuse
from ..running import compile_module, load_artifact, not_run, run_artifact, wrong_results
from ..subject import Subject


class BorderChecks:
    """Shapes of regions that graphs of real models have."""

    @check(tier=3)
    def test_borders_one_tensor_enters_twice(self, subject: Subject) -> None:
        """f(x, x), and x into two regions."""
        blocks, host = _blocks(subject), subject.host()
        x = Var("x", blocks.type)
        first, *_ = blocks.taken
        outputs: list[Expr] = [first.apply(x, x, at="a")]
        two = [block for block in blocks.taken if block.arity == 2]
        outputs += [block.apply(x, x, at=f"b{i}") for i, block in enumerate(two[:3])]
        _compare(subject, host, _module((x,), outputs), blocks)

    @check(tier=3)
    def test_borders_a_result_is_output_and_input(self, subject: Subject) -> None:
        """A value leaves its region and is used inside too."""
        blocks, host = _blocks(subject), subject.host()
        x = Var("x", blocks.type)
        chain: list[Expr] = [x]
        for number in range(5):
            block = blocks.taken[number % len(blocks.taken)]
            chain.append(block.apply(chain[-1], chain[0], at=f"n{number}"))
        _compare(subject, host, _module((x,), chain[1:]), blocks)

    @check(tier=3)
    def test_borders_regions_alternate_with_the_rest(self, subject: Subject) -> None:
        """Region, fallback, region, fallback... and back again."""
        blocks, host = _blocks(subject), subject.host()
        if not blocks.refused:
            decline("it takes everything, so nothing alternates")
        x = Var("x", blocks.type)
        value: Expr = x
        for number in range(6):
            block = _calm(blocks.refused) if number % 2 else _calm(blocks.taken)
            value = block.apply(value, x, at=f"n{number}")
        _compare(subject, host, _module((x,), [value]), blocks)

    @check(tier=3)
    def test_borders_inputs_may_be_views(self, subject: Subject) -> None:
        """Strided, reversed, read-only and misaligned arrays give the same results."""
        blocks, host = _blocks(subject), subject.host()
        x = Var("x", blocks.type)
        module = _module((x,), [blocks.taken[0].apply(x, x, at="a")])
        artifact = compile_module(subject, module, host=host)
        plain = blocks.random(1)
        wanted = run_artifact(subject, artifact, {"x": plain})[0].tobytes()
        problems = [
            f"a {name} input gives another result"
            for name, view in _views(plain).items()
            if run_artifact(subject, artifact, {"x": view})[0].tobytes() != wanted
        ]
        refuse(problems)

    @check(tier=3)
    def test_borders_an_artifact_runs_from_its_file(
        self, subject: Subject, tmp_path: object
    ) -> None:
        """Saved, loaded twice and run in turn, it gives the results of the one in memory."""
        not_run(subject)  # it would compile everything once more, for nothing
        blocks, host = _blocks(subject), subject.host()
        x, y = Var("x", blocks.type), Var("y", blocks.type)
        module = _module((x, y), [b.apply(x, y, at=f"n{i}") for i, b in enumerate(blocks.taken)])
        artifact = compile_module(subject, module, host=host)
        inputs = {"x": blocks.random(1), "y": blocks.random(2)}
        wanted = run_artifact(subject, artifact, inputs, threads=1)
        path = artifact.save(f"{tmp_path}/model.intarsia")
        loaded = [load(path, threads=1), load(path, threads=1)]
        try:
            for _ in range(2):
                for executable in loaded:
                    found = list(executable.run(dict(inputs)).values())
                    same = all(
                        np.asarray(a).tobytes() == b.tobytes()
                        for a, b in zip(found, wanted, strict=True)
                    )
                    refuse([] if same else ["the loaded file gives other results"])
        finally:
            for executable in loaded:
                executable.close()

    @check(tier=3)
    def test_borders_both_executors_agree(self, subject: Subject) -> None:
        """The native plan and the plan walked in Python give the same bits."""
        blocks, host = _blocks(subject), subject.host()
        x, y = Var("x", blocks.type), Var("y", blocks.type)
        value: Expr = x
        for number, block in enumerate((*blocks.taken[:4], *blocks.refused[:2])):
            value = block.apply(value, y, at=f"n{number}")
        artifact = build(
            _module((x, y), [value]), subject.composite(host), host=host, plan=Plan.GREEDY
        )
        inputs = {"x": blocks.random(1), "y": blocks.random(2)}
        found: list[list[bytes]] = []
        for name in ("aot", "graph"):
            executable = load_artifact(subject, artifact, threads=1, executor=name)
            results = executable.run(dict(inputs)).values()
            found.append([np.asarray(value).tobytes() for value in results])
            executable.close()
        refuse([] if found[0] == found[1] else ["executors aot and graph give different results"])


def _blocks(subject: Subject) -> Blocks:
    blocks = choose_blocks(subject.table(subject.host()) if subject.is_accelerator else None)
    if not blocks.taken:
        decline("it takes no operator that keeps a tensor's type, of which the graphs are made")
    return blocks


def _calm(blocks: tuple[Block, ...]) -> Block:
    """A block whose results stay small."""
    names = ("nn.relu", "sigmoid", "tanh", "negative", "abs", "maximum", "minimum", "flip")
    return next((b for name in names for b in blocks if b.name == name), blocks[0])


def _module(params: tuple[Var, ...], outputs: list[Expr]) -> IRModule:
    body = outputs[0] if len(outputs) == 1 else make_tuple(outputs)
    return IRModule.from_function(Function(params, body))


def _compare(subject: Subject, host: object, module: IRModule, blocks: Blocks) -> None:
    inputs = {p.name: blocks.random(i) for i, p in enumerate(module.main.params)}
    artifact = compile_module(subject, module, host=host)  # type: ignore[arg-type]
    found = run_artifact(subject, artifact, inputs)
    message = wrong_results(module, inputs, found)
    refuse([message] if message else [])


def _views(plain: np.ndarray) -> Mapping[str, np.ndarray]:
    wide = np.zeros((*plain.shape[:-1], 2 * plain.shape[-1]), plain.dtype)
    wide[..., ::2] = plain
    frozen = plain.copy()
    frozen.flags.writeable = False
    memory = np.zeros(plain.nbytes + plain.itemsize, np.uint8)[plain.itemsize :]
    shifted = memory.view(plain.dtype).reshape(plain.shape)
    shifted[...] = plain
    turned = np.ascontiguousarray(plain[..., ::-1])[..., ::-1]
    return {
        "strided": wide[..., ::2],
        "read-only": frozen,
        "misaligned": shifted,
        "reversed": turned,
        "Fortran-ordered": np.asfortranarray(plain),
    }
