# SPDX-License-Identifier: Apache-2.0
"""Frontend for PyTorch: modules, exported programs, and the backend of ``torch.compile``."""
