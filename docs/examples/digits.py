# SPDX-License-Identifier: Apache-2.0
"""Run the compiled digit classifier on 32 held-out images: ``python digits.py digits.intarsia``."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import intarsia

SAMPLES = Path(__file__).parents[2] / "tests" / "e2e" / "models" / "digits" / "samples.npz"


def draw(image: np.ndarray) -> str:
    """Return an 8x8 image with values in [0, 1] as text."""
    return "\n".join("".join(" .:-=+*#%@"[int(9 * value)] * 2 for value in row) for row in image)


def main(artifact: str) -> int:
    """Classify every sample; print the first three and the accuracy."""
    samples = np.load(SAMPLES)
    images, labels = samples["image"], samples["label"]
    model = intarsia.load(artifact)
    found = [int(model.run({"image": image[None]})["probability"].argmax()) for image in images]
    for image, label, answer in list(zip(images, labels, found, strict=True))[:3]:
        print(draw(image[0]))
        print(f"--> {answer} (label {label})\n")
    right = int((np.array(found) == labels).sum())
    print(f"{right} of {len(labels)} held-out digits are right")
    return 0 if right >= 30 else 1


sys.exit(main(*sys.argv[1:]))
