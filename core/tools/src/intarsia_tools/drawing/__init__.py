# SPDX-License-Identifier: Apache-2.0
"""Pictures of a placement: where each node goes, as a web page or for other programs."""
