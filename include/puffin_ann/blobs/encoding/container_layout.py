"""Header, section table and trailer of a blob, byte for byte, and what a reader demands of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puffin_ann.errors import BlobFormatError, UnsupportedVersionError

MAGIC = b"PANN"
MAJOR = 1
MINOR = 0
MINOR_BY_RANGES = 2
MINOR_FORMS = 3
"""Of blobs whose vectors are of another form than float32."""

HEADER = np.dtype(
    [("magic", "S4"), ("kind", "S4"), ("major", "<u2"), ("minor", "<u2"), ("reserved", "<u4")]
)
SECTION = np.dtype(
    [
        ("kind", "S4"),
        ("reserved", "<u4"),
        ("offset", "<u8"),
        ("length", "<u8"),
        ("checksum", "<u4"),
        ("reserved_2", "<u4"),
    ]
)
TRAILER = np.dtype(
    [
        ("table_offset", "<u8"),
        ("blob_length", "<u8"),
        ("sections", "<u4"),
        ("checksum", "<u4"),
        ("reserved", "<u4"),
        ("magic", "S4"),
    ]
)

ALIGNMENT = 8
ALIGNMENT_BY_RANGES = 64
MAX_SECTIONS = 256
CHECKED_TRAILER = 20
"""Bytes of the trailer that its checksum covers: everything before the checksum itself."""


@dataclass(frozen=True)
class Section:
    """Where a section lies (bytes from the blob's start) and the CRC-32 of its bytes."""

    kind: str
    offset: int
    length: int
    checksum: int


def check_header(data: bytes, kind: str, majors: Sequence[int]) -> tuple[int, int]:
    """Return the major and minor version of a blob's format; errors as of `ContainerReader`."""
    header = np.frombuffer(data, HEADER)[0]
    if header["magic"] != MAGIC:
        raise BlobFormatError(f"{kind} blob: does not begin with {MAGIC!r}")
    if header["kind"] != kind.encode("ascii"):
        raise BlobFormatError(f"{kind} blob: is of kind {bytes(header['kind'])!r}")
    major, minor = int(header["major"]), int(header["minor"])
    if major not in majors:
        known = " and ".join(f"{number}.x" for number in majors)
        raise UnsupportedVersionError(
            f"{kind} blob: written in format version {major}.{minor}, this reader knows {known}; "
            "use a later puffin-ann, or rebuild the index with this one"
        )
    return major, minor


def check_trailer(data: bytes, length: int, kind: str) -> tuple[int, int]:
    """Return where the section table of a blob of `length` bytes begins, and its sections."""
    trailer = np.frombuffer(data, TRAILER)[0]
    if trailer["magic"] != MAGIC:
        raise BlobFormatError(f"{kind} blob: does not end with {MAGIC!r}; is it cut off?")
    if int(trailer["blob_length"]) != length:
        raise BlobFormatError(
            f"{kind} blob: has {length} bytes, {int(trailer['blob_length'])} were written"
        )
    offset, count = int(trailer["table_offset"]), int(trailer["sections"])
    if count > MAX_SECTIONS:
        raise BlobFormatError(f"{kind} blob: {count} sections are more than {MAX_SECTIONS}")
    if offset + count * SECTION.itemsize + TRAILER.itemsize != length:
        raise BlobFormatError(f"{kind} blob: section table is not where the trailer says")
    if offset < HEADER.itemsize:
        raise BlobFormatError(f"{kind} blob: section table overlaps the header")
    return offset, count


def check_sections(table: NDArray[Any], end: int, kind: str) -> dict[str, Section]:
    """Check that sections follow each other between the header and `end`, and index them."""
    sections: dict[str, Section] = {}
    reached = HEADER.itemsize
    for row in table:
        name = bytes(row["kind"]).decode("latin-1")
        section = Section(name, int(row["offset"]), int(row["length"]), int(row["checksum"]))
        if name in sections:
            raise BlobFormatError(f"{kind} blob: section {name!r} is there twice")
        if section.offset % ALIGNMENT:
            raise BlobFormatError(
                f"{kind} blob: section {name!r} begins at {section.offset}, no multiple of "
                f"{ALIGNMENT}"
            )
        if section.offset < reached:
            raise BlobFormatError(f"{kind} blob: section {name!r} overlaps what is before it")
        reached = section.offset + section.length
        if reached > end:
            raise BlobFormatError(f"{kind} blob: section {name!r} reaches into the section table")
        sections[name] = section
    return sections
