# SPDX-License-Identifier: Apache-2.0
"""What the library takes and how it is called, by families of operators."""
