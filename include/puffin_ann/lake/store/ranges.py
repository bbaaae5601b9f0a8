"""Read many ranges of objects at once: what a store answers together costs one round trip.

On S3 a range is asked for by itself, without asking first how long the object is, and those of an
object by one signature: all are sent before the first is answered. Elsewhere a range is read
through the table's FileIO.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from pyiceberg.io import FileIO

from puffin_ann.errors import PuffinFormatError
from puffin_ann.lake.store.objects import open_object
from puffin_ann.lake.store.s3 import RANGES_AT_ONCE, ranges_of

if TYPE_CHECKING:
    from puffin_ann.lake.store.signed_once import Reader

NEAR = 32 << 10
"""Ranges with no more bytes between them are read as one: a request costs more than those."""

FEW = 32
"""Ranges that are sent before the first is answered, whatever else the machine does: to send one
takes a third of a millisecond of Python, and what is sent after an answer came is another round
trip."""
SPARE = 0.5
"""Bytes between ranges that are read along so that there are few, for each byte that is wanted."""

LOCAL = "file"


@dataclass(frozen=True)
class Range:
    """Bytes `[start, stop)` of an object."""

    uri: str
    start: int
    stop: int


def read_ranges(
    io: FileIO,
    wanted: Sequence[Range],
    naming: Callable[[str], AbstractContextManager[None]] | None = None,
    *,
    few: bool = False,
) -> list[memoryview]:
    """Return the bytes of ranges, of which those near each other are read as one.

    Args:
        io: reads the objects.
        wanted: in any order; they may overlap.
        naming: makes errors say what an object is, given its location.
        few: ask for `FEW` ranges, as far as `SPARE` of the bytes wanted are enough for what lies
            between those that are asked for as one.

    Raises:
        PuffinFormatError: an object ends before a range does.
        ObjectMissingError: an object is not there.
        StoreUnavailableError: its store does not answer.
    """
    joined = _joined(wanted, few=few)

    signed = _signed(io, joined)

    def read_as_ever(range_: Range) -> bytes:
        with naming(range_.uri) if naming else nullcontext():
            return _read(io, range_)

    def read(range_: Range) -> bytes:
        if range_.uri not in signed:
            return read_as_ever(range_)
        as_ever = partial(read_as_ever, range_)
        return signed[range_.uri](range_.start, range_.stop, as_ever)

    if len(joined) < 2 or all(is_local(part.uri) for part in joined):
        found = [read(part) for part in joined]
    else:
        with ThreadPoolExecutor(min(RANGES_AT_ONCE, len(joined)), "read ranges") as threads:
            found = list(threads.map(read, joined))
    starts = [(part.uri, part.start) for part in joined]
    answers = []
    for part in wanted:
        at = bisect_right(starts, (part.uri, part.start)) - 1
        skipped = part.start - joined[at].start
        answers.append(memoryview(found[at])[skipped : skipped + part.stop - part.start])
    return answers


def _joined(wanted: Sequence[Range], *, few: bool) -> list[Range]:
    found = list(_within(NEAR, sorted(wanted, key=lambda part: (part.uri, part.start, part.stop))))
    too_many = len(found) - FEW
    if not few or too_many <= 0:
        return found
    gaps = sorted(
        after.start - before.stop for before, after in pairwise(found) if before.uri == after.uri
    )
    return list(_within(_widest(gaps, too_many, SPARE * _bytes_of(found)), found))


def _widest(gaps: Sequence[int], too_many: int, spare: float) -> int:
    """Return the longest of ascending gaps to read along: so many, and no more bytes than spare."""
    widest = NEAR
    for gap, alike in groupby(gaps):
        count = len(list(alike))
        spare -= gap * count
        if too_many <= 0 or spare < 0:
            break
        widest, too_many = gap, too_many - count
    return widest


def _bytes_of(ranges: Sequence[Range]) -> int:
    return sum(part.stop - part.start for part in ranges)


def _within(gap: int, ordered: Sequence[Range]) -> Iterator[Range]:
    """Give ranges, those as one that have no more than a gap between them."""
    reached: Range | None = None
    for part in ordered:
        if reached and part.uri == reached.uri and part.start <= reached.stop + gap:
            reached = Range(part.uri, reached.start, max(reached.stop, part.stop))
            continue
        if reached:
            yield reached
        reached = part
    if reached:
        yield reached


def _signed(io: FileIO, wanted: Sequence[Range]) -> "dict[str, Reader]":
    """Return, by location, what reads several ranges of an object by one signature."""
    found = {}
    for uri, count in Counter(part.uri for part in wanted).items():
        store = ranges_of(io, uri) if count > 1 else None
        if store is not None:
            from puffin_ann.lake.store.signed_once import reader

            read = reader(store, uri)
            if read is not None:
                found[uri] = read
    return found


def is_local(uri: str) -> bool:
    """Tell whether a location is on this machine's disk: to ask twice costs nothing there."""
    scheme, colon, _ = uri.partition(":")
    return not colon or "/" in scheme or scheme == LOCAL


def _read(io: FileIO, wanted: Range) -> bytes:
    length = wanted.stop - wanted.start
    with open_object(io, wanted.uri, wanted.stop) as stream:
        stream.seek(wanted.start)
        data = stream.read(length)
    if len(data) < length:
        raise PuffinFormatError(
            f"{wanted.uri}: ends at byte {wanted.start + len(data)}, {length - len(data)} bytes "
            "too early"
        )
    return data
