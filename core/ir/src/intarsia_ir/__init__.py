# SPDX-License-Identifier: Apache-2.0
"""Graph IR, loop IR, operators and passes: what a model is and what may be done to it."""
