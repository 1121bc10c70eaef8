# SPDX-License-Identifier: Apache-2.0
"""Decoding of image files, with the Pillow package."""

from __future__ import annotations

import io
from types import MappingProxyType

import numpy as np

from intarsia_runtime.errors import UnsupportedError

from .call import NumpyCall


def image_decoder(call: NumpyCall, stream: np.ndarray) -> np.ndarray:
    """Decode the bytes of an image file; what is no image gives an empty tensor.

    Raises:
        UnsupportedError: Pillow is not installed.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise UnsupportedError(
            "decoding images needs the package 'pillow'", hint="pip install 'intarsia[images]'"
        ) from None
    pixels = call.string("pixel_format", "RGB")
    mode = "L" if pixels == "Grayscale" else "RGB"
    try:
        with Image.open(io.BytesIO(stream.tobytes())) as image:
            found = np.array(image.convert(mode), np.uint8)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError):
        return np.empty((0, 0, 1 if mode == "L" else 3), np.uint8)
    if mode == "L":
        return found[..., None]
    return np.ascontiguousarray(found[..., ::-1]) if pixels == "BGR" else found


KERNELS = MappingProxyType({("", "ImageDecoder"): image_decoder})
