# SPDX-License-Identifier: Apache-2.0
"""What the plugin takes, a family a file: a predicate and a lowering for each operator."""
