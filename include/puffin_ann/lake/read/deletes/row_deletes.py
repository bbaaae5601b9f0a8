"""Which rows of data files are deleted: by position, by deletion vectors, and by equality."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.utils.concurrent import ExecutorFactory
from pyroaring import BitMap

from puffin_ann.errors import FormatError, PuffinFormatError
from puffin_ann.lake.read.deletes.deletion_vector import decode
from puffin_ann.lake.read.deletes.equality_deletes import deleted_by_equality
from puffin_ann.lake.read.errors import open_parquet, patiently_reading, reading
from puffin_ann.lake.read.files.live_files import DeleteFile, LiveFile
from puffin_ann.lake.store.objects import open_object
from puffin_ann.puffin.reader import PuffinReader

DELETE_FILE = "delete file"
DELETION_VECTOR = "deletion-vector-v1"
REFERENCED_DATA_FILE = "referenced-data-file"

PATH_FIELD_ID = b"2147483546"
POSITION_FIELD_ID = b"2147483545"


def deleted_positions(table: Table, files: Iterable[LiveFile]) -> dict[str, BitMap]:
    """Return, by path, the positions deleted from each data file; files without any are absent.

    Each delete file is read once, however many data files it speaks of. Positions past a file's
    last row name no row and are left out. Raises FormatError for a broken delete file, and as
    `deleted_by_equality` does.
    """
    io, files = table.io, list(files)
    by_delete: dict[DeleteFile, list[LiveFile]] = defaultdict(list)
    for file in files:
        for delete in file.deletes:
            if delete.kind != "equality":
                by_delete[delete].append(file)
    vectors: dict[str, list[tuple[DeleteFile, LiveFile]]] = defaultdict(list)
    reads: list[Callable[[], dict[str, BitMap]]] = []
    for delete, targets in by_delete.items():
        if delete.kind == "vector":
            vectors[delete.path].extend((delete, file) for file in targets)
        else:
            reads.append(partial(_read_positions, io, delete, targets))
    reads += [partial(_read_vectors, io, path, wanted) for path, wanted in vectors.items()]
    rows = {file.path: file.rows for file in files}
    found: dict[str, BitMap] = {}
    _merge(found, rows, deleted_by_equality(table, files))
    # Threads for the store's latency; a union does not mind the order.
    for positions in ExecutorFactory.get_or_create().map(lambda read: read(), reads):
        _merge(found, rows, positions)
    return {path: positions for path, positions in found.items() if positions}


def _merge(found: dict[str, BitMap], rows: dict[str, int], positions: dict[str, BitMap]) -> None:
    for path, here in positions.items():
        if here and here.max() >= rows[path]:
            here = here & BitMap(range(rows[path]))
        found[path] = found[path] | here if path in found else here


def _read_positions(
    io: FileIO, delete: DeleteFile, targets: Iterable[LiveFile]
) -> dict[str, BitMap]:
    """Return the positions a Parquet delete file has for each target."""
    with open_parquet(io, delete.path, DELETE_FILE) as parquet:
        names = [
            _column(parquet.schema_arrow, field_id, name, delete.path)
            for field_id, name in ((PATH_FIELD_ID, "file_path"), (POSITION_FIELD_ID, "pos"))
        ]
        table = patiently_reading(delete.path, lambda: parquet.read(columns=names), DELETE_FILE)
    paths = table.column(names[0])
    if not pa.types.is_dictionary(paths.type):
        paths = paths.dictionary_encode()
    paths = paths.unify_dictionaries().combine_chunks()
    positions = table.column(names[1]).combine_chunks()
    if paths.null_count or positions.null_count:
        raise FormatError(f"{delete.path} has a null file_path or pos")
    wanted = {file.path for file in targets}
    return {
        path: _bitmap(these, delete.path)
        for path, these in _by_path(paths, positions.to_numpy())
        if path in wanted
    }


def _by_path(
    paths: pa.DictionaryArray, positions: NDArray[np.int64]
) -> Iterable[tuple[str, NDArray[np.int64]]]:
    codes = paths.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(len(paths.dictionary) + 1))
    for code, path in enumerate(paths.dictionary.to_pylist()):
        yield path, positions[order[edges[code] : edges[code + 1]]]


def _bitmap(positions: NDArray[np.int64], path: str) -> BitMap:
    if len(positions) and not 0 <= positions.min() <= positions.max() < 1 << 32:
        raise FormatError(f"{path} has a position outside 0..2^32-1")
    return BitMap(positions.astype(np.uint32))


def _column(schema: pa.Schema, field_id: bytes, name: str, path: str) -> str:
    for field in schema:
        if (field.metadata or {}).get(b"PARQUET:field_id") == field_id:
            return str(field.name)
    if name in schema.names:
        return name
    raise FormatError(f"{path} is not a position-delete file: it has no column {name}")


def _read_vectors(
    io: FileIO, path: str, wanted: list[tuple[DeleteFile, LiveFile]]
) -> dict[str, BitMap]:
    """Return the deletion vectors of one Puffin file for the data files asked for.

    Which data file a vector is for is taken from the blob itself; the manifest's range must be
    that of the blob.
    """
    found: dict[str, BitMap] = {}
    with reading(path, DELETE_FILE), open_object(io, path) as stream:
        reader = PuffinReader(stream, name=path)
        for delete, file in wanted:
            blobs = [
                blob
                for blob in reader.find(DELETION_VECTOR, **{REFERENCED_DATA_FILE: file.path})
                if delete.content_offset in (None, blob.offset)
                and delete.content_size in (None, blob.length)
            ]
            if len(blobs) != 1:
                raise PuffinFormatError(
                    f"{path} has {len(blobs)} deletion vectors for {file.path} where the manifest "
                    f"points to (offset {delete.content_offset}, size {delete.content_size})"
                )
            found[file.path] = decode(reader.read(blobs[0]), name=f"{path}: {file.path}")
    return found
