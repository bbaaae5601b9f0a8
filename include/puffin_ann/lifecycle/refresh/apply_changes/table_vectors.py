"""The vectors of a shard's rows, from the table where the shard has not its own as they are."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.memmap import new_array
from puffin_ann.blobs.encoding import stored_vectors
from puffin_ann.blobs.version import coverage as coverage_blob
from puffin_ann.engines.reranked import blocks_of
from puffin_ann.lake.read.data.columns import DataFile
from puffin_ann.lake.read.data.row_vectors import RowVectorReader
from puffin_ann.lake.read.data.vector_column import table_vector_column
from puffin_ann.lake.store.locations import absolute_path
from puffin_ann.lifecycle.refresh.apply_changes.load_rows import CHUNK_ROWS
from puffin_ann.lifecycle.refresh.apply_changes.remap import ShardRows
from puffin_ann.lifecycle.runtime.workspace import Workspace
from puffin_ann.search.shards.opening.table_rows import TableRows
from puffin_ann.search.version.row_locators import FileRanks, Locators


@dataclass(frozen=True)
class ShardVectors:
    """What gives the vectors of live rows of a shard.

    Attributes:
        read: (m,) int64 ordinals to (m, d) float32.
        rows: of the shard, deleted ones included.
        bytes_read: of vectors decoded from the table for it.
    """

    read: Callable[[NDArray[np.int64]], NDArray[np.float32]]
    rows: int
    bytes_read: int = 0

    @property
    def order(self) -> NDArray[np.int64]:
        """(rows,) int64, all ordinals, in the order in which to read them takes least."""
        return np.arange(self.rows)


def shard_vectors(
    workspace: Workspace, shard: Any, folder: Path, now: ShardRows, scratch: Path
) -> ShardVectors:
    """Return the vectors of a shard's live rows, as the table has them.

    Where they are read, each row group is decoded once, in bounded memory, into a mapped file.

    Args:
        workspace: of the run.
        shard: as its engine opens it.
        folder: where it is unpacked.
        now: where its rows are in the new version.
        scratch: an existing folder, which takes them.

    Raises:
        DataFileError: a file is not what was indexed.
        StoreUnavailableError: its store does not answer.
    """
    if not hasattr(shard, "candidates") and stored_vectors.known(folder).errors is None:
        return ShardVectors(shard.vectors, len(now.rows))
    plan, table = workspace.refresh_plan, workspace.table
    files = coverage_blob.decode(workspace.fetch_bytes(plan.coverage)).files
    ids = np.array([file.file_id for file in files], np.int64)
    reader = RowVectorReader(
        table,
        table_vector_column(table, plan.declaration.column),
        plan.dimension,
        [DataFile(absolute_path(table.location(), file.path), file.size) for file in files],
    )
    rows = TableRows(reader, FileRanks(ids, np.arange(len(ids))), Locators.of(now.rows))
    found = new_array(scratch / "of-table.npy", np.float32, (len(now.rows), plan.dimension))
    for ordinals in blocks_of(rows.order, now.deleted.view(np.uint8)):
        found[ordinals] = rows.read(ordinals)
    return ShardVectors(
        lambda ordinals: np.asarray(found[ordinals]), len(now.rows), reader.bytes_decoded
    )


def gathered(
    old: ShardVectors | None,
    live: NDArray[np.int64],
    added: NDArray[np.float32],
    order: NDArray[np.int64],
    scratch: Path,
) -> NDArray[np.float32]:
    """Return the vectors of a shard's live rows and of added ones, in an order, memory-mapped."""
    vectors = new_array(scratch / "gathered.npy", np.float32, (len(order), added.shape[1]))
    for start in range(0, len(order), CHUNK_ROWS):
        chosen = order[start : start + CHUNK_ROWS]
        is_old = chosen < len(live)
        part = np.empty((len(chosen), added.shape[1]), np.float32)
        if old is not None:
            part[is_old] = old.read(live[chosen[is_old]])
        part[~is_old] = added[chosen[~is_old] - len(live)]
        vectors[start : start + len(chosen)] = part
    return vectors
