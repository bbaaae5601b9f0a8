"""Read the vectors of single rows of the table, by the row groups that hold them."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray
from pyiceberg.table import Table

from puffin_ann.errors import DataFileError, PuffinAnnError
from puffin_ann.lake.read.data.column_chunks import ChunkReader, DataFile, Footer, RowGroup
from puffin_ann.lake.read.data.parquet import find_column
from puffin_ann.lake.read.data.vector_column import VectorColumn
from puffin_ann.lake.read.data.vectors import VectorBatch, vectors_of


class RowVectorReader:
    """Reads vectors of rows, several row groups at once; what was read is kept in memory.

    Args:
        table: the table the files belong to.
        column: of the vectors.
        dimension: numbers in a vector.
        files: that rows may be in.

    Attributes:
        bytes_decoded: of the vectors of row groups that were looked at, kept ones included.
    """

    def __init__(
        self, table: Table, column: VectorColumn, dimension: int, files: Sequence[DataFile]
    ) -> None:
        self._column, self._dimension, self._files = column, dimension, files
        self._chunks = ChunkReader(table)
        self.bytes_decoded = 0

    @property
    def bytes_read(self) -> int:
        """Bytes of the files that were read so far; what was in memory does not count."""
        return self._chunks.bytes_read

    def read_footers(self, places: Sequence[int]) -> None:
        """Have the footers of files in memory, given by their places.

        What is wrong with one is told when rows of it are read.
        """
        with suppress(PuffinAnnError, OSError):
            self._chunks.footers([self._files[place] for place in places])

    def read(
        self,
        files: NDArray[np.int64],
        row_groups: NDArray[np.int64],
        offsets: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """Return the vectors of rows, `(m, d) float32`; each row group is read once.

        Args:
            files: (m,) int64, places among the files.
            row_groups: (m,) int64, in the files.
            offsets: (m,) int64, in the row groups.

        Raises:
            DataFileError: a file is not what was indexed: it has no such row, or no vector there.
            EnvironmentProblemError: a file is gone.
            StoreUnavailableError: its store does not answer.
        """
        out = np.empty((len(files), self._dimension), np.float32)
        named = np.stack([files, row_groups], axis=1)
        groups, inverse = np.unique(named, axis=0, return_inverse=True)
        order = np.argsort(inverse.reshape(-1), kind="stable")
        starts = np.searchsorted(inverse.reshape(-1)[order], np.arange(len(groups) + 1)).tolist()
        wanted = self._wanted(groups)
        for number, (group, columns) in enumerate(self._chunks.columns(wanted)):
            rows = order[starts[number] : starts[number + 1]]
            (column,) = columns.values()
            batch = vectors_of(column, self._dimension, view=True)
            self.bytes_decoded += batch.matrix.nbytes
            out[rows] = self._taken(batch, group, offsets[rows])
        return out

    def _wanted(self, groups: NDArray[np.int64]) -> list[tuple[RowGroup, tuple[str, ...]]]:
        """Return row groups, given as (g, 2) places of files and numbers, with the column."""
        named = [RowGroup(self._files[file], number) for file, number in groups.tolist()]
        files = list(dict.fromkeys(group.file for group in named))
        footers = dict(zip(files, self._chunks.footers(files), strict=True))
        names = {file: (self._name(file, footer),) for file, footer in footers.items()}
        for group in named:
            there = footers[group.file].metadata.num_row_groups
            if group.number >= there:
                raise DataFileError(
                    f"{group.file.path} has {there} row groups, not number {group.number}, of "
                    "which rows were indexed"
                )
        return [(group, names[group.file]) for group in named]

    def _name(self, file: DataFile, footer: Footer) -> str:
        place = find_column(footer.schema, self._column, file.path)
        if place is None:
            raise DataFileError(
                f"{file.path} has no column {self._column.name!r}, and rows of it were indexed"
            )
        return str(footer.schema.field(place).name)

    def _taken(
        self, batch: VectorBatch, group: RowGroup, offsets: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        rows = len(batch.matrix)
        wrong = offsets >= rows
        wrong[~wrong] = batch.flaws[offsets[~wrong]] != 0
        if wrong.any():
            raise DataFileError(
                f"{group.file.path}: row group {group.number} of {rows} rows has no vector of "
                f"{self._dimension} numbers in row {int(offsets[wrong.argmax()])}, which was "
                "indexed"
            )
        found: NDArray[np.float32] = batch.matrix[offsets]
        return found
