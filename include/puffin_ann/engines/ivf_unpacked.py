"""What lies beside an unpacked shard of `ivf_pq`, made of it for the machine that searches it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.memmap import LargeWrites, new_array
from puffin_ann.ann.ivf import coded_rows
from puffin_ann.ann.ivf import search as searching
from puffin_ann.ann.ivf.coded_rows import CODED_ROWS
from puffin_ann.ann.ivf.lists import Lists, Trained
from puffin_ann.ann.ivf.reach import REACH, measure_reach
from puffin_ann.ann.simd import fastscan
from puffin_ann.array_files import load_array

PACKED = f"packed-{fastscan.ORDER}.npy"
"""Codes as this machine scans them."""
INVERSE_NORMS = "inverse-norms.npy"
"""For cosine."""


@dataclass(frozen=True, eq=False)
class Beside:
    """What a `Searcher` takes beside lists and vectors; None where it is to do without.

    Attributes:
        inverse_norms: see `search.inverse_norms`.
        packed: see `search.pack_codes`.
        coded: see `coded_rows.code_rows`.
        reach: see `reach.measure_reach`.
    """

    inverse_norms: NDArray[np.float32] | None = None
    packed: NDArray[np.uint8] | None = None
    coded: NDArray[np.uint8] | None = None
    reach: NDArray[np.float32] | None = None


def write_beside(
    folder: Path,
    trained: Trained,
    lists: Lists,
    vectors: NDArray[np.float32] | None,
    *,
    searched: bool,
) -> None:
    """Write what searches of an unpacked shard are quick by.

    Args:
        folder: the shard's.
        trained: by which its lists were made.
        lists: its.
        vectors: `(n, d) float32`, its rows; None if they are not stored.
        searched: it is to be searched, not only to be read and added to.
    """
    blocks = int(searching.block_starts(lists.starts)[0][-1])
    count = len(trained.codebook)
    shape = (blocks, fastscan.groups_of(count), fastscan.GROUP_BYTES)
    out = new_array(folder / PACKED, np.uint8, shape)
    at = 0
    for piece in searching.pack_codes(lists, count):
        out[at : at + len(piece)] = piece
        at += len(piece)
    if searched:
        out.flush()
    if vectors is None:
        return
    norms = None
    if trained.metric == "cosine":
        norms = searching.inverse_norms(vectors)
        np.save(folder / INVERSE_NORMS, norms)
    if not searched:
        return
    np.save(folder / REACH, measure_reach(trained, vectors))
    if coded_rows.is_wide(trained.dimension):
        coded = (len(vectors), coded_rows.stride_of(trained.dimension))
        with LargeWrites(folder / CODED_ROWS, np.uint8, coded) as file:
            for piece in coded_rows.code_rows(trained.metric, vectors, trained.origin, norms):
                file.write(piece)


def open_beside(folder: Path, trained: Trained, rows: int, *, vectors: bool) -> Beside:
    """Open what `write_beside` wrote.

    Args:
        folder: the shard's.
        trained: by which its lists were made.
        rows: it has.
        vectors: whether those are stored.

    Raises:
        OSError, ValueError: it is not what belongs to such a shard.
    """
    packed = inverse_norms = coded = reach = None
    # Another machine of the same cache may have written another order: then it is made now.
    if (folder / PACKED).exists():
        packed = load_array(folder / PACKED, mapped=True)
    if not vectors:
        return Beside(packed=packed)
    if trained.metric == "cosine":
        inverse_norms = load_array(folder / INVERSE_NORMS)
    # A former version of this package, or one that was not to search, has written neither.
    if (folder / REACH).exists():
        reach = load_array(folder / REACH)
        if reach.shape != (len(trained.centroids),):
            raise ValueError(f"reach of shape {reach.shape}")
    if (folder / CODED_ROWS).exists():
        coded = load_array(folder / CODED_ROWS, mapped=True)
        if coded.shape != (rows, coded_rows.stride_of(trained.dimension)):
            raise ValueError(f"coded rows of shape {coded.shape}")
    return Beside(inverse_norms, packed, coded, reach)
