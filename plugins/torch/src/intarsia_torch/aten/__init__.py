# SPDX-License-Identifier: Apache-2.0
"""Graphs of ATen operators, as ``torch.export`` and tracing give them, become functions of the IR.

:mod:`.table` has a converter for each operator; sizes may be open.
"""
