# SPDX-License-Identifier: Apache-2.0
"""Build: the stages in order. ``intarsia.build(...)`` is :func:`intarsia.driver.build.build`."""
