# SPDX-License-Identifier: Apache-2.0
"""Schedules for devices that run a grid of blocks of threads.

Blocks are OpenCL's work-groups and threads its work-items; memory that the threads of a block share
is OpenCL's local memory. A backend gives its :class:`~intarsia_loops.gpu.traits.GridTraits` and
prints the launches in its own language.
"""
