"""Cut an object plan into the parts of a multipart upload, by S3's rules and with few bytes moved.

S3 copies a part from one stored object, and takes no part under 5 MiB but the last. So a range is
copied where it is long enough; whatever lies between two such ranges is uploaded, and where that is
too short for a part of its own, the range after it lends it some of its bytes.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from puffin_ann.errors import BadInputError
from puffin_ann.lake.store.assemble.object_plan import CopiedRange, Piece

MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Rules of the store and sizes to aim at, all but `parts` in bytes.

    Attributes:
        smallest: least size of any part but the last.
        largest: most of any part.
        parts: most parts of an upload.
        upload: an uploaded part grows to this size; several are in memory at a time.
        copy: a longer range is copied in several parts, which the store does in parallel.
    """

    smallest: int = 5 * MIB
    largest: int = 5 << 30
    parts: int = 10_000
    upload: int = 8 * MIB
    copy: int = 256 * MIB


S3 = Limits()


@dataclass(frozen=True)
class Part:
    """One part, `number` from 1: copied by the store, or uploaded from its pieces."""

    number: int
    pieces: tuple[Piece, ...]
    copied: bool

    @property
    def length(self) -> int:
        """Bytes of the part."""
        return sum(piece.length for piece in self.pieces)


def plan(pieces: Sequence[Piece], limits: Limits = S3) -> tuple[Part, ...]:
    """Return the parts whose bytes, one after another, are those of the pieces.

    The same pieces give the same parts, in every attempt at the upload.

    Raises:
        BadInputError: an object of so many bytes cannot be uploaded.
    """
    bounded = limits
    while True:
        parts = tuple(_numbered(_Cutter(bounded).cut(pieces)))
        if len(parts) <= limits.parts:
            return parts
        bounded = _coarser(bounded)


def _coarser(limits: Limits) -> Limits:
    """Return limits that give fewer parts: every part but the last has the smallest size."""
    if limits.copy < limits.largest:
        return replace(limits, copy=min(4 * limits.copy, limits.largest))
    smallest = 2 * limits.smallest
    if 2 * smallest > limits.largest:  # a range cut in two would be under the smallest size
        raise BadInputError(f"an object so large needs more than {limits.parts} parts")
    return replace(limits, smallest=smallest, upload=max(limits.upload, smallest))


def _numbered(cuts: Iterator[tuple[tuple[Piece, ...], bool]]) -> Iterator[Part]:
    for number, (pieces, copied) in enumerate(cuts, 1):
        yield Part(number, pieces, copied)


class _Cutter:
    """One walk over the pieces; what is to be uploaded next waits in `pending`."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pending: list[Piece] = []
        self._held = 0  # bytes pending

    def cut(self, pieces: Sequence[Piece]) -> Iterator[tuple[tuple[Piece, ...], bool]]:
        """Give the pieces of each part, and whether the store copies it."""
        for piece in pieces:
            lent = self._short_of_a_part()
            if isinstance(piece, CopiedRange) and piece.length - lent >= self._limits.smallest:
                yield from self._collect(piece.slice(0, lent))
                yield from self._flush()
                yield from self._copies(piece.slice(lent, piece.length))
            else:
                yield from self._collect(piece)
        yield from self._flush()

    def _short_of_a_part(self) -> int:
        """Bytes that what is pending lacks to be a part of its own."""
        return max(self._limits.smallest - self._held, 0) if self._held else 0

    def _collect(self, piece: Piece) -> Iterator[tuple[tuple[Piece, ...], bool]]:
        start = 0
        while start < piece.length:
            stop = min(piece.length, start + self._limits.upload - self._held)
            self._pending.append(piece.slice(start, stop))
            self._held += stop - start
            start = stop
            if self._held == self._limits.upload:
                yield from self._flush()

    def _flush(self) -> Iterator[tuple[tuple[Piece, ...], bool]]:
        if self._pending:
            yield tuple(self._pending), False
        self._pending, self._held = [], 0

    def _copies(self, piece: CopiedRange) -> Iterator[tuple[tuple[Piece, ...], bool]]:
        count = math.ceil(piece.length / self._limits.copy)
        bounds = [piece.length * i // count for i in range(count + 1)]
        for start, stop in itertools.pairwise(bounds):
            yield (piece.slice(start, stop),), True
