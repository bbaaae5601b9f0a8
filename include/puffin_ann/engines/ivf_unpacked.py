"""What lies beside an unpacked shard of `ivf_pq`, made of it for the machine that searches it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.memmap import LargeWrites, new_array
from puffin_ann.ann.ivf import coded_rows
from puffin_ann.ann.ivf import search as searching
from puffin_ann.ann.ivf.candidates import CANDIDATES, measure_candidates
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
        candidates: see `candidates.measure_candidates`.
    """

    inverse_norms: NDArray[np.float32] | None = None
    packed: NDArray[np.uint8] | None = None
    coded: NDArray[np.uint8] | None = None
    reach: NDArray[np.float32] | None = None
    candidates: int | None = None


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
    out = new_array(folder / PACKED, np.uint8, _packed_shape(trained, lists))
    at = 0
    for piece in searching.pack_codes(lists, len(trained.codebook)):
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
    searcher = searching.Searcher(trained, lists, vectors, norms, out)
    np.save(folder / CANDIDATES, np.array([measure_candidates(searcher, trained.metric, vectors)]))
    if coded_rows.is_wide(trained.dimension):
        coded = (len(vectors), coded_rows.stride_of(trained.dimension))
        with LargeWrites(folder / CODED_ROWS, np.uint8, coded) as file:
            for piece in coded_rows.code_rows(trained.metric, vectors, trained.origin, norms):
                file.write(piece)


def open_beside(
    folder: Path, trained: Trained, lists: Lists, rows: int, *, vectors: bool
) -> Beside:
    """Open what `write_beside` wrote.

    Args:
        folder: the shard's.
        trained: by which its lists were made.
        lists: its.
        rows: it has.
        vectors: whether those are stored.

    Raises:
        OSError, ValueError: it is not what belongs to such a shard.
    """
    packed = inverse_norms = coded = reach = candidates = None
    # Another machine of the same cache may have written another order: then it is made now.
    if (folder / PACKED).exists():
        packed = _read(folder / PACKED, np.uint8, _packed_shape(trained, lists), mapped=True)
    if not vectors:
        return Beside(packed=packed)
    if trained.metric == "cosine":
        inverse_norms = _read(folder / INVERSE_NORMS, np.float32, (rows,))
    # A former version of this package, or one that was not to search, has written none of these.
    if (folder / REACH).exists():
        reach = _read(folder / REACH, np.float32, (len(trained.centroids),))
    if (folder / CODED_ROWS).exists():
        shape = (rows, coded_rows.stride_of(trained.dimension))
        coded = _read(folder / CODED_ROWS, np.uint8, shape, mapped=True)
    if (folder / CANDIDATES).exists():
        candidates = int(_read(folder / CANDIDATES, np.int64, (1,))[0])
    return Beside(inverse_norms, packed, coded, reach, candidates)


def _packed_shape(trained: Trained, lists: Lists) -> tuple[int, int, int]:
    blocks = int(searching.first_blocks(lists.starts)[-1])
    return blocks, fastscan.groups_of(len(trained.codebook)), fastscan.GROUP_BYTES


def _read(
    path: Path, dtype: type[np.generic], shape: tuple[int, ...], *, mapped: bool = False
) -> NDArray[Any]:
    # Kernels go by these without looking: of another array they would read what is not there.
    array = load_array(path, mapped=mapped)
    if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
        raise ValueError(f"{path} is {array.dtype} {array.shape}, not {np.dtype(dtype)} {shape}")
    return array
