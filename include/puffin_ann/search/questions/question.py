"""What is asked of an index, whichever of its versions answers."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from puffin_ann.errors import QueryError
from puffin_ann.lake.read.conditions.text import quoted
from puffin_ann.search.conditions.allowed_rows import AllowedRows
from puffin_ann.search.questions.checks import (
    Freshness,
    checked_freshness,
    checked_stale_policy,
    count_zeros,
    heed_scan,
    shown,
)
from puffin_ann.search.questions.queries import checked_queries
from puffin_ann.search.results import checked_columns
from puffin_ann.search.version.snapshot_view import SnapshotView
from puffin_ann.settings import StalePolicy
from puffin_ann.wording import counted


@dataclass(frozen=True)
class Question:
    """Queries, and what holds of the rows that answer them.

    Attributes:
        batch: (q, d) float32, finite.
        columns: of the table, to fetch for the rows found.
        freshness: whether live rows that the index does not cover are compared.
        policy: what becomes of a search that would compare such rows.
        allow_fewer: whether fewer rows may be answered than asked for.
        zeros: queries from which every row is equally far, since they have no direction.
    """

    batch: NDArray[np.float32]
    columns: Sequence[str]
    freshness: Freshness
    policy: StalePolicy
    allow_fewer: bool = False
    zeros: int = 0

    @classmethod
    def checked(
        cls,
        queries: ArrayLike,
        dimension: int,
        metric: str,
        index: str,
        *,
        columns: Iterable[str],
        freshness: Freshness,
        policy: StalePolicy,
        allow_fewer: bool = False,
    ) -> "Question":
        """Return a question of what was given.

        Args:
            queries: (q, dimension) or (dimension,), finite numbers.
            dimension: numbers in a vector of the index.
            metric: of the index.
            index: its name.
            columns: see above, as are those below.
            freshness: see above.
            policy: see above.
            allow_fewer: see above.

        Raises:
            QueryError: it cannot be asked.
        """
        batch = checked_queries(queries, dimension, metric, index)
        names = checked_columns(columns)
        checked_freshness(freshness)
        checked_stale_policy(policy)
        zeros = count_zeros(batch, metric, index)
        return cls(batch, names, freshness, policy, allow_fewer, zeros)

    def rows_to_scan(self, view: SnapshotView, allowed: AllowedRows | None) -> int:
        """Return how many rows outside the index are compared.

        Args:
            view: the version that answers, against the snapshot.
            allowed: the only rows that may be answered; None means all.
        """
        if self.freshness == "indexed":
            return 0
        return view.rows_to_scan if allowed is None else allowed.rows_to_scan

    def heed(self, view: SnapshotView, allowed: AllowedRows | None, index: str, table: str) -> None:
        """Warn of rows that are scanned, or refuse to, as the policy says.

        Args:
            view: as for `rows_to_scan`.
            allowed: as for `rows_to_scan`.
            index: its name.
            table: its name.

        Raises:
            StaleIndexError: they must not be.
        """
        rows = self.rows_to_scan(view, allowed)
        if rows:
            files = len(view.scanned if allowed is None else allowed.scanned)
            heed_scan(self.policy, index, table, view.snapshot_id, rows, files)

    def checked_k(
        self,
        k: int,
        view: SnapshotView,
        allowed: AllowedRows | None,
        count_scanned: Callable[[], int],
    ) -> int:
        """Return how many neighbours to look for: k, or as many as there are.

        Args:
            k: asked for.
            view: as for `rows_to_scan`.
            allowed: as for `rows_to_scan`.
            count_scanned: returns how many of the rows to scan hold vectors, which takes to read
                them: only for who asked for more rows than there are, to tell the right number.

        Raises:
            QueryError: it is no number of rows, or fewer can be answered and must not be.
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise QueryError(f"k is {shown(k)}; it must be a whole number of at least 1")
        covered = view.rows_answered if allowed is None else allowed.rows_answered
        scanned = self.rows_to_scan(view, allowed)
        live = covered + scanned
        if k > live and not self.allow_fewer:
            found = covered + (count_scanned() if scanned else 0)
            skips = view.rows_skipped > 0 if allowed is None else allowed.skips_rows
            raise self._too_few(k, found, view, allowed, unusable=skips or found < live)
        return max(1, min(int(k), live))

    def check_found(
        self, k: int, wanted: int, found: int, view: SnapshotView, allowed: AllowedRows | None
    ) -> None:
        """Require as many rows as are wanted: such as are compared may turn out to hold no vector.

        Args:
            k: neighbours asked for.
            wanted: neighbours looked for.
            found: rows, of all queries.
            view: as for `rows_to_scan`.
            allowed: as for `rows_to_scan`.

        Raises:
            QueryError: there are fewer, and must not be.
        """
        if found < len(self.batch) * wanted and not self.allow_fewer:
            there = found // len(self.batch)
            raise self._too_few(k, there, view, allowed, unusable=True)

    def _too_few(
        self, k: int, rows: int, view: SnapshotView, allowed: AllowedRows | None, *, unusable: bool
    ) -> QueryError:
        """Return what tells that so many rows can be answered, and what each of them is.

        Args:
            k: neighbours asked for.
            rows: that there are.
            view: as for `rows_to_scan`.
            allowed: as for `rows_to_scan`.
            unusable: whether there are others, but for what they hold as a vector.
        """
        one = rows == 1
        outside = view.rows_to_scan if allowed is None else allowed.rows_to_scan
        is_ = []
        if allowed is not None:
            condition = quoted(allowed.condition.text)
            is_.append(f"{'satisfies' if one else 'satisfy'} the condition {condition}")
        if outside and self.freshness == "indexed":
            is_.append(f"{'is' if one else 'are'} in the index")
        if unusable:
            is_.append("holds a usable vector" if one else "hold usable vectors")
        what = " and ".join(is_) or f"{'is' if one else 'are'} live"
        told = f"k is {shown(int(k))}"
        if not rows:
            return QueryError(
                f"{told}, but no rows {what} in snapshot {view.snapshot_id}: there are none to "
                "answer"
            )
        return QueryError(
            f"{told}, but only {counted(rows, 'row')} {what} in snapshot {view.snapshot_id}; ask "
            f"for at most {rows}, or pass allow_fewer=True, --allow-fewer on the command line, to "
            "get those there are"
        )
