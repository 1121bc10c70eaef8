# SPDX-License-Identifier: Apache-2.0
"""Nodes of decision trees by their names, for millions of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct


class NodeNames(Struct, frozen=True):
    """Names of nodes: their tree, and a number in it; the last of equal ones counts.

    Attributes:
        trees: Tree of each node.
        numbers: All numbers that occur, in order.
        tree_ids: All trees that occur, in order.
        keys: Place of the tree times the count of numbers, plus place of the number; in order.
        nodes: Node of each key.
    """

    trees: np.ndarray
    numbers: np.ndarray
    tree_ids: np.ndarray
    keys: np.ndarray
    nodes: np.ndarray

    @classmethod
    def of(cls, trees_: Sequence[int], numbers: Sequence[int]) -> NodeNames:
        """Return the names of nodes in the order of the nodes."""
        own = np.array(trees_, np.int64)
        tree_ids, of_tree = np.unique(own, return_inverse=True)
        found, of_number = np.unique(np.array(numbers, np.int64), return_inverse=True)
        keys = of_tree * len(found) + of_number
        nodes = np.argsort(keys, kind="stable")
        return cls(own, found, tree_ids, keys[nodes], nodes)

    def rows(self, trees_: np.ndarray, numbers: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the node of each name; -1 where there is none."""
        if not len(self.keys):
            return np.full(len(trees_), -1)
        wanted = np.array(numbers, np.int64)
        tree, has_tree = _place(self.tree_ids, trees_)
        number, has_number = _place(self.numbers, wanted)
        keys = tree * len(self.numbers) + number
        last = np.maximum(np.searchsorted(self.keys, keys, "right") - 1, 0)
        is_there = has_tree & has_number & (self.keys[last] == keys)
        return np.where(is_there, self.nodes[last], -1)


def _place(ordered: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where elements are in ``ordered``, and whether they are."""
    place = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return place, ordered[place] == wanted
