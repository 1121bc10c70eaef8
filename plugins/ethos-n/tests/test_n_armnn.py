# SPDX-License-Identifier: Apache-2.0
"""Reference results against Arm NN's reference backend, where it is installed."""

from __future__ import annotations

import numpy as np

from intarsia_ethos_n.codegen import emit
from intarsia_ethos_n.execute import execute
from intarsia_ethos_n.network import Network
from intarsia_testkit.quantized_expressions import inputs_for

from .armnn import KINDS, ArmNN
from .cases import CASES
from .quantized import region_of


def comparable(network: Network) -> bool:
    """Whether Arm NN's Python face has all its operations, and tensors have one scale each.

    Sums with constants are left out: they would be layers of their own.
    """
    known = all(
        operation.kind in KINDS
        and (len(operation.inputs) == 3 or not set(operation.inputs) & set(network.constants))
        for operation in network.operations
    )
    return known and all(len(t.quantization.scales) == 1 for t in network.tensors.values())


def test_arm_nn_agrees() -> None:
    """In one test, because a process may have one runtime."""
    arm, compared = ArmNN(), 0
    for make in CASES:
        region = region_of(make())
        network, constants = emit(region)
        if not comparable(network):
            continue
        inputs = inputs_for(region.function)
        on_device = [
            (data.transpose(0, 2, 3, 1) if border.image else data).reshape(
                network.tensors[border.name].shape
            )
            for border, data in zip(network.inputs, inputs, strict=True)
        ]
        (mine,) = execute(network, constants, inputs)
        theirs = arm.run(network, constants, on_device)
        (border,) = network.outputs
        moved = theirs.reshape(network.tensors[border.name].shape)
        moved = moved.transpose(0, 3, 1, 2) if border.image else moved
        away = np.abs(mine.astype(int) - moved.reshape(mine.shape).astype(int))
        assert away.max() <= 1, make.__name__
        assert np.mean(away != 0) < 0.02, make.__name__
        compared += 1
    assert compared >= 8
