"""The directory blob: which blobs of a version are in other files, and where there.

A version that changes little of a large index has files of earlier versions hold what it left
alone. With a directory nothing of those files but the blobs themselves has to be read.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puffin_ann.blobs.encoding import strings
from puffin_ann.blobs.encoding.container import ContainerReader, ContainerWriter
from puffin_ann.errors import BlobFormatError

KIND = "dire"
TYPE = "puffin-ann-directory-v1"

HEAD = np.dtype([("files", "<u4"), ("types", "<u4"), ("blobs", "<u8")])
BLOB = np.dtype(
    [
        ("file", "<u4"),
        ("type", "<u4"),
        ("shard", "<u4"),
        ("codec", "<u4"),
        ("offset", "<u8"),
        ("length", "<u8"),
        ("snapshot_id", "<i8"),
        ("sequence_number", "<i8"),
        ("digest", "V32"),
    ]
)

MAX_FILES = 1024
"""Most files that a version may name; ours name a few dozen."""

NO_SHARD = (1 << 32) - 1
"""The shard of a blob that belongs to none."""

_CODECS = (None, "zstd", "lz4")
_NO_DIGEST = bytes(32)
_FIRST_BYTE = 4
"""Where the first blob of a Puffin file may begin."""


@dataclass(frozen=True)
class NamedFile:
    """Another file of a version: its name in the folder of this one, and its bytes."""

    name: str
    length: int


@dataclass(frozen=True)
class NamedBlob:
    """A blob in another file.

    Attributes:
        file: place of its file in the directory.
        type: of the blob.
        shard: id of the shard it belongs to; None if to none.
        codec: by which it is compressed; None if it is not.
        offset: of its first byte in the file.
        length: in bytes, as stored.
        snapshot_id: snapshot it was computed from.
        sequence_number: of that snapshot.
        digest: fingerprint of its content, hexadecimal; empty if it is not known.
    """

    file: int
    type: str
    shard: int | None
    codec: str | None
    offset: int
    length: int
    snapshot_id: int
    sequence_number: int
    digest: str


@dataclass(frozen=True)
class Directory:
    """What a version has in other files: each named once, each blob once."""

    files: tuple[NamedFile, ...]
    blobs: tuple[NamedBlob, ...]


def encode(directory: Directory) -> bytes:
    """Return the blob; `BlobFormatError` if the directory contradicts itself."""
    _check(directory)
    types = sorted({blob.type for blob in directory.blobs})
    head = np.zeros((), HEAD)
    head["files"] = len(directory.files)
    head["types"] = len(types)
    head["blobs"] = len(directory.blobs)
    out = io.BytesIO()
    writer = ContainerWriter(out, KIND)
    writer.put("head", head)
    writer.put("file", strings.encode(file.name for file in directory.files))
    writer.put("size", np.array([file.length for file in directory.files], "<u8"))
    writer.put("type", strings.encode(types))
    writer.put("blob", _records(directory.blobs, types))
    writer.finish()
    return out.getvalue()


def decode(data: bytes) -> Directory:
    """Return the directory.

    Raises:
        FormatError: the blob is malformed, names files elsewhere, or ranges outside its files.
    """
    reader = ContainerReader(io.BytesIO(data), KIND)
    head = reader.record("head", HEAD)
    names = strings.decode(reader.read("file"), f"{KIND} blob, section file")
    types = strings.decode(reader.read("type"), f"{KIND} blob, section type")
    if (len(names), len(types)) != (int(head["files"]), int(head["types"])):
        raise BlobFormatError(
            f"{KIND} blob: {len(names)} files and {len(types)} types, stated are "
            f"{int(head['files'])} and {int(head['types'])}"
        )
    sizes = reader.array("size", "<u8", (len(names),))
    records = reader.array("blob", BLOB, (int(head["blobs"]),))
    if len(records) and int(records["type"].max()) >= len(types):
        raise BlobFormatError(f"{KIND} blob: a blob is of a type that is not there")
    if len(records) and int(records["codec"].max()) >= len(_CODECS):
        raise BlobFormatError(f"{KIND} blob: unknown codec {int(records['codec'].max())}")
    directory = Directory(
        tuple(NamedFile(*named) for named in zip(names, sizes.tolist(), strict=True)),
        tuple(_blob(record, types) for record in records.tolist()),
    )
    _check(directory)
    return directory


def _records(blobs: Sequence[NamedBlob], types: Sequence[str]) -> NDArray[Any]:
    place = {type: number for number, type in enumerate(types)}
    records = np.zeros(len(blobs), BLOB)
    for record, blob in zip(records, blobs, strict=True):
        record["file"] = blob.file
        record["type"] = place[blob.type]
        record["shard"] = NO_SHARD if blob.shard is None else blob.shard
        record["codec"] = _CODECS.index(blob.codec)
        record["offset"] = blob.offset
        record["length"] = blob.length
        record["snapshot_id"] = blob.snapshot_id
        record["sequence_number"] = blob.sequence_number
        record["digest"] = np.void(bytes.fromhex(blob.digest) if blob.digest else _NO_DIGEST)
    return records


def _blob(record: tuple[Any, ...], types: Sequence[str]) -> NamedBlob:
    file, type, shard, codec, offset, length, snapshot_id, sequence_number, digest = record
    return NamedBlob(
        file=file,
        type=types[type],
        shard=None if shard == NO_SHARD else shard,
        codec=_CODECS[codec],
        offset=offset,
        length=length,
        snapshot_id=snapshot_id,
        sequence_number=sequence_number,
        digest="" if digest == _NO_DIGEST else digest.hex(),
    )


def _check(directory: Directory) -> None:
    """Refuse what a reader would trip over, on writing as on reading."""
    names = [file.name for file in directory.files]
    kinds = [(blob.type, blob.shard) for blob in directory.blobs]
    used = {blob.file for blob in directory.blobs}
    sizes = [file.length for file in directory.files]
    problems = {
        f"{len(names)} files are more than {MAX_FILES}": len(names) > MAX_FILES,
        "a file is there twice": len(set(names)) != len(names),
        "a file is not named as one in the same folder": not all(map(_is_beside, names)),
        "a blob of a shard is there twice": len(set(kinds)) != len(kinds),
        "a blob is in no file, or a file has no blob": used != set(range(len(names))),
    }
    for problem, there in problems.items():
        if there:
            raise BlobFormatError(f"{KIND} blob: {problem}")
    for blob in directory.blobs:
        if blob.offset < _FIRST_BYTE or blob.offset + blob.length > sizes[blob.file]:
            raise BlobFormatError(
                f"{KIND} blob: {blob.type} of shard {blob.shard} is outside {names[blob.file]}"
            )


def _is_beside(name: str) -> bool:
    return name not in ("", ".", "..") and not any(char in name for char in "/\\\0%?#")
