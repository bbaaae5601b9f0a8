"""Answers of one version of an index as tables, their columns from wherever they are."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial

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
from puffin_ann.search.results import SearchReport, Texts, answer_table
from puffin_ann.search.version.snapshot_view import SnapshotView


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
        there = merged.sources >= 0
        query, rank = there.nonzero()
        # Most often all are there, and a view of them will do.
        some = slice(None) if len(query) == there.size else there.ravel()
        origin, ordinals = merged.sources.ravel()[some], merged.ordinals.ravel()[some]
        distances = merged.distances.ravel()[some]
        keys = keys_of(sources, origin, ordinals)
        rank += 1
        in_shard = partial(in_shards, sources, origin, ordinals)
        return self._of_rows(query, rank, distances, keys, in_shard, columns, report)

    def of_pairs(self, pairs: Pairs, columns: Sequence[str], report: SearchReport) -> pa.Table:
        """Return pairs as they are given; see `of_nearest`."""
        return self._of_rows(
            pairs.query, pairs.rank, pairs.distances, pairs.keys,
            lambda: (pairs.shards, pairs.ordinals), columns, report,
        )  # fmt: skip

    def _of_rows(
        self,
        query: NDArray[np.int64],
        rank: NDArray[np.int64],
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
            self._view.schema(self._table), report, kept,
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
