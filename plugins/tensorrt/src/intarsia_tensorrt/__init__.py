# SPDX-License-Identifier: Apache-2.0
"""TensorRT as an accelerator: regions become networks, and networks engines, at compile time."""
