# SPDX-License-Identifier: Apache-2.0
"""An accelerator with an instruction that multiplies tiles of 4 x 4."""
