"""How a search was answered: the version taken, the way through it, what it read, and the time.

It is part of the report in the metadata of an answer's schema, if it was asked for.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from puffin_ann.blobs.version.routing import Routing, ShardEntry, ShardKind
from puffin_ann.declaration import EXACT
from puffin_ann.errors import QueryError
from puffin_ann.search.explain.stages import Stage

Way = Literal[
    "graph",
    "codes",
    "masked graph",
    "masked codes",
    "sifted graph",
    "sifted codes",
    "all rows",
    "allowed rows",
    "gathered rows",
    "ranges",
]
"""Of a shard: its graph, or its codes, both also with rows masked that do not satisfy a condition,
or with those sifted out of what was found; all of its rows, or the allowed, compared one by one
where they lie, or the allowed, gathered; ranges of it, read where it is stored."""

Among = Literal["all", "masked", "sifted"]
"""What becomes of rows that do not satisfy a condition; all are searched where there is none."""

_BUILT: dict[tuple[bool, Among], Way] = {
    (False, "all"): "graph",
    (False, "masked"): "masked graph",
    (False, "sifted"): "sifted graph",
    (True, "all"): "codes",
    (True, "masked"): "masked codes",
    (True, "sifted"): "sifted codes",
}
"""By whether there are codes in the place of a graph."""

METADATA = b"puffin_ann"
"""Key of the report in the metadata of an answer's schema."""


def way_of(algorithm: str, kind: ShardKind, among: Among) -> Way | None:
    """Return the way of a search by what an algorithm builds; None if it builds nothing."""
    if kind == "delta" or algorithm == EXACT:
        return None
    return _BUILT[algorithm == "ivf_pq", among]


@dataclass(frozen=True)
class Opening:
    """How the version was chosen when the index was opened.

    Attributes:
        why: in words.
        seconds: to open the index, which is no part of a search; None if that was not timed.
    """

    why: str
    seconds: float | None


GIVEN = Opening("it was asked for by name", None)
"""Of a version that nothing was chosen by."""


@dataclass(frozen=True)
class ConditionFacts:
    """How the rows that satisfy a condition were found.

    Attributes:
        text: the condition.
        is_kept: whether all of this was known from an earlier search, so that nothing was read.
        files: data files of the snapshot.
        files_out: of those, how many have no such row by partition and statistics.
        files_in: how many have none but such rows by those.
        files_included: how many others were decided by columns that the index includes.
        row_groups: of the other files.
        row_groups_read: of those, how many the statistics in footers did not decide.
        bytes_read: of data files, by this search.
        rows_allowed: live rows that satisfy it.
    """

    text: str
    is_kept: bool
    files: int
    files_out: int
    files_in: int
    files_included: int
    row_groups: int
    row_groups_read: int
    bytes_read: int
    rows_allowed: int


@dataclass(frozen=True)
class ShardWay:
    """How a shard was searched, or all in one go; a shard that was asked again is told twice.

    What is expected is of one thread, with the shard in memory and kernels compiled.

    Attributes:
        shard_id: of the shard; None for the rows of all shards, compared in one go. Where they lie
            in their shards, those are told, too.
        kind: `graph`, `delta` for rows that came later, or `all` for those of all shards.
        way: how.
        rows: of the shard.
        queries: that asked it.
        rows_allowed: of those rows, how many satisfy the condition and are live; None without one.
        width: widest search of a query; None where rows are compared one by one.
        seconds: taken; None where ranges of several shards were read at once.
        estimated_seconds: what it was expected to take; None if nothing tells.
        estimated_once: of these, what is spent on gathering and coding rows, which further searches
            are spared.
        is_first: whether no search had asked the shard since it was opened, or one of all of them,
            so that its pages had to be read first, which nobody expects.
        instead: seconds that other ways were expected to take, where the shard chose for itself;
            gathering and coding are dealt out among the queries asked so far, as the choice does.
    """

    shard_id: int | None
    kind: str
    way: Way
    rows: int
    queries: int
    rows_allowed: int | None = None
    width: int | None = None
    seconds: float | None = None
    estimated_seconds: float | None = None
    estimated_once: float = 0.0
    is_first: bool = False
    instead: Mapping[Way, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, entry: ShardEntry, way: Way, queries: int, rows_allowed: int | None = None
    ) -> "ShardWay":
        """Return how a shard is searched by some queries."""
        return cls(entry.shard_id, entry.kind, way, entry.rows, queries, rows_allowed)

    @classmethod
    def of_all(cls, routing: Routing, way: Way, queries: int, rows_allowed: int) -> "ShardWay":
        """Return how the rows of all shards are compared with some queries."""
        rows = sum(entry.rows for entry in routing.shards)
        return cls(None, "all", way, rows, queries, rows_allowed)

    def expecting(self, seconds: float, once: float, *, is_first: bool) -> "ShardWay":
        """Return it with what it is expected to take; see above."""
        return replace(self, estimated_seconds=seconds, estimated_once=once, is_first=is_first)


@dataclass(frozen=True)
class Explanation:
    """How a search was answered.

    Attributes:
        version: location of the index version's file.
        why_version: why this version, in words.
        opening_seconds: to open the index, before the search; None if that was not timed.
        base_snapshot: whose rows the version covers.
        snapshot: that was searched.
        coverage: share of its live rows that the version covers.
        rows_covered: live rows that the version covers.
        rows_masked: rows of the version that are not live.
        algorithm: of the index.
        condition: how its rows were found; None without one.
        ways_expected: seconds that each way through all shards was expected to take, the way taken
            among them; empty where none had to be chosen. To gather and code rows is dealt out
            among `queries_sharing`.
        queries_sharing: queries that have asked under the condition so far, with these, but for
            those that were sifted and would have gained nothing by it; and as many to come.
        shards: that were searched, those that were asked again after those asked before.
        shards_left_out: how many were not, since they are far from every query.
        files_compared: data files whose rows were compared, by their centroids; None of an index
            with shards.
        rows_scanned: rows outside the index that were compared one by one.
        files_scanned: data files that those are in.
        why_scanned: why the index was not used for those, in words; empty if there are none.
        rows_left_out: live rows outside the index that were not compared, as was asked for.
        columns: that were fetched.
        rows_with_columns: rows answered of which the index includes these.
        bytes_read: by what they are of: the condition, ranges of shards, shards brought to local
            disk, vectors of the table, rows scanned, columns.
        damaged: what could not be read of the index.
        stages: the time, without a gap; to tell all this is the last.
        seconds: all of it.
    """

    version: str
    why_version: str
    opening_seconds: float | None
    base_snapshot: int
    snapshot: int
    coverage: float
    rows_covered: int
    rows_masked: int
    algorithm: str
    condition: ConditionFacts | None
    ways_expected: Mapping[Way, float]
    queries_sharing: int
    shards: Sequence[ShardWay]
    shards_left_out: int
    files_compared: int | None
    rows_scanned: int
    files_scanned: int
    why_scanned: str
    rows_left_out: int
    columns: Sequence[str]
    rows_with_columns: int
    bytes_read: Mapping[str, int]
    damaged: Sequence[str]
    stages: Sequence[Stage] = ()
    seconds: float = 0.0


def with_explanation(
    answers: pa.Table, explanation: Explanation, stages: Callable[[], Sequence[Stage]]
) -> pa.Table:
    """Return answers whose report has an explanation.

    Args:
        answers: as they were found.
        explanation: of them, without the time.
        stages: returns the time until now, the last stage of which is to tell of it.
    """
    metadata = dict(answers.schema.metadata)
    # `asdict` copies whatever is within, which takes longer than to write it.
    told = {
        **vars(explanation),
        "condition": explanation.condition and vars(explanation.condition),
        "shards": [vars(way) for way in explanation.shards],
    }
    *ended, last = stages()
    told["stages"] = [*map(vars, ended), {"name": last.name}]
    del told["seconds"]
    text = json.dumps({**json.loads(metadata[METADATA]), "explanation": told})
    # That ends in the last stage. How long it took is written last, with the time of all, so that
    # hardly anything is left to be done then.
    *ended, last = stages()
    seconds = sum(stage.seconds for stage in ended) + last.seconds
    metadata[METADATA] = f'{text[:-4]}, "seconds": {last.seconds}}}], "seconds": {seconds}}}}}'
    return answers.replace_schema_metadata(metadata)


def explanation_of(answers: pa.Table) -> Explanation:
    """Return how a search was answered.

    Args:
        answers: of `search` or `within`, asked with `explain=True`.

    Raises:
        QueryError: it was not asked for.
    """
    report = json.loads((answers.schema.metadata or {}).get(METADATA, b"{}"))
    told: dict[str, Any] | None = report.get("explanation")
    if told is None:
        raise QueryError("these answers have no explanation; search with explain=True")
    condition = told["condition"]
    return Explanation(
        **{
            **told,
            "condition": condition and ConditionFacts(**condition),
            "shards": tuple(ShardWay(**way) for way in told["shards"]),
            "columns": tuple(told["columns"]),
            "damaged": tuple(told["damaged"]),
            "stages": tuple(Stage(**stage) for stage in told["stages"]),
        }
    )
