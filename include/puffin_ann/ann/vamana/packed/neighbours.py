"""The neighbours of a graph, taken out of its packed nodes: a folder for searches has no others.

They are at the same place whatever the order of codes is, so that those of another machine's packed
nodes will do. Searches need them apart for lists past deleted rows, and where packed nodes that
were made are not searched.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.vamana.packed.kernels_edges import TAIL_BYTES
from puffin_ann.ann.vamana.packed.layout import FORM, Layout
from puffin_ann.array_files import load_array

OF_ANY_ORDER = f"records-{FORM}-*.npy"


def neighbours_in(array: NDArray[np.uint8], layout: Layout, most: int) -> NDArray[np.uint32]:
    """Return `(n, most) uint32`, every one below n, 0 beyond the degree.

    Args:
        array: `(n, stride) uint8`, packed nodes of a graph, n ≥ 1.
        layout: theirs.
        most: the graph's largest degree, as declared: lists may all be shorter.

    Raises:
        ValueError: there is no such row.
    """
    rows = len(array)
    edges = array[:, layout.stride - layout.blocks * layout.block_bytes :]
    blocks = edges.reshape(rows, layout.blocks, layout.block_bytes)
    numbers = blocks[:, :, layout.code_bytes + TAIL_BYTES // 2 :].view(np.uint32)
    lists = numbers.reshape(rows, layout.most)[:, :most]
    found = np.zeros((rows, most), np.uint32)
    found[:, : lists.shape[1]] = lists
    if found.max(initial=0) >= rows:
        raise ValueError("records name rows that are not there")
    return found


def open_neighbours(
    folder: Path, dim: int, degrees: NDArray[np.uint16], most: int
) -> NDArray[np.uint32]:
    """Return the neighbours in a folder's packed nodes, see `neighbours_in`.

    Raises:
        FileNotFoundError: it has none of this form.
        ValueError, OSError: they are not those of such a graph.
    """
    layout = Layout.of(dim, degrees)
    for path in sorted(folder.glob(OF_ANY_ORDER)):
        array = load_array(path, mapped=True).view(np.ndarray)
        if array.dtype != np.uint8 or array.shape != (len(degrees), layout.stride):
            raise ValueError(f"{path} has shape {array.shape} and type {array.dtype}")
        return neighbours_in(array, layout, most)
    raise FileNotFoundError(f"{folder} has neither neighbours nor packed nodes")
