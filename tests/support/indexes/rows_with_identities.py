"""Write rows blobs that have the identities of rows, as releases did before those had their own."""

import numpy as np

from puffin_ann.blobs.encoding import blocks
from puffin_ann.blobs.encoding.container import ContainerWriter, Sink
from puffin_ann.blobs.shards import cells as cell_starts
from puffin_ann.blobs.shards.rows import (
    BLOCK_ROWS,
    HEAD,
    KIND,
    MAJOR,
    MINOR,
    Rows,
    locator_blocks,
    read,
)

__all__ = ["read", "write"]


def write(rows: Rows, out: Sink, *, identity: int = 0) -> int:
    """Write the blob and return its length in bytes.

    Args:
        rows: with identities, or without.
        out: written to.
        identity: the kind that the identities are said to be of.
    """
    head = np.zeros((), HEAD)
    head["rows"], head["block_rows"] = len(rows), BLOCK_ROWS
    head["identity"] = 2 if rows.identities is None else identity
    writer = ContainerWriter(out, KIND, major=MAJOR, minor=MINOR, by_ranges=True)
    writer.put("head", head)
    columns = (rows.file_ids, rows.row_groups, rows.offsets)
    offsets = blocks.write_frames(writer, "locs", locator_blocks(columns))
    if rows.identities is not None:
        with writer.section("iden") as sink:
            sink.write_array(rows.identities.astype("<u8", copy=False))
    if rows.cells is not None:
        writer.put("cell", cell_starts.encode(rows.cells))
    writer.put("loct", offsets)
    return writer.finish()
