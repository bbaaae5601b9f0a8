"""The signs of rows of some arrays, each row coded once, for whatever is selected of them."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import Floats, Metric
from puffin_ann.ann.exact.compared_rows import take_room
from puffin_ann.ann.exact.row_addresses import RowAddresses
from puffin_ann.ann.signs.frame import ORIGIN_ROWS, Frame, bits_of, frame_of, width_of
from puffin_ann.ann.signs.kernels_blocks import code_rows, find_records
from puffin_ann.settings import settings

MOST_OF_ROOM = 0.25
"""Share of the room of all codes that the records of one index take: others need theirs."""


class Records(NamedTuple):
    """Rows by their signs, each on its own; see `kernels_blocks`.

    Attributes:
        frame: that they were brought into.
        starts: (n,) uint64, the address of each record.
        held: the arrays that the records are in: these stay as long as this is there.
    """

    frame: Frame
    starts: NDArray[np.uint64]
    held: tuple[NDArray[np.uint8], ...]

    def between(self, first: int, last: int) -> "Records":
        """Return those from the first on, up to the last, which is not among them."""
        return self._replace(starts=self.starts[first:last])


@dataclass(eq=False)
class _Coded:
    """An array, and those of its rows that are coded.

    Attributes:
        vectors: (n, d) float32.
        records: flat uint8, of n records; that of a row that is not coded may be anything.
        is_coded: (n,) bool.
        left: how many are not.
    """

    vectors: Floats
    records: NDArray[np.uint8]
    is_coded: NDArray[np.bool_]
    left: int

    @property
    def size(self) -> int:
        """Bytes that it takes beside the array."""
        return self.records.nbytes + self.is_coded.nbytes

    @property
    def addresses(self) -> tuple[int, int, int, int, int]:
        """Where the array, its records and its flags are; see `find_records`."""
        begin, step = self.vectors.ctypes.data, self.vectors.strides[0]
        end = begin + step * len(self.vectors)
        return begin, end, step, self.records.ctypes.data, self.is_coded.ctypes.data


class RowCodes:
    """Codes rows of some arrays when they are first selected, all in one frame; for many threads.

    Attributes:
        tell_enough: whether they did of the rows of which that was found out last.

    Args:
        metric: that they will be compared by.
        arrays: returns those that rows are selected of, of which the frame is; None: as selected.
    """

    def __init__(
        self, metric: Metric, arrays: Callable[[], Sequence[Floats]] | None = None
    ) -> None:
        self._metric, self._all, self.tell_enough = metric, arrays, True
        self._frame: Frame | None = None
        self._arrays: dict[tuple[int, int], _Coded] = {}
        self._lock = threading.Lock()

    @property
    def share(self) -> float:
        """Share of the rows of the arrays met so far that are coded; 0 if none was met."""
        arrays = list(self._arrays.values())
        rows = sum(len(coded.vectors) for coded in arrays)
        return 1.0 - sum(coded.left for coded in arrays) / rows if rows else 0.0

    def records_of(self, rows: RowAddresses) -> Records | None:
        """Return the records of rows; None if there is no room for those of all rows beside them.

        Args:
            rows: finite; at least one.
        """
        with self._lock:
            coded = self._of([vectors for vectors in rows.held if len(vectors)])
            if coded is None:
                return None
            frame = self._frame = self._frame or self._frame_of_all(rows)
            arrays = np.array([each.addresses for each in coded], np.uint64)
            starts = np.empty(len(rows), np.uint64)
            missing, owners = np.empty((2, len(rows)), np.int64)
            length = record_bytes(frame.wide)
            many = find_records(rows.starts, arrays, length, starts, missing, owners)
            order = np.argsort(owners[:many], kind="stable")
            ends = owners[:many][order].searchsorted(np.arange(len(coded) - 1), side="right")
            parts = np.split(missing[:many][order], ends)
            for each, ordinals in zip(coded, parts, strict=True):
                self._code(each, ordinals, frame)
        return Records(frame, starts, tuple(each.records for each in coded))

    def _of(self, arrays: Sequence[Floats]) -> list[_Coded] | None:
        """Return what is known of arrays, by their addresses; None if one has no room."""
        new = [vectors for vectors in arrays if _key(vectors) not in self._arrays]
        sizes = [len(vectors) * record_bytes(vectors.shape[1]) for vectors in new]
        made = [
            _Coded(
                vectors, np.empty(size, np.uint8), np.zeros(len(vectors), np.bool_), len(vectors)
            )
            for vectors, size in zip(new, sizes, strict=True)
        ]
        taken = sum(each.size for each in self._arrays.values())
        wanted = sum(each.size for each in made)
        if made and not (
            taken + wanted <= MOST_OF_ROOM * settings().codes_max_bytes
            and take_room(wanted, self) is not None
        ):
            return None
        self._arrays.update((_key(each.vectors), each) for each in made)
        return [self._arrays[key] for key in sorted(map(_key, arrays))]

    def _code(self, coded: _Coded, ordinals: NDArray[np.int64], frame: Frame) -> None:
        """Code some rows of an array."""
        if len(ordinals):
            rows = RowAddresses.of_some([(coded.vectors, ordinals)])
            _write(rows, self._metric, frame, ordinals, coded.records)
            coded.is_coded[ordinals] = True
            coded.left -= len(ordinals)

    def _frame_of_all(self, rows: RowAddresses) -> Frame:
        """Return a frame for all rows of all arrays, by some of each."""
        held = rows.held if self._all is None else self._all()
        arrays = [vectors for vectors in held if len(vectors)]
        total = sum(map(len, arrays))
        counts = [1 + ORIGIN_ROWS * len(vectors) // total for vectors in arrays]
        chosen = [
            (vectors, np.linspace(0, len(vectors) - 1, count).astype(np.int64))
            for vectors, count in zip(arrays, counts, strict=True)
        ]
        return frame_of(RowAddresses.of_some(chosen), self._metric)


def record_rows(rows: RowAddresses, metric: Metric, frame: Frame) -> Records:
    """Return the records of rows, made of them anew.

    Args:
        rows: finite; at least one.
        metric: that they will be compared by.
        frame: of rows of their dimension.
    """
    places = np.arange(len(rows))
    records = np.empty(len(rows) * record_bytes(rows.dimension), np.uint8)
    _write(rows, metric, frame, places, records)
    return Records(frame, _addresses(records, places, frame.wide), (records,))


def record_bytes(dimension: int) -> int:
    """Return the bytes of a record of so many numbers."""
    wide = width_of(dimension)
    return bits_of(wide) * wide // 8 + 4


def _write(
    rows: RowAddresses,
    metric: Metric,
    frame: Frame,
    places: NDArray[np.int64],
    records: NDArray[np.uint8],
) -> None:
    bits = bits_of(frame.wide)
    code_rows(metric.code, rows.starts, rows.dimension, frame, bits, places, records)


def _addresses(
    records: NDArray[np.uint8], places: NDArray[np.int64], wide: int
) -> NDArray[np.uint64]:
    begin, step = np.uint64(records.ctypes.data), np.uint64(record_bytes(wide))
    return begin + places.astype(np.uint64) * step


def _key(vectors: Floats) -> tuple[int, int]:
    return vectors.ctypes.data, len(vectors)
