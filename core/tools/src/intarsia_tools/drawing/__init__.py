# SPDX-License-Identifier: Apache-2.0
"""Drawings of a placement: where each node goes, as a web page or for other programs."""
