# SPDX-License-Identifier: Apache-2.0
"""The CUDA backend: compiles any graph to kernels for NVIDIA GPUs, with no GPU and no driver."""
