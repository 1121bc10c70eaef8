# SPDX-License-Identifier: Apache-2.0
"""Machine functions that no instruction computes, as loop IR: polynomials, not library calls."""
