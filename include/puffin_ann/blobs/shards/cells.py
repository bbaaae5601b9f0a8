"""Where the rows of each cell begin in a shard whose rows are in the order of its cells.

Rows that are inserted later stand behind those, in the order of cells, too: so a cell may have
several runs of rows. Section `cell` of a rows blob, `docs/format.md` section 8.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puffin_ann.errors import BlobFormatError

NUMBER = np.dtype("<u4")


@dataclass(frozen=True, eq=False)
class CellStarts:
    """The leading rows of a shard, those of a cell side by side.

    Attributes:
        cells: `(c,) uint32`, the cell of each run of rows; ascending, and from the first rows of
            each later insertion on ascending again.
        starts: `(c + 1,) uint32`, the first ordinal of each run, and behind the last that of the
            first row in no order; from 0, strictly ascending.
    """

    cells: NDArray[np.uint32]
    starts: NDArray[np.uint32]

    @classmethod
    def of(cls, cells_of_rows: NDArray[np.uint32]) -> "CellStarts":
        """Return where each cell begins among rows of ascending cells, `(n,) uint32`."""
        cells, counts = np.unique(cells_of_rows, return_counts=True)
        starts = np.concatenate([[0], np.cumsum(counts)])
        return cls(cells.astype(NUMBER), starts.astype(NUMBER))

    @property
    def ordered_rows(self) -> int:
        """How many leading rows are in runs of cells."""
        return int(self.starts[-1])

    def followed_by(self, others: "CellStarts") -> "CellStarts":
        """Return these runs, and behind them those of further rows."""
        return CellStarts(
            np.concatenate([self.cells, others.cells]),
            np.concatenate([self.starts, others.starts[1:] + self.starts[-1]]),
        )

    def ranges(self) -> Iterator[tuple[int, int, int]]:
        """Give each run's cell, its first ordinal, and the one behind its last."""
        starts = self.starts.tolist()
        yield from zip(self.cells.tolist(), starts[:-1], starts[1:], strict=True)


def encode(value: CellStarts) -> bytes:
    """Return the section's bytes."""
    return value.cells.astype(NUMBER).tobytes() + value.starts.astype(NUMBER).tobytes()


def decode(data: bytes, rows: int, where: str) -> CellStarts:
    """Return what a section says.

    Raises:
        BlobFormatError: starts do not ascend, do not begin at 0 or pass the rows, or there is not
            one more of them than cells.
    """
    count, rest = divmod(len(data), NUMBER.itemsize)
    if rest or count % 2 == 0:
        raise BlobFormatError(f"{where}: {len(data)} bytes are not cells and one start more")
    numbers = np.frombuffer(data, NUMBER)
    value = CellStarts(numbers[: count // 2], numbers[count // 2 :])
    check(value, rows, where)
    return value


def longest(rows: int) -> int:
    """Return the most bytes that a section can have, each row in a run of its own."""
    return NUMBER.itemsize * (2 * rows + 1)


def check(value: CellStarts, rows: int, where: str) -> None:
    """Hold cells and starts to each other and to the rows there are; errors as of `decode`."""
    cells, starts = value.cells, value.starts
    if len(starts) != len(cells) + 1:
        raise BlobFormatError(f"{where}: {len(starts)} starts of {len(cells)} cells")
    if starts[0] != 0 or not (starts[1:] > starts[:-1]).all():
        raise BlobFormatError(f"{where}: starts of cells do not ascend from 0")
    if value.ordered_rows > rows:
        raise BlobFormatError(f"{where}: cells hold {value.ordered_rows} rows, of {rows}")
