"""The column changes blob: values of rows that moved to other files after the columns blob.

It is a columns blob of some ordinals of the shard, which it names.
"""

from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.encoding.container import Sink
from puffin_ann.blobs.shards import columns as columns_blob
from puffin_ann.blobs.shards.columns import ColumnsReader, ShardColumns
from puffin_ann.errors import BlobFormatError

KIND = "colc"
TYPE = "puffin-ann-column-changes-v1"

HEAD = np.dtype([*columns_blob.HEAD.descr, ("written", "<u8")])


@dataclass(frozen=True, eq=False)
class ColumnChanges:
    """Values of some rows of a shard.

    Attributes:
        ordinals: (n,) uint32, ascending, of the rows.
        values: of them.
        written: bytes of such blobs that were written since the columns blob was, before this one.
    """

    ordinals: NDArray[np.uint32]
    values: ShardColumns
    written: int


def write(changes: ColumnChanges, out: Sink) -> int:
    """Write the blob and return its length in bytes; raises as `columns.write` does."""
    head = columns_blob.head_of(HEAD, changes.values)
    head["written"] = changes.written
    return columns_blob.write_sections(KIND, head, changes.values, out, changes.ordinals)


def read(source: BinaryIO, rows: int | None = None) -> ColumnChanges:
    """Return all of a blob; see `ColumnChangesReader`."""
    reader = ColumnChangesReader(source, rows)
    return ColumnChanges(reader.ordinals, reader.all(), reader.written)


class ColumnChangesReader(ColumnsReader):
    """Reads the values of such a blob; see `ColumnsReader`.

    Attributes:
        ordinals: (n,) uint32, of the rows in their shard, ascending.
        written: bytes of such blobs that were written since the columns blob was.
    """

    KIND = KIND
    HEAD = HEAD

    @property
    def written_by_now(self) -> int:
        """Bytes of such blobs that were written since the columns blob was, this one among them."""
        return self.written + self._reader.length

    def _check_rows(self, rows: int | None) -> None:
        self.ordinals = self._reader.array("ordn", "<u4", (self.rows,))
        self.written = int(self._reader.record("head", HEAD)["written"])
        ascend = not np.any(self.ordinals[1:] <= self.ordinals[:-1])
        is_beyond = self.rows and rows is not None and int(self.ordinals[-1]) >= rows
        if not ascend or is_beyond:
            raise BlobFormatError(f"{self.where}: ordinals do not ascend below {rows}")
