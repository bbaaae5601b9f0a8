"""Let a machine come to rest before something short is timed."""

import os
from pathlib import Path

import numpy as np

CHUNK = 1 << 22
ROOM = 400 << 20
"""Bytes of memory made ready: more than a refresh writes."""


def settle(*places: Path) -> None:
    """Wait for the disk, have files in memory, and room there: what was done before is not timed.

    A disk discards what was deleted with the next commit of its file system. And what a virtual
    machine left idle or free its host takes back within seconds: to copy 40 MB into memory that has
    to be asked for again takes 100 ms instead of 10.

    Args:
        places: files, or folders of files, that are about to be read.
    """
    os.sync()
    for place in places:
        for path in [place] if place.is_file() else place.rglob("*"):
            if path.is_file():
                with path.open("rb", buffering=0) as file:
                    while file.read(CHUNK):
                        pass
    np.ones(ROOM, np.uint8)
