# SPDX-License-Identifier: Apache-2.0
"""Operators that an Ethos-U takes, by family: who says yes, and what each becomes in TOSA."""
