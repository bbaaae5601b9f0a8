"""The footer's JSON: `FileMetadata` and `BlobMetadata`, parsed as if an enemy had written them."""

import json
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from puffin_ann.errors import PuffinFormatError
from puffin_ann.foreign_json import is_long, parse

ABSENT = -1
"""A snapshot id or sequence number not recorded: files of the first spec, deletion vectors."""


@dataclass(frozen=True)
class BlobMetadata:
    """What the footer says of one blob.

    `offset` and `length` are bytes in the file, as stored (compressed). `snapshot_id` and
    `sequence_number` name the snapshot the blob was computed from, or are -1. `fields` are Iceberg
    field ids.
    """

    type: str
    fields: tuple[int, ...]
    snapshot_id: int
    sequence_number: int
    offset: int
    length: int
    compression_codec: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class FileMetadata:
    """Everything the footer says; `properties` usually has `created-by`."""

    blobs: tuple[BlobMetadata, ...]
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)

    def next_offset(self, position: int, end: int) -> int:
        """Return where the first blob at a position or behind it begins; `end` if there is none."""
        place = bisect_left(self._offsets, position)
        return self._offsets[place] if place < len(self._offsets) else end

    @cached_property
    def _offsets(self) -> list[int]:
        return sorted(blob.offset for blob in self.blobs)


def encode(metadata: FileMetadata) -> bytes:
    """Return the payload as Iceberg's Java writer orders and spaces it, UTF-8.

    Properties are sorted by name, so that the same input gives the same bytes.
    """
    document: dict[str, Any] = {"blobs": [_blob_to_json(blob) for blob in metadata.blobs]}
    if metadata.properties:
        document["properties"] = dict(sorted(metadata.properties.items()))
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def decode(payload: bytes, name: str) -> FileMetadata:
    """Parse and check the payload of file `name`; `PuffinFormatError` says which value is wrong.

    Keys we do not know are skipped, since a later spec may add some; a key given twice is refused,
    because two readers could then disagree on what the file holds.
    """
    try:
        document = parse(payload)
    except ValueError as error:  # bad UTF-8, bad JSON, a number of thousands of digits
        raise PuffinFormatError(f"{name}: footer is not valid JSON: {error}") from None
    where = f"{name}: footer"
    if not isinstance(document, dict):
        raise PuffinFormatError(f"{where} is not a JSON object")
    blobs = document.get("blobs")
    if not isinstance(blobs, list):
        raise PuffinFormatError(f"{where} has no list `blobs`")
    return FileMetadata(
        blobs=tuple(_blob(entry, f"{where}, blob {i}") for i, entry in enumerate(blobs)),
        properties=_properties(document, where),
    )


def _blob_to_json(blob: BlobMetadata) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "type": blob.type,
        "fields": list(blob.fields),
        "snapshot-id": blob.snapshot_id,
        "sequence-number": blob.sequence_number,
        "offset": blob.offset,
        "length": blob.length,
    }
    if blob.compression_codec is not None:
        entry["compression-codec"] = blob.compression_codec
    if blob.properties:
        entry["properties"] = dict(sorted(blob.properties.items()))
    return entry


def _blob(entry: object, where: str) -> BlobMetadata:
    if not isinstance(entry, dict):
        raise PuffinFormatError(f"{where} is not a JSON object")
    fields = entry.get("fields")
    if not isinstance(fields, list):
        raise PuffinFormatError(f"{where} has no list `fields`")
    codec = entry.get("compression-codec")
    return BlobMetadata(
        type=_text(entry.get("type"), f"{where}, `type`"),
        fields=tuple(_long(item, f"{where}, `fields`") for item in fields),
        snapshot_id=_long(entry.get("snapshot-id", ABSENT), f"{where}, `snapshot-id`"),
        sequence_number=_long(entry.get("sequence-number", ABSENT), f"{where}, `sequence-number`"),
        offset=_size(entry.get("offset"), f"{where}, `offset`"),
        length=_size(entry.get("length"), f"{where}, `length`"),
        compression_codec=None if codec is None else _text(codec, f"{where}, `compression-codec`"),
        properties=_properties(entry, where),
    )


def _properties(entry: Mapping[str, object], where: str) -> dict[str, str]:
    properties = entry.get("properties")
    if properties is None:
        return {}
    if not isinstance(properties, dict):
        raise PuffinFormatError(f"{where}, `properties` is not a JSON object")
    where = f"{where}, `properties`"
    return {_text(key, where): _text(value, where) for key, value in properties.items()}


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise PuffinFormatError(f"{where} is not a string")
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can escape but UTF-8 cannot
        raise PuffinFormatError(f"{where} is not valid Unicode") from None
    return value


def _long(value: object, where: str) -> int:
    if not isinstance(value, int) or not is_long(value):
        raise PuffinFormatError(f"{where} is not a 64-bit integer")
    return value


def _size(value: object, where: str) -> int:
    size = _long(value, where)
    if size < 0:
        raise PuffinFormatError(f"{where} is negative: {size}")
    return size
