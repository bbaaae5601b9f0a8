"""Read the rows of a planned data file that are to be indexed: live, and with a usable vector."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyroaring import BitMap

from puffin_ann.lake.read.data.columns import read_row_group
from puffin_ann.lake.read.data.parquet import open_file, read_vectors
from puffin_ann.lake.read.data.vector_column import VectorColumn
from puffin_ann.lake.read.deletes.row_deletes import deleted_positions
from puffin_ann.lake.read.identity.row_identity import hash_rows
from puffin_ann.lake.read.identity.row_lineage import stored_lineage
from puffin_ann.lifecycle.documents.run import PlannedFile
from puffin_ann.lifecycle.ingest.segments import VectorRows, concatenate
from puffin_ann.lifecycle.runtime.workspace import Workspace

RowFilter = Callable[[NDArray[np.uint64]], NDArray[np.bool_]]
"""Called with identities (n, 2), says which rows' vectors are not wanted: (n,) bool."""


@dataclass(frozen=True)
class KnownRows:
    """What is known of rows by their row ids, of as many as were asked for.

    Attributes:
        indexed: (n,) bool, rows whose identity is known.
        identities: (n, 2) uint64, of those indexed.
    """

    indexed: NDArray[np.bool_]
    identities: NDArray[np.uint64]


RowLookup = Callable[[NDArray[np.uint64]], KnownRows]
"""Called with row ids and the numbers of the commits that changed the rows last, (n, 2)."""


@dataclass(frozen=True)
class IdentifiedRows:
    """Rows of which only locator and identity are kept.

    Attributes:
        locators: (n, 3) uint32: file id, row group, offset in it.
        identities: (n, 2) uint64.
        by_row_id: (n,) bool, rows whose identity is that of the row of their row id; of others it
            was computed.
    """

    locators: NDArray[np.uint32]
    identities: NDArray[np.uint64]
    by_row_id: NDArray[np.bool_]

    @classmethod
    def joined(cls, parts: "Sequence[IdentifiedRows]") -> "IdentifiedRows":
        """Join rows in order."""
        return cls(
            np.concatenate([np.zeros((0, 3), np.uint32), *(part.locators for part in parts)]),
            np.concatenate([np.zeros((0, 2), np.uint64), *(part.identities for part in parts)]),
            np.concatenate([np.zeros(0, np.bool_), *(part.by_row_id for part in parts)]),
        )

    def take(self, rows: NDArray[np.int64]) -> "IdentifiedRows":
        """Return some rows, in the order given."""
        return IdentifiedRows(self.locators[rows], self.identities[rows], self.by_row_id[rows])


@dataclass(frozen=True)
class ReadRowGroup:
    """The rows of one row group.

    Attributes:
        file_id: of its file.
        rows: live rows with a usable vector, in order, but for those filtered out.
        filtered_out: those; the ones known by their row ids first.
        deleted: positions in the file that row-level deletes name.
        skipped: positions in the file of live rows without a usable vector.
        reasons: how many of them, by reason.
        vector_bytes: bytes of vectors decoded.
    """

    file_id: int
    rows: VectorRows
    filtered_out: IdentifiedRows
    deleted: BitMap
    skipped: BitMap
    reasons: Counter[str]
    vector_bytes: int


@dataclass(frozen=True)
class _Batch:
    """What was read of a row group's vectors; as of `ReadRowGroup`."""

    rows: VectorRows
    filtered_out: list[IdentifiedRows]
    skipped: BitMap
    reasons: Counter[str]
    vector_bytes: int


@dataclass(frozen=True)
class RowGroupRange:
    """A range of row groups of one data file, opened once for all of them.

    Attributes:
        row_groups: numbers of the row groups of this part.
        row_group_rows: rows of each of them.
    """

    workspace: Workspace
    file: PlannedFile
    parquet: pq.ParquetFile
    deleted: NDArray[np.int64]
    column: VectorColumn
    row_groups: range
    starts: NDArray[np.int64] = field(repr=False)

    @property
    def row_group_rows(self) -> list[int]:
        """Rows of each row group of this part."""
        return [int(self.starts[number + 1] - self.starts[number]) for number in self.row_groups]

    def read(
        self,
        row_group: int,
        *,
        identities: bool,
        only: BitMap | None = None,
        row_filter: RowFilter | None = None,
        row_lookup: RowLookup | None = None,
    ) -> ReadRowGroup:
        """Read one row group's vector column, and the key column where identities are wanted.

        Args:
            row_group: its number.
            identities: whether they are wanted.
            only: positions in the file that are wanted; None means all. Of a row group without a
                live one among them nothing is read.
            row_filter: by identity, rows whose vectors are not kept; asks for identities.
            row_lookup: by row id, rows whose vectors are neither kept nor hashed. Where it knows
                all that are live, no vector is read.
        """
        live, deleted = self._live(row_group, only)
        known = self._known(row_group, live, row_lookup)
        unknown = live if known is None else live & ~known.indexed
        here = _Batch(self._no_rows(), [], BitMap(), Counter(), 0)
        if unknown.any():
            here = self._read(row_group, unknown, identities, row_filter)
        if known is not None:
            offsets = np.flatnonzero(known.indexed)
            by_row_id = IdentifiedRows(
                self._locators(row_group, offsets),
                known.identities[offsets],
                np.ones(len(offsets), np.bool_),
            )
            here.filtered_out.insert(0, by_row_id)
        return ReadRowGroup(
            file_id=self.file.file_id,
            rows=here.rows,
            filtered_out=IdentifiedRows.joined(here.filtered_out),
            deleted=BitMap(deleted.tolist()),
            skipped=here.skipped,
            reasons=here.reasons,
            vector_bytes=here.vector_bytes,
        )

    def _live(
        self, row_group: int, only: BitMap | None
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return (n,) bool, the wanted rows that are live, and positions that are deleted."""
        first, last = self.starts[row_group], self.starts[row_group + 1]
        low, high = np.searchsorted(self.deleted, [first, last])
        deleted = self.deleted[low:high]
        live = np.ones(last - first, dtype=np.bool_)
        if only is not None:
            inside = only & BitMap(range(int(first), int(last)))
            live[:] = False
            live[np.asarray(inside.to_array(), dtype=np.int64) - first] = True
        live[deleted - first] = False
        return live, deleted

    def _known(
        self, row_group: int, live: NDArray[np.bool_], row_lookup: RowLookup | None
    ) -> KnownRows | None:
        """Return which live rows are known by the row ids that the file holds, if it holds any."""
        if row_lookup is None or not self.file.keeps_row_ids or not live.any():
            return None
        stored = stored_lineage(self.parquet, self.file.path, row_group)
        if stored is None:
            return None
        lineage, has_lineage = stored
        known = row_lookup(lineage)
        return KnownRows(known.indexed & live & has_lineage, known.identities)

    def _read(
        self,
        row_group: int,
        live: NDArray[np.bool_],
        identities: bool,
        row_filter: RowFilter | None,
    ) -> "_Batch":
        """Read the vectors of a row group, of which some rows are wanted, (n,) bool."""
        batch = read_vectors(
            self.workspace.table.io,
            self.file.path,
            row_group,
            self.column,
            self.workspace.plan.dimension,
            parquet=self.parquet,
            view=row_filter is not None,  # most are let go of right after they were hashed
        )
        keep = live & batch.valid
        offsets = np.flatnonzero(keep)
        locators = self._locators(row_group, offsets)
        vectors = batch.matrix if len(offsets) == len(keep) else batch.matrix[keep]
        hashes = np.zeros((len(offsets), 2), dtype=np.uint64)
        if identities:
            keys = self._keys(row_group)
            hashes = hash_rows(vectors, None if keys is None else keys.take(pa.array(offsets)))
        rows, filtered_out = _split(vectors, locators, hashes, row_filter)
        skipped = np.flatnonzero(live & ~batch.valid) + self.starts[row_group]
        return _Batch(
            rows,
            [filtered_out],
            BitMap(skipped.tolist()),
            Counter(batch.reasons(live)),
            batch.matrix.nbytes,
        )

    def _no_rows(self) -> VectorRows:
        return concatenate([], self.workspace.plan.dimension)

    def _locators(self, row_group: int, offsets: NDArray[np.int64]) -> NDArray[np.uint32]:
        locators = np.empty((len(offsets), 3), dtype=np.uint32)
        locators[:, 0], locators[:, 1], locators[:, 2] = self.file.file_id, row_group, offsets
        return locators

    def _keys(self, row_group: int) -> pa.ChunkedArray | None:
        """Return the key column's values in a row group, if a key is declared."""
        key = self.workspace.plan.declaration.key
        if key is None:
            return None
        read = read_row_group(self.workspace.table, self.parquet, self.file.path, row_group, [key])
        return read.column(key)


def _split(
    vectors: NDArray[np.float32],
    locators: NDArray[np.uint32],
    identities: NDArray[np.uint64],
    row_filter: RowFilter | None,
) -> tuple[VectorRows, IdentifiedRows]:
    """Split rows into those that are kept whole, and those filtered out."""
    out = row_filter(identities) if row_filter is not None else np.zeros(len(identities), np.bool_)
    if not out.any():
        return VectorRows(vectors, locators, identities), IdentifiedRows.joined([])
    kept = np.flatnonzero(~out)
    whole = VectorRows(vectors[kept], locators[kept], identities[kept])
    computed = np.zeros(np.count_nonzero(out), np.bool_)
    return whole, IdentifiedRows(locators[out], identities[out], computed)


def open_row_groups(
    workspace: Workspace, file: PlannedFile, part: int, parts: int
) -> RowGroupRange:
    """Open the `part`-th of `parts` equal ranges of a file's row groups."""
    io = workspace.table.io
    parquet = open_file(io, file.path)
    rows = [parquet.metadata.row_group(n).num_rows for n in range(parquet.num_row_groups)]
    groups = len(rows)
    deleted = deleted_positions(workspace.table, [file.live()]).get(file.path, BitMap())
    return RowGroupRange(
        workspace=workspace,
        file=file,
        parquet=parquet,
        deleted=np.asarray(deleted.to_array(), dtype=np.int64),
        column=workspace.column,
        row_groups=range(groups * part // parts, groups * (part + 1) // parts),
        starts=np.concatenate([[0], np.cumsum(rows)]).astype(np.int64),
    )
