# SPDX-License-Identifier: Apache-2.0
"""The commands of the tools: each reads options, calls a function of the tools, and prints."""
