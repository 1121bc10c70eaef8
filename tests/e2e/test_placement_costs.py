# SPDX-License-Identifier: Apache-2.0
"""Real models placed by cost never cost more than greedy, by the same model of cost."""

from __future__ import annotations

import pytest

from intarsia.driver.importing import import_model
from intarsia.driver.stages import partition_module, read_target
from intarsia.host.host import Host
from intarsia_ir.partition.cost import Plan
from intarsia_ir.passes.base import Remarks
from intarsia_ir.passes.prepare import PREPARE

from .real_models import MODELS, RealModel


@pytest.mark.parametrize(
    "target", ["dnnl, llvm", "tensorrt, dnnl, llvm", "arm_acl, llvm -mtriple=aarch64-linux-gnu"]
)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_placing_by_cost_is_never_dearer_than_greedy(model: RealModel, target: str) -> None:
    host = Host()
    imported = import_model(model.path, model.shapes)
    module = PREPARE.run(imported, remarks=Remarks())
    parts = read_target(host, target, None)
    placement = partition_module(host, module, parts, Plan.COST).placement
    assert placement.cost is not None
    assert placement.cost.chosen <= placement.cost.greedy
    assert placement.cost.chosen <= placement.cost.fallback
    assert partition_module(host, module, parts, Plan.GREEDY).placement.cost is None
