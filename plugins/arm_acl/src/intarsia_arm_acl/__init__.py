# SPDX-License-Identifier: Apache-2.0
"""Arm Compute Library as an accelerator: one C++ unit for each region."""
