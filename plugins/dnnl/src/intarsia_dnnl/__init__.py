# SPDX-License-Identifier: Apache-2.0
"""oneDNN as an accelerator of Intarsia; the manifest is ``plugin.toml`` beside this file."""
