# SPDX-License-Identifier: Apache-2.0
"""TOSA graphs: as values, as flatbuffers, and as NumPy arithmetic."""
