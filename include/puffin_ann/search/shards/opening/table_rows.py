"""The vectors of a shard's rows, read from the table by their locators."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from puffin_ann.lake.read.data.row_vectors import RowVectorReader
from puffin_ann.search.version.row_locators import FileRanks, Locators


class TableRows:
    """Where a shard does not have its vectors as they are; only live rows may be asked for.

    Args:
        reader: of the files that rows are in.
        ranks: by file id, places of files among the reader's.
        locators: of the shard's rows.
    """

    def __init__(self, reader: RowVectorReader, ranks: FileRanks, locators: Locators) -> None:
        self._reader, self._ranks, self._locators = reader, ranks, locators

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """`(n,) int64`: all ordinals in the order of locators, so that a row group is read once."""
        where = self._locators
        order: NDArray[np.int64] = np.lexsort((where.offsets, where.row_groups, where.places))
        return order

    def read(self, ordinals: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the table's vectors of live rows, `(m, d) float32`; errors as of the reader."""
        return self._reader.read(*self._locators.keys(self._ranks, ordinals))
