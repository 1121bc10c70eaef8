# SPDX-License-Identifier: Apache-2.0
"""Rewrite rules that always hold, by family; a rule's docstring is its ``before --> after``."""
