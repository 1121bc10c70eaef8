# SPDX-License-Identifier: Apache-2.0
"""A network of the device as one of Arm NN's, computed by its reference backend for CPUs.

``pyarmnn`` is in no package index of Python; Debian has it, with the backend in a package of its
own. ``ARMNN_BACKENDS`` names the folder of the backend, if it is not where Debian puts it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from intarsia_ethos_n.network import Network, NetworkOperation

KINDS = ("addition", "convolution", "depthwise", "fully-connected", "multiplication")
"""Operations that are translated."""

_BACKENDS = "/usr/lib/x86_64-linux-gnu/armnn22"


class ArmNN:
    """The runtime: a process may have one, because backends are registered once."""

    def __init__(self) -> None:
        self.ann: Any = pytest.importorskip(
            "pyarmnn", reason="no pyarmnn: Debian's python3-pyarmnn and libarmnn-cpuref-backend22"
        )
        options = self.ann.CreationOptions()
        options.m_DynamicBackendsPath = os.environ.get("ARMNN_BACKENDS", _BACKENDS)
        self.runtime = self.ann.IRuntime(options)

    def run(
        self, network: Network, constants: Mapping[str, np.ndarray], inputs: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Return the one result of a network, in the device's order of axes."""
        ann, made = self.ann, self.ann.INetwork()
        slots: dict[str, Any] = {}
        for place, border in enumerate(network.inputs):
            slots[border.name] = made.AddInputLayer(place).GetOutputSlot(0)
            slots[border.name].SetTensorInfo(self._info(network, border.name))
        for operation in network.operations:
            layer = self._layer(made, network, operation, constants)
            for place, name in enumerate(n for n in operation.inputs if n not in constants):
                slots[name].Connect(layer.GetInputSlot(place))
            slots[operation.output] = layer.GetOutputSlot(0)
            slots[operation.output].SetTensorInfo(self._result(network, operation))
        (output,) = network.outputs
        slots[output.name].Connect(made.AddOutputLayer(0).GetInputSlot(0))
        spec, reference = self.runtime.GetDeviceSpec(), [ann.BackendId("CpuRef")]
        optimized, _ = ann.Optimize(made, reference, spec, ann.OptimizerOptions())
        number, _ = self.runtime.LoadNetwork(optimized)
        borders = [
            (place, self._info(network, border.name)) for place, border in enumerate(network.inputs)
        ]
        given = ann.make_input_tensors(borders, [np.ascontiguousarray(data) for data in inputs])
        (last,) = [each for each in network.operations if each.output == output.name]
        results = ann.make_output_tensors([(0, self._result(network, last))])
        self.runtime.EnqueueWorkload(number, given, results)
        (found,) = ann.workload_tensors_to_ndarray(results)
        return found

    def _info(self, network: Network, name: str, shape: Sequence[int] = ()) -> Any:
        """Describe a tensor; the Python face of this release knows one scale for each."""
        ann, tensor = self.ann, network.tensors[name]
        kinds = {
            "u8": ann.DataType_QAsymmU8,
            "s8": ann.DataType_QAsymmS8,
            "s32": ann.DataType_Signed32,
        }
        dims = ann.TensorShape(tuple(shape) or tensor.shape)
        info = ann.TensorInfo(dims, kinds[tensor.dtype])
        info.SetQuantizationScale(tensor.quantization.scale)
        info.SetQuantizationOffset(tensor.quantization.zero)
        return info

    def _result(self, network: Network, operation: NetworkOperation) -> Any:
        """Describe the result of an operation; that of a product has two dimensions."""
        shape = network.tensors[operation.output].shape
        flat = operation.kind == "fully-connected"
        return self._info(network, operation.output, (shape[0], shape[3]) if flat else shape)

    def _layer(
        self,
        made: Any,
        network: Network,
        operation: NetworkOperation,
        constants: Mapping[str, np.ndarray],
    ) -> Any:
        ann = self.ann
        if operation.kind == "addition":
            return made.AddAdditionLayer()
        if operation.kind == "multiplication":
            return made.AddMultiplicationLayer()
        _, weights, bias = operation.inputs
        data = constants[weights]
        if operation.kind == "fully-connected":
            order, settings = (2, 3), ann.FullyConnectedDescriptor()
            data, settings.m_BiasEnabled = data[0, 0], True
        else:
            depthwise = operation.kind == "depthwise"
            order = (3, 2, 0, 1) if depthwise else (3, 0, 1, 2)
            settings = (
                ann.DepthwiseConvolution2dDescriptor()
                if depthwise
                else ann.Convolution2dDescriptor()
            )
            top, bottom, left, right = operation.ints("padding")
            settings.m_PadTop, settings.m_PadBottom = top, bottom
            settings.m_PadLeft, settings.m_PadRight = left, right
            settings.m_StrideX, settings.m_StrideY = operation.ints("stride")
            settings.m_DataLayout, settings.m_BiasEnabled = ann.DataLayout_NHWC, True
            data = data.transpose(order)
        held = ann.ConstTensor(self._info(network, weights, data.shape), np.ascontiguousarray(data))
        numbers = constants[bias].reshape(-1)
        added = ann.ConstTensor(self._info(network, bias, numbers.shape), numbers)
        adders = {
            "convolution": made.AddConvolution2dLayer,
            "depthwise": made.AddDepthwiseConvolution2dLayer,
            "fully-connected": made.AddFullyConnectedLayer,
        }
        return adders[operation.kind](settings, held, added)
