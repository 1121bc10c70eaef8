# SPDX-License-Identifier: Apache-2.0
"""The LLVM backend: compiles any graph to machine code for a CPU."""
