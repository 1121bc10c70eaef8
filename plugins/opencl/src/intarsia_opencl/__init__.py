# SPDX-License-Identifier: Apache-2.0
"""The OpenCL backend: compiles any graph to kernels that a device's driver builds when it loads."""
