# SPDX-License-Identifier: Apache-2.0
"""Categories: their names, their numbers, and a column for each of them."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from .call import NumpyCall


def one_hot_encoder(call: NumpyCall, x: np.ndarray) -> np.ndarray:
    """1 in the column of the category, in one more dimension; of equal ones the last counts."""
    categories = call.strings("cats_strings") if x.dtype.hasobject else call.integers("cats_int64s")
    items = x.reshape(-1) if x.dtype.hasobject else x.reshape(-1).astype(np.int64)
    columns = {category: column for column, category in enumerate(categories)}
    call.reserve((items.size, len(categories)), 4)
    result = np.zeros((items.size, len(categories)), np.float32)
    for row, item in enumerate(items.tolist()):
        column = columns.get(item)
        if column is not None:
            result[row, column] = 1
        elif not call.integer("zeros", 1):
            raise call.model_error(f"{item!r} is none of the {len(categories)} categories")
    return result.reshape(*x.shape, len(categories))


def category_mapper(call: NumpyCall, x: np.ndarray) -> np.ndarray:
    """Map names of categories to their numbers, and numbers to names; the last of equal counts."""
    names, numbers = call.strings("cats_strings"), call.integers("cats_int64s")
    if len(names) != len(numbers):
        raise call.model_error(f"{len(names)} names for {len(numbers)} numbers")
    if x.dtype.hasobject:
        by_name, other = dict(zip(names, numbers, strict=True)), call.integer("default_int64", -1)
        found = [by_name.get(item, other) for item in x.reshape(-1).tolist()]
        return np.array(found, np.int64).reshape(x.shape)
    by_number = dict(zip(numbers, names, strict=True))
    unused = call.string("default_string", "_Unused")
    texts = [by_number.get(item, unused) for item in x.reshape(-1).tolist()]
    return np.array(texts, object).reshape(x.shape)


KERNELS = MappingProxyType(
    {
        ("ai.onnx.ml", "CategoryMapper"): category_mapper,
        ("ai.onnx.ml", "OneHotEncoder"): one_hot_encoder,
    }
)
