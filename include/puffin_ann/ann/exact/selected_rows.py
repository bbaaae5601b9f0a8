"""Some rows of one array or of several, that queries are compared with again and again."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.metrics import Metric
from puffin_ann.ann.core.types import Answers
from puffin_ann.ann.exact import brute_force
from puffin_ann.ann.exact.byte_rows import ByteRows
from puffin_ann.ann.exact.compared_rows import Coding, ComparedRows, coded_at_once, coding_of_copies
from puffin_ann.ann.exact.row_addresses import Chosen, RowAddresses


class SelectedRows:
    """Selected rows, in an order of their own; for several threads.

    Where the machine multiplies bytes they are coded at once, and those that may be near read where
    they lie. Elsewhere, and if codes say nothing of one of them, they are copied side by side.

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
        self._rows = ComparedRows(rows.copied(), metric) if coded is None else coded

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
            found = brute_force.search(queries, rows.rows.copied(), k, rows.metric, threads=threads)
        return found


def bytes_of(rows: int, dimension: int) -> int:
    """Return the bytes that the numbers of so many selected rows take."""
    is_coded = coding_of_copies(rows, dimension, 0) is Coding.DONE
    return rows * dimension * (1 if is_coded else 4)
