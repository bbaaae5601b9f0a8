"""Answers of one version of an index as tables, their columns from wherever they are."""

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.table import Table
from pyiceberg.types import NestedField

from puffin_ann.search.explain.recorder import enter
from puffin_ann.search.included.answers import RowPlaces, kept_values
from puffin_ann.search.included.kept_columns import KeptColumns
from puffin_ann.search.merge import Merged, Source, in_shards, keys_of
from puffin_ann.search.range_search import Pairs
from puffin_ann.search.results import SearchReport, Texts, answer_table, array_of
from puffin_ann.search.version.snapshot_view import SnapshotView

KEPT_NUMBERS = 4096
"""Of so few answers at most, numbers of queries and ranks are kept: others have the same."""


class Answers:
    """Makes tables of rows found.

    Args:
        table: of the rows.
        view: the version that answers, against the snapshot.
        kept: values of columns that the version keeps.
    """

    def __init__(self, table: Table, view: SnapshotView, kept: KeptColumns) -> None:
        self._table, self._view, self._kept = table, view, kept

    def of_nearest(
        self,
        merged: Merged,
        sources: Sequence[Source],
        columns: Sequence[str],
        report: SearchReport,
    ) -> pa.Table:
        """Return the best of all sources, by query and rank.

        Args:
            merged: the best.
            sources: that found them.
            columns: of the snapshot, to fetch; none is read of the table for rows that the index
                has them of.
            report: of the answer.
        """
        sources_of, ordinals = merged.sources, merged.ordinals.ravel()
        distances, origin = merged.distances.ravel(), sources_of.ravel()
        if sources_of.size and sources_of.min() >= 0:  # most often as many are there as are wanted
            query, rank = _numbers_of(*sources_of.shape)
        else:
            there = sources_of >= 0
            of_query, of_rank = there.nonzero()
            query, rank = (
                array_of(of_query.astype(np.int32)),
                array_of((of_rank + 1).astype(np.int32)),
            )
            some = there.ravel()
            origin, ordinals, distances = origin[some], ordinals[some], distances[some]
        keys = keys_of(sources, origin, ordinals)
        in_shard = partial(in_shards, sources, origin, ordinals)
        return self._of_rows(query, rank, distances, keys, in_shard, columns, report)

    def of_pairs(self, pairs: Pairs, columns: Sequence[str], report: SearchReport) -> pa.Table:
        """Return pairs as they are given; see `of_nearest`."""
        query, rank = array_of(pairs.query.astype(np.int32)), array_of(pairs.rank.astype(np.int32))
        return self._of_rows(
            query, rank, pairs.distances, pairs.keys, lambda: (pairs.shards, pairs.ordinals),
            columns, report,
        )  # fmt: skip

    def _of_rows(
        self,
        query: pa.Array,
        rank: pa.Array,
        distances: NDArray[np.float32],
        keys: NDArray[np.int64],
        in_shard: Callable[[], tuple[NDArray[np.int64], NDArray[np.int64]]],
        columns: Sequence[str],
        report: SearchReport,
    ) -> pa.Table:
        """Return rows as they are given, by the shard and the ordinal in it; see `answer_table`."""
        kept = None
        if columns:
            enter("fetch columns")
            if self._kept.blobs:
                kept = partial(self._kept_values, in_shard, keys)
        return answer_table(
            self._table, self._paths, self._view.sizes, query, rank, distances, keys, columns,
            self._view.schema, report, kept,
        )  # fmt: skip

    def _kept_values(
        self,
        in_shard: Callable[[], tuple[NDArray[np.int64], NDArray[np.int64]]],
        keys: NDArray[np.int64],
        fields: Sequence[NestedField],
    ) -> tuple[NDArray[np.bool_], pa.Table]:
        """Return what the index has of columns of the rows answered; see `Kept`."""
        locators = np.stack([self._file_ids[keys[0]], keys[1], keys[2]])
        return kept_values(self._kept, fields, RowPlaces(*in_shard(), locators))

    @cached_property
    def _file_ids(self) -> NDArray[np.int64]:
        """(files,) int64, ids of the data files, by rank; -1 of those that are not covered."""
        ranks = self._view.rank_of_file_id
        found = np.full(len(self._view.files), -1, np.int64)
        found[ranks.ranks] = ranks.file_ids
        return found

    @cached_property
    def _paths(self) -> Texts:
        """Of the data files, by rank."""
        return Texts(self._view.files)


def _numbers_of(queries: int, k: int) -> tuple[pa.Array, pa.Array]:
    """Return the number of the query and the rank of each of k answers to all, as int32."""
    return (_kept_numbers if queries * k <= KEPT_NUMBERS else _numbers)(queries, k)


def _numbers(queries: int, k: int) -> tuple[pa.Array, pa.Array]:
    query, rank = np.divmod(np.arange(queries * k, dtype=np.int32), np.int32(k))
    rank += np.int32(1)
    for numbers in (query, rank):  # they are shared: nobody may write to them through an answer
        numbers.flags.writeable = False
    return array_of(query), array_of(rank)


_kept_numbers = lru_cache(64)(_numbers)
