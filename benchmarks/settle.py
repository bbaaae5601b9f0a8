"""Let a machine come to rest before something is timed."""

import os
from pathlib import Path

CHUNK = 1 << 22


def settle(*places: Path) -> None:
    """Wait for the disk, and have files in memory: what was done before is not timed.

    Some kernels write unused pages out again within seconds, and discard what was deleted with the
    next commit of the file system: the one would have a copy wait for the disk, the other a commit.

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
