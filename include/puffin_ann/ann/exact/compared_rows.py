"""Rows side by side that queries are compared with again and again."""

import threading
import weakref
from collections import deque
from collections.abc import Callable
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from puffin_ann.ann.core.known_masks import KnownMasks
from puffin_ann.ann.core.metrics import Metric
from puffin_ann.ann.core.types import Answers
from puffin_ann.ann.exact import brute_force
from puffin_ann.ann.exact.byte_rows import ByteRows, bits_of, size_of_codes
from puffin_ann.ann.exact.kernels_products import HAS_DOTS
from puffin_ann.ann.exact.row_addresses import RowAddresses
from puffin_ann.settings import settings

WORTH_CODING = 12
"""With so many queries rows are compared before they are coded: it takes as long as that saves."""
OF_MANY = 0.6
"""What a query of a batch counts among these: BLAS leaves less to save."""

WIDE = 256
"""Numbers in a row from which on a few queries wait for memory rather than for the processor."""

MOST_NUMBERS = 1 << 16
"""Numbers in a row whose products fit sums of 32 bits."""

MOST_QUERIES = 4
"""Of more, products take longer than to read the rows as they are, where bytes are not multiplied
by instructions of their own."""


class Coding(Enum):
    """Whether rows are compared by a byte a number, or by less."""

    SIGNS = "by a bit or two of each"
    DONE = "from now on"
    LATER = "once it pays"
    NEVER = "not at all"


class _Room:
    """Bytes that codes take in this process, as far as they may.

    They are given back whenever Python lets go of the owner, which may be while this very thread
    takes others: so whoever gives back waits for no lock.
    """

    def __init__(self) -> None:
        self._taken, self._lock = 0, threading.Lock()
        self._given_back: deque[int] = deque()

    def take(self, size: int, owner: object) -> Callable[[], object] | None:
        """Take room as long as its owner is there; return what gives it back, None if none is."""
        with self._lock:
            if not self._has(size):
                return None
            self._taken += size
        return weakref.finalize(owner, self._given_back.append, size)

    def has(self, size: int) -> bool:
        """Tell whether there is room now."""
        with self._lock:
            return self._has(size)

    def _has(self, size: int) -> bool:
        while self._given_back:
            self._taken -= self._given_back.popleft()
        return self._taken + size <= settings().codes_max_bytes


_ROOM = _Room()


class ComparedRows:
    """Rows, and what was found out about them; for several threads.

    Attributes:
        vectors: (n, d) float32, finite.
        metric: that they are compared by.

    Args:
        vectors: as above.
        metric: as above.
        may_be_coded: whether it is not known of them that they cannot be.
    """

    def __init__(
        self, vectors: NDArray[np.float32], metric: Metric, *, may_be_coded: bool = True
    ) -> None:
        self.vectors, self.metric = vectors, metric
        self._squares = brute_force.unknown_squares(len(vectors))
        self._coded: ByteRows | None = None
        self._may_be_coded = may_be_coded and _may_be_coded(*vectors.shape)
        self._asked, self._lock = 0.0, threading.Lock()
        self._masks = KnownMasks()

    @property
    def size(self) -> int:
        """Bytes that it takes, or will take, beside the vectors."""
        return self._squares.nbytes + (
            codes_bytes(*self.vectors.shape) if self._may_be_coded else 0
        )

    @property
    def coding(self) -> Coding:
        """Whether rows are known by a byte a number."""
        return self.coding_after(0)

    def coding_after(self, queries: int) -> Coding:
        """Return what `coding` will be once so many further queries have asked at once."""
        if self._coded is not None:
            return Coding.DONE
        if not self._may_be_coded:
            return Coding.NEVER
        return _coding_after(self._asked, queries)

    def codings(self, queries: int) -> tuple[Coding, Coding]:
        """Return what `coding` is, and what it will be once so many further queries have asked."""
        return self.coding, self.coding_after(queries)

    def nearest(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        excluded: NDArray[np.uint8] | None = None,
        within: NDArray[np.float32] | None = None,
        threads: int = 1,
    ) -> Answers:
        """Return the k nearest rows of each query, exactly; see `brute_force.search`.

        Args:
            queries: (q, d) float32, finite.
            k: neighbours.
            excluded: (n,) uint8, non-zero for rows that may not be answered; None if all may. Not
                to be changed while it is in use: what is made of it is kept as long as it is.
            within: (q,) float32, distances beyond which rows are not wanted.
            threads: to use.
        """
        coded = self._codes_for(len(queries))
        return brute_force.search(
            queries,
            self.vectors,
            k,
            self.metric,
            allowed=None if excluded is None else excluded == 0,
            squares=self._squares,
            coded=coded,
            bits=None if excluded is None or coded is None else self._bits_of(excluded),
            within=within,
            threads=threads,
        )

    def _bits_of(self, excluded: NDArray[np.uint8]) -> NDArray[np.uint16]:
        """Return the `bits_of` the rows that a mask leaves."""
        known = self._masks.of(excluded)
        if known.made is None:
            known.made = bits_of(excluded == 0)
        bits: NDArray[np.uint16] = known.made
        return bits

    def _codes_for(self, queries: int) -> ByteRows | None:
        """Return the rows by their codes, if so many queries are answered sooner by them."""
        if not self._may_be_coded:
            return None
        if not HAS_DOTS and queries > MOST_QUERIES:
            return None
        if self._coded is None:
            is_worth_it = _coding_after(self._asked, queries) is Coding.DONE
            self._asked += _weight(queries)  # threads may lose one
            if is_worth_it:
                with self._lock:
                    self._code()
        return self._coded

    def _code(self) -> None:
        """Code the rows, if nobody did meanwhile, they can be, and there is room."""
        if self._coded is not None or not self._may_be_coded:
            return
        self._coded = _coded(self, RowAddresses.of(self.vectors), self.metric)
        self._may_be_coded = self._coded is not None


def take_room(size: int, owner: object) -> Callable[[], object] | None:
    """Take room for codes as long as their owner is there; see `_Room.take`."""
    return _ROOM.take(size, owner)


def are_coded_at_once(rows: int, dimension: int) -> bool:
    """Tell whether so many selected rows would be coded now, before any query asked."""
    is_worth_it = coding_of_selected(rows, dimension, 0) is Coding.DONE
    return is_worth_it and _ROOM.has(size_of_codes(rows, dimension))


def coded_at_once(owner: object, rows: RowAddresses, metric: Metric) -> ByteRows | None:
    """Return rows by their codes, if it pays before any query asked.

    Args:
        owner: whoever keeps them; as long as it is there, the room that they take is taken.
        rows: to code.
        metric: that they are compared by.
    """
    if coding_of_selected(len(rows), rows.dimension, 0) is not Coding.DONE:
        return None
    return _coded(owner, rows, metric)


def _coded(owner: object, rows: RowAddresses, metric: Metric) -> ByteRows | None:
    """Return rows by their codes, if they can be coded and there is room; see `coded_at_once`."""
    give_back = take_room(size_of_codes(len(rows), rows.dimension), owner)
    if give_back is None:
        return None
    coded = ByteRows.of(rows, metric)
    if coded is None:
        give_back()
    return coded


def coding_of_selected(rows: int, dimension: int, queries: int) -> Coding:
    """Return the coding of selected rows once so many queries asked at once, before any other did.

    They are coded before the first where the machine multiplies bytes: to copy them takes longer.
    """
    if not _may_be_coded(rows, dimension):
        return Coding.NEVER
    return Coding.DONE if HAS_DOTS else _coding_after(0.0, queries)


def codes_bytes(rows: int, dimension: int) -> int:
    """Return the bytes of the codes that rows get once many queries came; 0 if they get none."""
    return size_of_codes(rows, dimension) if _may_be_coded(rows, dimension) else 0


def _may_be_coded(rows: int, dimension: int) -> bool:
    return rows * dimension > 0 and dimension <= MOST_NUMBERS and (HAS_DOTS or dimension >= WIDE)


def _coding_after(asked: float, queries: int) -> Coding:
    """Return the coding of rows that may be coded and are not, once some queries more have asked.

    Args:
        asked: what those that asked before count.
        queries: that ask at once; none do by codes where they are too many for these.
    """
    is_by_codes = HAS_DOTS or queries <= MOST_QUERIES
    is_worth_it = is_by_codes and asked + _weight(queries) > WORTH_CODING
    return Coding.DONE if is_worth_it else Coding.LATER


def _weight(queries: int) -> float:
    return queries * (1.0 if queries <= brute_force.FEW else OF_MANY)
