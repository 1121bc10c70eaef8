# SPDX-License-Identifier: Apache-2.0
"""Arm Ethos-U as an accelerator of Intarsia."""
