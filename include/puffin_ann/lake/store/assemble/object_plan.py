"""What a new object is made of: bytes made here, and ranges of objects that are in the store.

An object plan says every byte of an object before one of them is moved, so that a store able to
copy by itself need not hand them to us, and so that two attempts at the same object know each
other.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class InlineBytes:
    """Bytes made in this process."""

    data: bytes

    @property
    def length(self) -> int:
        """Bytes of the piece."""
        return len(self.data)

    def slice(self, start: int, stop: int) -> "InlineBytes":
        """Return the bytes from `start` up to `stop` of the piece."""
        return InlineBytes(self.data[start:stop])


@dataclass(frozen=True)
class CopiedRange:
    """`length` bytes from `offset` of the stored object at the location `source`."""

    source: str
    offset: int
    length: int

    def slice(self, start: int, stop: int) -> "CopiedRange":
        """Return the bytes from `start` up to `stop` of the piece."""
        return CopiedRange(self.source, self.offset + start, stop - start)


Piece = InlineBytes | CopiedRange

Told = Callable[[int], None]
"""Gets the bytes of each part of an object that is written."""


def nobody(_: int) -> None:
    """Take what nobody wants to be told."""


class ObjectPlan:
    """Collects pieces in order; what a `PuffinWriter` takes for a stream.

    Args:
        version_of: returns what tells one state of a stored object from another (an ETag), or ""
            where the store has no such thing. It is asked once for each source, when the source is
            first mentioned. To read a source and then decide what to take, `pin` it first.
    """

    def __init__(self, version_of: Callable[[str], str]) -> None:
        self._version_of = version_of
        self._pieces: list[Piece] = []
        self._made: list[bytes] = []  # what was written since the last range
        self.versions: dict[str, str] = {}

    def pin(self, source: str) -> None:
        """Hold a source to the state it is in now."""
        if source not in self.versions:
            self.versions[source] = self._version_of(source)

    def write(self, data: bytes) -> int:
        """Append bytes."""
        self._made.append(bytes(data))
        return len(data)

    def write_range(self, source: str, offset: int, length: int) -> int:
        """Append a range of a stored object; ranges that adjoin become one."""
        self.pin(source)
        self._close_made()
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, CopiedRange) and last.source == source and _end(last) == offset:
            self._pieces[-1] = CopiedRange(source, last.offset, last.length + length)
        elif length:
            self._pieces.append(CopiedRange(source, offset, length))
        return length

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """What was appended, in order."""
        self._close_made()
        return tuple(self._pieces)

    @property
    def length(self) -> int:
        """Bytes of the object."""
        return sum(piece.length for piece in self.pieces)

    def digest(self) -> str:
        """Return 32 hexadecimal digits; the same ones only for an object of the same bytes.

        That holds as far as the versions of the sources do: where they are "", it does not.
        """
        document = [
            [hashlib.sha256(piece.data).hexdigest()]
            if isinstance(piece, InlineBytes)
            else [piece.source, self.versions[piece.source], piece.offset, piece.length]
            for piece in self.pieces
        ]
        return hashlib.sha256(json.dumps(document).encode()).hexdigest()[:32]

    def _close_made(self) -> None:
        data = b"".join(self._made)
        self._made.clear()
        if data:
            last = self._pieces[-1] if self._pieces else None
            if isinstance(last, InlineBytes):
                self._pieces[-1] = InlineBytes(last.data + data)
            else:
                self._pieces.append(InlineBytes(data))


def _end(piece: CopiedRange) -> int:
    return piece.offset + piece.length
