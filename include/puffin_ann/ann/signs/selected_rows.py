"""Some rows of one array or of several, that queries are compared with again and again."""

import threading
from collections.abc import Callable, Sequence

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
    take_room,
)
from puffin_ann.ann.exact.row_addresses import Chosen, RowAddresses
from puffin_ann.ann.signs.row_codes import RowCodes
from puffin_ann.ann.signs.sign_rows import (
    ROWS_FOR_ONE,
    SignRows,
    are_soonest,
    are_soonest_to_begin,
    may_suit,
    size_of_signs,
)

COPIED_BYTES = 16 << 20
"""What is copied at a time of rows that are coded, for a query that is compared with them as they
are."""

WORTH_SIGNS, WORTH_CODES = 32, 512
"""Queries that are compared in the slower way before rows are brought into the form of the other,
signs or codes of a byte a number: it takes about as long as that saves. Codes save a query of a
batch half of what it takes by signs, or less."""

TELLING = 0.1
"""Share of the rows that are measured, from which on signs tell too little."""
TELLING_ENOUGH = 0.03
"""The same of signs relative to the middle of all rows: there are others to be tried."""
TELLING_QUERIES = 8
"""Queries by which that is known."""


class SelectedRows:
    """Selected rows, in an order of their own; for several threads.

    They are brought into the form that suits who asks: of few queries, compared with many rows, by
    the sign of each number; else by a byte a number where the machine multiplies bytes. Where signs
    are shared, they are the first form for more queries, too. Rows that may be near are read where
    they lie. Where bytes are not multiplied, if codes say nothing of a row, and if there is no room
    for codes, rows are copied side by side.

    Args:
        parts: arrays, and the ordinals of rows in each; of one dimension, finite.
        metric: that they are compared by.
        order: (n,) int64, of all of them, in which they are numbered; None: as they are given.
        known: signs of rows of those arrays, which take part of the time to make them anew.
    """

    def __init__(
        self,
        parts: Sequence[Chosen],
        metric: Metric,
        order: NDArray[np.int64] | None = None,
        known: RowCodes | None = None,
    ) -> None:
        self._addresses, self._metric = RowAddresses.of_some(parts, order), metric
        self._known = known
        self._signs: SignRows | None = None
        self._rows: ByteRows | ComparedRows | None = None
        self._may_be_signed = self._may_be_coded = True
        self._had_signs = self._have_told_enough = False
        self._give_back: Callable[[], object] = lambda: None
        self._asked_otherwise, self._measured, self._by_signs = 0, 0, 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return n."""
        return len(self._addresses)

    @property
    def size(self) -> int:
        """Bytes that it takes, or will take."""
        rows, signs = self._rows, self._signs
        if rows is not None:
            taken = rows.size if isinstance(rows, ByteRows) else rows.size + rows.vectors.nbytes
        elif self._is_copied_at_last:
            taken = bytes_of_codes(len(self), self._addresses.dimension)
        else:
            taken = size_of_codes(len(self), self._addresses.dimension)
        if signs is not None:
            return taken + signs.size
        return taken + (self._bytes_of_signs() if self._may_be_signed else 0)

    def prepare(self, queries: int, k: int) -> None:
        """Bring rows into the form by which so many queries are answered."""
        if self._signs_for(queries, k) is None:
            self._as_codes()

    def codings(self, queries: int, k: int = 1) -> tuple[Coding, Coding]:
        """Return how rows are known now, and how once so many further queries have asked for k."""
        if k * ROWS_FOR_ONE <= len(self) and self._is_by_signs(queries):
            return Coding.LATER if self._signs is None else Coding.SIGNS, Coding.SIGNS
        rows = self._rows
        if isinstance(rows, ByteRows):
            return Coding.DONE, Coding.DONE
        if rows is None:
            after = coding_of_selected(len(self), self._addresses.dimension, queries)
            return Coding.LATER, after
        return rows.codings(queries)

    def nearest(self, queries: NDArray[np.float32], k: int, *, threads: int = 1) -> Answers:
        """Return the k nearest rows of each query, see `brute_force.search`.

        By signs a few in a thousand may be missed; others, farther ones, are answered in their
        place.

        Args:
            queries: (q, d) float32, finite.
            k: neighbours.
            threads: to use.
        """
        are_few = len(queries) <= TELLING_QUERIES
        if are_few or self._have_told_enough or self._signs_for(len(queries), k) is None:
            return self._nearest(queries, k, threads)
        # The first of a batch show whether signs are worth it for the others.
        parts = np.split(queries, [TELLING_QUERIES])
        answered = [self._nearest(part, k, threads) for part in parts]
        ids, distances = (np.concatenate(each) for each in zip(*answered, strict=True))
        return ids, distances

    def _nearest(self, queries: NDArray[np.float32], k: int, threads: int) -> Answers:
        signs = self._signs_for(len(queries), k)
        if (signs is not None) != self._suits_signs(len(queries), k):
            self._asked_otherwise += len(queries)  # threads may lose one
        if signs is not None:
            found = signs.nearest(queries, k, threads=threads)
            if found is not None:
                self._note(len(queries), found[1], signs)
                return found[0]
        rows = self._as_codes()
        if isinstance(rows, ComparedRows):
            return rows.nearest(queries, k, threads=threads)
        answers = None if rows is None else rows.nearest(queries, k, threads=threads)
        if answers is None:  # a query is too long for codes, or they have no room
            answers = _as_they_are(self._addresses, self._metric, queries, k, threads)
        return answers

    def _is_by_signs(self, queries: int) -> bool:
        """Tell whether so many queries are compared by signs, which may not be made yet.

        Rows in neither form get the one that is soonest made and used; those in one form are asked
        in it by whoever the other suits, until enough did for that to be made.
        """
        if not self._may_be_signed:
            return False
        dimension = self._addresses.dimension
        if self._signs is None and self._rows is None:
            return are_soonest_to_begin(len(self), dimension, queries, self._known)
        asked = self._asked_otherwise + queries
        if self._suits_signs(queries, 1):
            return self._signs is not None or asked >= WORTH_SIGNS
        return self._rows is None and asked < WORTH_CODES

    def _suits_signs(self, queries: int, k: int) -> bool:
        """Tell whether so many queries are answered soonest by signs, if these tell enough."""
        is_few = k * ROWS_FOR_ONE <= len(self)
        return is_few and are_soonest(len(self), self._addresses.dimension, queries)

    def _signs_for(self, queries: int, k: int) -> SignRows | None:
        """Return rows by signs, if so many queries are to be compared with them so."""
        if k * ROWS_FOR_ONE > len(self):
            return None
        is_by_signs = self._is_by_signs(queries)
        if is_by_signs and self._signs is None:
            with self._lock:
                if self._signs is None and self._may_be_signed:
                    self._signs = self._signed()
                    self._may_be_signed, self._asked_otherwise = self._signs is not None, 0
        return self._signs if is_by_signs else None

    def _signed(self) -> SignRows | None:
        """Return rows by signs, if these tell anything of them, and there is room."""
        rows = self._addresses
        give_back = take_room(size_of_signs(len(rows), rows.dimension), self)
        if give_back is None:
            return None
        signs: SignRows | None = None
        try:
            records = None if self._known is None else self._known.records_of(rows)
            if records is not None:
                signs = SignRows.of(rows, self._metric, records)
            if signs is None:  # there was no room, or others of their arrays are too long
                self._known, signs = None, SignRows.of(rows, self._metric)
        finally:
            if signs is None:
                give_back()
        if signs is not None:
            self._give_back, self._had_signs = give_back, True
        return signs

    def _as_codes(self) -> ByteRows | ComparedRows | None:
        """Return rows by a byte a number, or copied; None if they had signs, and there is no room.

        Room was found for signs then, and none was counted on for copies.
        """
        if self._rows is None:
            with self._lock:
                if self._rows is None:
                    self._rows = self._coded_or_copied()
                    self._asked_otherwise = 0
        return self._rows

    @property
    def _is_copied_at_last(self) -> bool:
        """Tell whether rows are copied where they are not coded."""
        is_tried = coding_of_selected(len(self), self._addresses.dimension, 0) is Coding.DONE
        return not (is_tried and self._had_signs)

    def _coded_or_copied(self) -> ByteRows | ComparedRows | None:
        rows = self._addresses
        has_room = self._may_be_coded and are_coded_at_once(len(rows), rows.dimension)
        coded = coded_at_once(self, rows, self._metric) if has_room else None
        self._may_be_coded &= not has_room or coded is not None
        if coded is not None or not self._is_copied_at_last:
            return coded
        is_tried = coding_of_selected(len(rows), rows.dimension, 0) is Coding.DONE
        return ComparedRows(rows.copied(), self._metric, may_be_coded=not is_tried)

    def _bytes_of_signs(self) -> int:
        return _bytes_of_signs(len(self), self._addresses.dimension)

    def _note(self, queries: int, measured: int, signs: SignRows) -> None:
        """Let go of signs where too many rows have to be measured; threads may lose one."""
        asked, rows = self._by_signs + queries, self._measured + measured
        if asked < TELLING_QUERIES:
            self._by_signs, self._measured = asked, rows
            return
        self._by_signs = self._measured = 0
        share = rows / (asked * len(self))
        with self._lock:
            if signs is not self._signs:
                return
            known = self._known
            self._have_told_enough = is_enough = share <= (
                TELLING if known is None else TELLING_ENOUGH
            )
            if known is not None:
                known.tell_enough = is_enough
            if is_enough:
                return
            # Relative to their own middle they may tell enough.
            self._may_be_signed, self._known, self._signs = known is not None, None, None
            self._give_back()


def coding_when_gathered(
    rows: int, dimension: int, queries: int, known: RowCodes | None
) -> tuple[Coding, Coding]:
    """Return the `codings` of rows once they are gathered for so many queries."""
    if are_soonest_to_begin(rows, dimension, queries, known):
        return Coding.SIGNS, Coding.SIGNS
    before = coding_of_selected(rows, dimension, 0)
    return before, coding_of_selected(rows, dimension, queries)


def bytes_of(rows: int, dimension: int) -> int:
    """Return the bytes that so many selected rows would take now, if codes say enough of them."""
    return bytes_of_codes(rows, dimension) + _bytes_of_signs(rows, dimension)


def bytes_of_codes(rows: int, dimension: int) -> int:
    """Return what `bytes_of` does, but for the signs."""
    if are_coded_at_once(rows, dimension):
        return size_of_codes(rows, dimension)
    return 4 * rows * dimension


def _bytes_of_signs(rows: int, dimension: int) -> int:
    """Return the bytes of the signs that so many rows may have."""
    return size_of_signs(rows, dimension) if may_suit(rows, dimension) else 0


def _as_they_are(
    rows: RowAddresses, metric: Metric, queries: NDArray[np.float32], k: int, threads: int
) -> Answers:
    """Return the k nearest rows of each query by comparing them as they are, some at a time."""
    parts = []
    step = max(1, COPIED_BYTES // (4 * rows.dimension))
    for begin in range(0, len(rows), step):
        some = rows.between(begin, begin + step)
        ids, distances = brute_force.search(queries, some.copied(), k, metric, threads=threads)
        parts.append((np.where(ids < 0, -1, ids + begin), distances))
    ids, distances = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
    # Equal ones ascend by number as they stand, and so they stay.
    nearest = distances.argsort(axis=1, kind="stable")[:, :k]
    return np.take_along_axis(ids, nearest, axis=1), np.take_along_axis(distances, nearest, axis=1)
