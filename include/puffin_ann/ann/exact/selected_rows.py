"""Some rows of one array or of several, that queries are compared with again and again."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import Metric
from puffin_ann.ann.core.types import Answers
from puffin_ann.ann.exact import brute_force
from puffin_ann.ann.exact.byte_rows import ByteRows, size_of_codes
from puffin_ann.ann.exact.compared_rows import (
    Coding,
    ComparedRows,
    are_coded_at_once,
    coded_at_once,
    coding_of_selected,
)
from puffin_ann.ann.exact.row_addresses import Chosen, RowAddresses

COPIED_BYTES = 16 << 20
"""What is copied at a time of rows that are coded, for a query that is compared with them as they
are."""


class SelectedRows:
    """Selected rows, in an order of their own; for several threads.

    Where the machine multiplies bytes they are coded at once, and those that may be near read where
    they lie. Elsewhere, if codes say nothing of one of them, and if there is no room for codes,
    they are copied side by side.

    Args:
        parts: arrays, and the ordinals of rows in each; of one dimension, finite.
        metric: that they are compared by.
        order: (n,) int64, of all of them, in which they are numbered; None: as they are given.
    """

    def __init__(
        self, parts: Sequence[Chosen], metric: Metric, order: NDArray[np.int64] | None = None
    ) -> None:
        rows = RowAddresses.of_some(parts, order)
        self._count = len(rows)
        coded = coded_at_once(self, rows, metric)
        self._rows = _copied(rows, metric) if coded is None else coded

    def __len__(self) -> int:
        """Return n."""
        return self._count

    @property
    def size(self) -> int:
        """Bytes that it takes, or will take."""
        rows = self._rows
        return rows.size if isinstance(rows, ByteRows) else rows.size + rows.vectors.nbytes

    def codings(self, queries: int) -> tuple[Coding, Coding]:
        """Return whether rows are coded now, and once so many further queries have asked."""
        if isinstance(self._rows, ByteRows):
            return Coding.DONE, Coding.DONE
        return self._rows.codings(queries)

    def nearest(self, queries: NDArray[np.float32], k: int, *, threads: int = 1) -> Answers:
        """Return the k nearest rows of each query, exactly; see `brute_force.search`.

        Args:
            queries: (q, d) float32, finite.
            k: neighbours.
            threads: to use.
        """
        rows = self._rows
        if isinstance(rows, ComparedRows):
            return rows.nearest(queries, k, threads=threads)
        found = rows.nearest(queries, k, threads=threads)
        if found is None:  # a query is too long for codes
            found = _as_they_are(rows, queries, k, threads)
        return found


def bytes_of(rows: int, dimension: int) -> int:
    """Return the bytes that so many selected rows would take now, if codes say enough of them."""
    if are_coded_at_once(rows, dimension):
        return size_of_codes(rows, dimension)
    return 4 * rows * dimension


def _copied(rows: RowAddresses, metric: Metric) -> ComparedRows:
    """Return copies of rows, not to be coded where that was tried."""
    is_tried = coding_of_selected(len(rows), rows.dimension, 0) is Coding.DONE
    return ComparedRows(rows.copied(), metric, may_be_coded=not is_tried)


def _as_they_are(coded: ByteRows, queries: NDArray[np.float32], k: int, threads: int) -> Answers:
    """Return the k nearest rows of each query by comparing them as they are, some at a time."""
    rows, parts = coded.rows, []
    step = max(1, COPIED_BYTES // (4 * rows.dimension))
    for begin in range(0, len(rows), step):
        some = RowAddresses(rows.starts[begin : begin + step], rows.dimension, rows.held)
        ids, distances = brute_force.search(
            queries, some.copied(), k, coded.metric, threads=threads
        )
        parts.append((np.where(ids < 0, -1, ids + begin), distances))
    ids, distances = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
    # Equal ones ascend by number as they stand, and so they stay.
    nearest = distances.argsort(axis=1, kind="stable")[:, :k]
    return np.take_along_axis(ids, nearest, axis=1), np.take_along_axis(distances, nearest, axis=1)
