# SPDX-License-Identifier: Apache-2.0
"""The C backend: compiles any graph to portable C99."""
