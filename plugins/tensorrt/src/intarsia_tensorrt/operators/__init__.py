# SPDX-License-Identifier: Apache-2.0
"""Operators by family: which calls are taken, and the layers that they become."""
