"""Fetch the new rows of one shard from a refresh's segments, whose blocks are cells."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.version.partitions import Partitions
from puffin_ann.errors import StagingGoneError
from puffin_ann.lifecycle.build.assign import AssignSummary
from puffin_ann.lifecycle.documents.refresh import Changes
from puffin_ann.lifecycle.documents.run import StagedFile
from puffin_ann.lifecycle.ingest.segments import (
    VectorRows,
    block_offset,
    mapped_rows,
    read_block,
    row_bytes,
)
from puffin_ann.lifecycle.refresh.read_changes.added_rows import cell_order
from puffin_ann.lifecycle.runtime.scratch import new_folder
from puffin_ann.lifecycle.runtime.workspace import Workspace, arrays_from_bytes
from puffin_ann.search.version.index_version import IndexVersion

CHUNK_ROWS = 1 << 16


@dataclass(frozen=True)
class FreshRows:
    """Rows, memory-mapped, and (n,) uint32 cells.

    Those of a shard are in the order of cells, and within a cell, as those of all are, of locators.
    """

    rows: VectorRows
    cells: NDArray[np.uint32]


def fetch_new(
    workspace: Workspace,
    version: IndexVersion,
    changes: Changes,
    shard: int | None,
    scratch: Path,
    but: Set[int] = frozenset(),
) -> FreshRows:
    """Fetch the rows that are new to the shards of a version, as `fetch` does.

    Args:
        workspace: of the run.
        version: that is refreshed.
        changes: what is known of its rows.
        shard: as below.
        scratch: a folder that takes them; one is made in it.
        but: as below; rows in cells of unreadable shards always go into those.
    """
    summary = None
    if changes.summary is not None:
        summary = arrays_from_bytes(AssignSummary, workspace.fetch_bytes(changes.summary))
    return fetch(
        workspace,
        changes.segments,
        summary,
        version.cells(workspace.table.io),
        shard,
        new_folder(scratch, "fresh"),
        but=frozenset(workspace.refresh_plan.decision.unreadable) | but,
    )


def fetch(
    workspace: Workspace,
    segments: Sequence[StagedFile],
    summary: AssignSummary | None,
    cells: Partitions,
    shard: int | None,
    scratch: Path,
    but: Set[int] = frozenset(),
) -> FreshRows:
    """Fetch the rows that fall into the cells of a shard.

    Args:
        workspace: of the run.
        segments: of the run.
        summary: of all of them; None without any.
        cells: of the index: they say which of them lie in a shard.
        shard: its number; None for the rows of all cells, -1 for none.
        scratch: an existing folder, which takes them twice.
        but: of all cells, those of these shards are left out.

    Raises:
        StagingGoneError: a segment is gone or is not what was staged.
    """
    order = cell_order(cells)
    owners = cells.shards[order]
    if shard is None:
        blocks = np.flatnonzero(~np.isin(owners, np.array(sorted(but), owners.dtype)))
    else:
        blocks = np.flatnonzero(owners == shard)
    summed = checksums = np.zeros((0, len(order)), np.uint32)
    if summary is not None:
        summed, checksums = summary.counts, summary.checksums
    counts = summed[:, blocks].astype(np.int64)
    (scratch / "unsorted").mkdir(exist_ok=True)
    dimension = cells.dimension
    found = mapped_rows(int(counts.sum()), dimension, scratch / "unsorted")
    cells_of_rows = np.zeros(len(found.vectors), np.uint32)
    at = 0
    adjoining = np.split(np.arange(len(blocks)), np.flatnonzero(np.diff(blocks) != 1) + 1)
    for number in np.flatnonzero(counts.sum(axis=1)).tolist():
        staged = segments[number]
        for run in adjoining:
            wanted = blocks[run][counts[number, run] > 0]
            if not len(wanted):
                continue
            stream = _range(workspace, staged, summed[number], blocks[run], dimension)
            inside = 0
            for block in wanted.tolist():
                size = int(summed[number, block])
                part = slice(at, at + size)
                read_block(
                    stream,
                    inside,
                    found.take(part),
                    int(checksums[number, block]),
                    name=staged.uri,
                )
                cells_of_rows[part] = order[block]
                inside += size * row_bytes(dimension)
                at += size
    return _sorted(found, cells_of_rows, dimension, scratch, by_cells=shard is not None)


def _range(
    workspace: Workspace,
    staged: StagedFile,
    counts: NDArray[np.uint32],
    blocks: NDArray[np.int64],
    dimension: int,
) -> BytesIO:
    """Read blocks that adjoin in one go: they are many and small."""
    first = block_offset(counts, int(blocks[0]), dimension)
    length = int(counts[blocks].sum(dtype=np.int64)) * row_bytes(dimension)
    with workspace.staging.fetch(staged.uri) as stream:
        stream.seek(first)
        data = bytearray()
        while len(data) < length:
            part = stream.read(length - len(data))
            if not part:
                raise StagingGoneError(f"staged segment {staged.uri} ends early")
            data += part
    return BytesIO(data)


def _sorted(
    found: VectorRows,
    cells: NDArray[np.uint32],
    dimension: int,
    scratch: Path,
    *,
    by_cells: bool,
) -> FreshRows:
    """Return rows in the order of locators, or of cells first."""
    keys = [found.locators[:, 2], found.locators[:, 1], found.locators[:, 0]]
    order = np.lexsort([*keys, cells] if by_cells else keys)
    result = mapped_rows(len(order), dimension, scratch)
    for start in range(0, len(order), CHUNK_ROWS):
        part = slice(start, start + CHUNK_ROWS)
        result.vectors[part] = found.vectors[order[part]]
        result.locators[part] = found.locators[order[part]]
        result.identities[part] = found.identities[order[part]]
    return FreshRows(result, cells[order])
