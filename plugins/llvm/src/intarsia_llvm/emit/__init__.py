# SPDX-License-Identifier: Apache-2.0
"""Loop IR to LLVM IR text."""
