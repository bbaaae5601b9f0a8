"""Decide what a build run does: pure, from the declaration, the table's state and its versions."""

from collections.abc import Sequence
from dataclasses import dataclass

from puffin_ann.blobs.shape import IndexShape
from puffin_ann.blobs.sizes import partitions_size
from puffin_ann.declaration import CENTROID, IndexDeclaration
from puffin_ann.errors import BadInputError, TooFewRowsError
from puffin_ann.lifecycle.documents.run import AssignTask, PlannedFile
from puffin_ann.puffin.layout import MAX_JAVA_BLOB

FINGERPRINT = "fingerprint"
"""Key of the routing blob's properties that holds the declaration's fingerprint."""

COLUMN_TYPE = "column-type"
"""Key of the routing blob's properties that holds the type of the indexed column's elements."""


@dataclass(frozen=True)
class Published:
    """What a build has to know of a published version.

    Attributes:
        fingerprint: of the declaration it was built by.
        is_current: it covers exactly the rows that are live now.
        recall: that was measured before it was published; 1 where nothing had to be.
    """

    fingerprint: str
    is_current: bool
    recall: float


def nothing_to_do(
    declaration: IndexDeclaration, newest: Published | None, *, force: bool
) -> str | None:
    """Say why nothing has to be built, or None if a build is due.

    Args:
        declaration: in force for this run.
        newest: the newest version, if there is one.
        force: build whatever is published.
    """
    if force or newest is None or not newest.is_current:
        return None
    if newest.fingerprint != declaration.fingerprint():
        return None
    if newest.recall < declaration.recall_target:
        return None  # the target was raised: the build measures anew how wide to search
    return "the published version covers exactly the live rows, with the same declaration"


def check_rows(table: str, rows: int) -> None:
    """Refuse a table without rows.

    Fewer rows than partitions are no harm: some partitions are empty then. Nor are fewer than
    shards: a young table gets as many as it can fill.

    Raises:
        TooFewRowsError: there is nothing to index.
    """
    if rows == 0:
        raise TooFewRowsError(f"table {table} has no live rows; there is nothing to index")


def shards_for(declaration: IndexDeclaration, rows: int) -> int:
    """Return how many shards are built of so many rows: the declared ones, if that many can be."""
    return min(declaration.shards_built, rows)


def check_partitions(declaration: IndexDeclaration, rows: int, dimension: int) -> None:
    """Refuse more partitions than one blob holds, which is written when all else is built.

    That it is compressed does not count: centroids hardly can be.

    Args:
        declaration: of the index.
        rows: of the table.
        dimension: width of its vectors.

    Raises:
        BadInputError: says how many there may be.
    """
    if declaration.algorithm == CENTROID:
        return
    shape = IndexShape(
        rows,
        dimension,
        metric=declaration.metric,
        shards=shards_for(declaration, rows),
        partitions_per_shard=declaration.partitions_per_shard,
    )
    size = partitions_size(shape)
    if size <= MAX_JAVA_BLOB:
        return
    most = declaration.partitions_per_shard * MAX_JAVA_BLOB // size
    advice = f"a partitions_per_shard of at most {most}" if most else "fewer shards"
    raise BadInputError(
        f"index {declaration.name!r}: the centroids of {shape.shards} shards of "
        f"{shape.partitions_per_shard} partitions, in {dimension} dimensions, are stored in one "
        f"blob, which would have {size:,} bytes; Iceberg's Java reader takes at most "
        f"{MAX_JAVA_BLOB:,}: declare {advice}"
    )


def assign_tasks(
    files: Sequence[PlannedFile], *, row_bytes: int, task_bytes: int
) -> tuple[AssignTask, ...]:
    """Split the table's files into tasks of about `task_bytes` of vectors each.

    Small files share a task, large ones are cut into parts by row group. Tasks keep the order of
    files and row groups, so that rows stay in locator order from the table to the shard.

    Args:
        files: in the order of their file ids.
        row_bytes: bytes of one vector in memory.
        task_bytes: vector bytes that one task may hold.
    """
    tasks: list[AssignTask] = []
    parts: list[tuple[int, int, int]] = []
    filled = 0
    for number, file in enumerate(files):
        size = file.rows * row_bytes
        cuts = max(1, -(-size // task_bytes))
        for part in range(cuts):
            share = size // cuts
            if parts and filled + share > task_bytes:
                tasks.append(AssignTask(parts=tuple(parts)))
                parts, filled = [], 0
            parts.append((number, part, cuts))
            filled += share
    if parts:
        tasks.append(AssignTask(parts=tuple(parts)))
    return tuple(tasks)


GROUP_BYTES = 128 << 20
"""Vectors that are worth a Spark application of their own: fewer are built while one starts."""


def submits(vector_bytes: int, most: int) -> int:
    """Return to how many Spark applications shards with so many bytes of vectors are dealt."""
    return max(1, min(most, vector_bytes // GROUP_BYTES))


def shard_groups(shards: int, max_submits: int) -> dict[str, tuple[int, ...]]:
    """Deal the shards to at most `max_submits` groups of equal size.

    Shards hold about the same number of rows, since partitions are dealt to them by expected rows.
    Without shards there is one group all the same, of none: Airflow skips what has no group.
    """
    groups = max(1, min(shards, max_submits))
    bounds = [shards * number // groups for number in range(groups + 1)]
    return {
        f"{number:03d}": tuple(range(bounds[number], bounds[number + 1]))
        for number in range(groups)
    }


def sample_rows(rows: int, partitions: int, *, row_bytes: int, sample_bytes: int) -> int:
    """Return how many rows to train on: the larger of 1 % and 256 per centroid, within bounds."""
    wanted = max(-(-rows // 100), 256 * partitions)
    return max(partitions, min(rows, wanted, sample_bytes // row_bytes))
