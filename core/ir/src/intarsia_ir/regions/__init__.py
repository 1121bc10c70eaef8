# SPDX-License-Identifier: Apache-2.0
"""Regions of a graph, and the tables that say which calls an accelerator takes."""
