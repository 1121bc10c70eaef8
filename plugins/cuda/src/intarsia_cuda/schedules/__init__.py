# SPDX-License-Identifier: Apache-2.0
"""Which threads compute what: loops bound to blocks and threads."""
