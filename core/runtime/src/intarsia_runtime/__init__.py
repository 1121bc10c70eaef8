# SPDX-License-Identifier: Apache-2.0
"""Artifacts, loading and running: all that a machine needs which runs a compiled model."""
