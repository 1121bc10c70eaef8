# SPDX-License-Identifier: Apache-2.0
"""What the plugin takes, one family a file: for each operator a predicate and its lowering, side by side."""
