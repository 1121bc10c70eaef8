# SPDX-License-Identifier: Apache-2.0
"""Tools around builds: tune, bench, matrix, bisect, verify; each is a function and a command.

The functions import nothing of the command line; ``tools.commands`` has the commands.
"""
