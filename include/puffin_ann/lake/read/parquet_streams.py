"""Parquet files that Arrow reads through Python: by none but the thread that asks."""

from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq


class StreamedParquetFile(pq.ParquetFile):  # type: ignore[misc]
    """A Parquet file whose bytes come from a stream of Python's.

    Arrow's own threads are kept from it. One that reads for another, ahead or to share the work,
    lets go of what it read at some moment after the answer is there. If by then the interpreter
    ends, freeing an object of Python's in that thread aborts the process.

    Args:
        stream: gives the bytes; used by one thread at a time.
        metadata: the file's footer, where it is known.
    """

    def __init__(self, stream: BinaryIO, metadata: pq.FileMetaData | None = None) -> None:
        super().__init__(pa.PythonFile(stream, mode="r"), metadata=metadata, pre_buffer=False)

    def read_row_group(self, i: int, columns: list[str] | None = None, **options: Any) -> pa.Table:
        """Read a row group, each column chunk at once; `use_threads` does not count."""
        return super().read_row_group(i, columns=columns, **_alone(options))

    def iter_batches(self, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Give rows in batches; `use_threads` does not count."""
        return super().iter_batches(*args, **_alone(options))  # type: ignore[no-any-return]


def _alone(options: dict[str, Any]) -> dict[str, Any]:
    return options | {"use_threads": False}
