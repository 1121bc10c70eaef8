# SPDX-License-Identifier: Apache-2.0
"""Kernels for CPUs: channels last, packed weights, sums in registers; any backend may take them."""
