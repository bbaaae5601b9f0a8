"""The signs of rows of some arrays, each row coded once, for whatever is selected of them."""

import threading
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import Floats, Metric
from puffin_ann.ann.exact.compared_rows import take_room
from puffin_ann.ann.exact.row_addresses import RowAddresses
from puffin_ann.ann.signs.frame import ORIGIN_ROWS, Frame, bits_of, frame_of, width_of
from puffin_ann.ann.signs.kernels_blocks import code_rows, find_records


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
    def addresses(self) -> tuple[int, int, int, int, int]:
        """Where the array, its records and its flags are; see `find_records`."""
        begin, step = self.vectors.ctypes.data, self.vectors.strides[0]
        end = begin + step * len(self.vectors)
        return begin, end, step, self.records.ctypes.data, self.is_coded.ctypes.data


class RowCodes:
    """Codes rows of some arrays when they are first selected, all in one frame; for many threads.

    Args:
        metric: that they will be compared by.
    """

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
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
            frame = self._frame = self._frame or _frame_of_all(rows, self._metric)
            found = [self._of(vectors) for vectors in rows.held if len(vectors)]
            coded = [each for each in found if each is not None]
            if len(coded) < len(found):
                return None
            starts, missing = np.empty(len(rows), np.uint64), np.empty(len(rows), np.int64)
            arrays = np.array([each.addresses for each in coded], np.uint64)
            many = find_records(rows.starts, arrays, record_bytes(frame.wide), starts, missing)
            new = RowAddresses(rows.starts[missing[:many]], rows.dimension, rows.held)
            for each in coded if many else ():
                self._code(each, new.ordinals_in(each.vectors), frame)
        return Records(frame, starts, tuple(each.records for each in coded))

    def _of(self, vectors: Floats) -> _Coded | None:
        """Return what is known of an array; None if it has no room."""
        rows = len(vectors)
        key = vectors.ctypes.data, rows
        if key not in self._arrays:
            size = rows * record_bytes(vectors.shape[1])
            if take_room(size + rows, self) is None:
                return None
            records, is_coded = np.empty(size, np.uint8), np.zeros(rows, np.bool_)
            self._arrays[key] = _Coded(vectors, records, is_coded, rows)
        return self._arrays[key]

    def _code(self, coded: _Coded, ordinals: NDArray[np.int64], frame: Frame) -> None:
        """Code some rows of an array."""
        rows = RowAddresses.of_some([(coded.vectors, ordinals)])
        _write(rows, self._metric, frame, ordinals, coded.records)
        coded.is_coded[ordinals] = True
        coded.left -= len(ordinals)


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


def _frame_of_all(rows: RowAddresses, metric: Metric) -> Frame:
    """Return a frame for all rows of the arrays that some are of."""
    total = sum(map(len, rows.held))
    some = [
        (vectors, np.linspace(0, len(vectors) - 1, 1 + ORIGIN_ROWS * len(vectors) // total))
        for vectors in rows.held
        if len(vectors)
    ]
    chosen = [(vectors, places.astype(np.int64)) for vectors, places in some]
    return frame_of(RowAddresses.of_some(chosen), metric)
