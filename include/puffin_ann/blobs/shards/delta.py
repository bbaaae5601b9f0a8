"""The delta blob: a small shard of rows added since its neighbours were built, searched like one.

It holds the sections of a graph blob (often with maximum degree 0, since few rows are soonest
compared one by one), and beside them the cell of each row, so that a merge knows which shard
a row belongs to without assigning it again. Its rows and tombstones are blobs of their own, as
any shard's.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.encoding import mapped
from puffin_ann.blobs.encoding.container import ContainerReader, ContainerWriter, Sink
from puffin_ann.blobs.shards import graph
from puffin_ann.blobs.shards.graph import Graph
from puffin_ann.errors import BlobFormatError, LocalCopyError

KIND = "delt"
TYPE = "puffin-ann-delta-v1"


@dataclass(frozen=True, eq=False)
class Delta:
    """Recent rows: a graph over them, and `(n,) uint32` cells of the routing blob."""

    graph: Graph
    cells: NDArray[np.uint32]


def write(delta: Delta, out: Sink) -> int:
    """Write the blob and return its length in bytes; errors as of `graph.write`."""
    if delta.cells.shape != (delta.graph.rows,):
        raise BlobFormatError(f"delta: {delta.cells.shape} cells for {delta.graph.rows} rows")
    writer = ContainerWriter(out, KIND, by_ranges=True)
    graph.write_sections(delta.graph, writer)
    writer.put("part", delta.cells.astype("<u4", copy=False))
    return writer.finish()


def unpack(source: BinaryIO, directory: Path) -> None:
    """Turn a blob into memory-mappable files in an existing directory, as `graph.unpack` does."""
    reader = ContainerReader(source, KIND)
    folder = mapped.Folder(directory)
    values = graph.unpack_sections(reader, folder)
    rows = reader.record("head", graph.HEAD)["rows"]
    cells = reader.array("part", "<u4", (int(rows),))
    with folder.array("partitions", "<u4", cells.shape) as file:
        file.write(cells.tobytes())
    folder.finish(values)


def open(directory: Path) -> Delta:
    """Return an unpacked delta, memory-mapped; `LocalCopyError` if it is not whole."""
    arrays, values = mapped.open_folder(directory)
    if "partitions" not in arrays:
        raise LocalCopyError(f"{directory} does not hold a delta")
    return Delta(graph.from_arrays(arrays, values), arrays["partitions"])
