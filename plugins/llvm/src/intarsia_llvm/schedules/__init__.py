# SPDX-License-Identifier: Apache-2.0
"""Loops for heavy operators, one file a family; ``table.py`` says which computes which."""
