"""Make descriptors of pictures with SIFT: vectors of 128 whole numbers.

They are compared as they are, by Euclidean distance: what stands out in a picture is described by
the slopes of brightness around it, 8 directions in each of 16 fields.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import write_rows

KINDS = (".jpg", ".jpeg", ".png")
LONGEST_SIDE = 1600
"""Pixels that a picture is made smaller to."""
SIZE = re.compile(r"_?\d+x\d+$")
"""At the end of a name: how large the picture is."""
MOST = 8000
"""Descriptors of a picture: those that stand out most."""


def make(folder: Path, to: Path) -> int:
    """Write the descriptors of all pictures in a folder to a Parquet file; return their number.

    A picture that is there in several sizes counts once: descriptors that are equal are kept once,
    and pictures whose names differ only by their size are taken once.

    Args:
        folder: looked through with those below it.
        to: the file; columns `id` and `embedding`.
    """
    import cv2  # only of the peers' environment

    made: list[NDArray[np.float32]] = []
    sift, began = cv2.SIFT_create(nfeatures=MOST), time.monotonic()
    for number, path in enumerate(pictures(folder), 1):
        image = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
        if image is None:
            continue
        smaller = min(1.0, LONGEST_SIDE / max(image.shape))
        image = cv2.resize(image, None, fx=smaller, fy=smaller, interpolation=cv2.INTER_AREA)
        descriptors = sift.detectAndCompute(image, None)[1]
        if descriptors is not None:
            made.append(descriptors)
        total, seconds = sum(map(len, made)), time.monotonic() - began
        print(f"{total:,} of {number} pictures in {seconds:.0f} s", end="\r", flush=True)
    print()
    rows = np.unique(np.concatenate(made), axis=0)
    np.random.default_rng(0).shuffle(rows)  # they were put in order
    write_rows(rows, to)
    return len(rows)


def pictures(folder: Path) -> Iterator[Path]:
    """Return the pictures in a folder and below it, one of those that differ only in size."""
    known: set[tuple[Path, str]] = set()
    for path in sorted(folder.rglob("*")):
        picture = path.parent, SIZE.sub("", path.stem)
        if path.suffix.lower() in KINDS and path.is_file() and picture not in known:
            known.add(picture)
            yield path
