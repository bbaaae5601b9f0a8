"""Which rows that left their files reappear in others, in tables that Spark rewrites."""

from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest

from puffin_ann.lake.read.data.vector_column import table_vector_column
from puffin_ann.lake.read.data.vectors import vectors_of
from puffin_ann.lake.read.deletes.row_deletes import deleted_positions
from puffin_ann.lake.read.files.live_files import live_files
from puffin_ann.lake.read.identity.row_identity import hash_rows, match_identities
from puffin_ann.lake.read.identity.row_lineage import row_lineage
from tests.support.lifecycle import builds

pytestmark = pytest.mark.slow

TURN = "UPDATE {t} SET embedding = transform(embedding, x -> CAST(-x AS FLOAT)) WHERE "
REWRITE = "CALL {c}.system.rewrite_data_files(table => '{n}', options => map('rewrite-all','true'))"


def located(table, snapshot_id=None):
    """Live rows of a snapshot: by (path, position), the identity, the id and the vector."""
    files = live_files(table, snapshot_id)
    deleted = deleted_positions(table, files)
    name = table_vector_column(table, "embedding").name
    rows = {}
    for file in files:
        with table.io.new_input(file.path).open() as stream:
            parquet = pq.ParquetFile(stream)
            position = 0
            for group in range(parquet.num_row_groups):
                data = parquet.read_row_group(group, columns=["id", name])
                vectors = vectors_of(data.column(name), builds.DIMENSION).matrix
                if table.metadata.format_version > 2:
                    identities = row_lineage(parquet, file, group)
                else:
                    identities = hash_rows(vectors, data.column("id"))
                for at in range(len(data)):
                    if position not in deleted.get(file.path, ()):
                        value = (data.column("id")[at].as_py(), vectors[at].tobytes())
                        rows[file.path, position] = (tuple(identities[at].tolist()), value)
                    position += 1
    return rows


def pairs(before, after):
    """Match rows that left their place with rows in new places; gives (old, new) or (old, None)."""
    gone = [row for place, row in before.items() if place not in after]
    come = [row for place, row in after.items() if place not in before]

    def identities(rows):
        return np.array([row[0] for row in rows], dtype=np.uint64).reshape(-1, 2)

    places = match_identities(identities(gone), identities(come))
    return [
        (old, come[place] if place >= 0 else None)
        for old, place in zip(gone, places.tolist(), strict=True)
    ]


def assert_right(before, after) -> Counter:
    """Paired rows are equal in id and vector, and every row that could be paired is."""
    found = pairs(before, after)
    for old, new in found:
        assert new is None or new[1] == old[1], "paired with another row"
    gone = Counter(row[1] for place, row in before.items() if place not in after)
    come = Counter(row[1] for place, row in after.items() if place not in before)
    paired = Counter(old[1] for old, new in found if new is not None)
    assert not paired - (gone & come)
    return (gone & come) - paired


@pytest.fixture(params=["v2", "v3"])
def table(request, rest_lake):
    """60 rows, one in seven with the vector of another, in several files of several row groups."""
    rows = builds.rows(range(40))
    modes = {
        f"write.{kind}.mode": mode
        for kind, mode in (
            ("delete", "merge-on-read"),
            ("update", "copy-on-write"),
            ("merge", "copy-on-write"),
        )
    }
    if request.param == "v3":
        table = rest_lake.create_by_spark(rows, **modes)
    else:
        table = rest_lake.create(rows, **modes)
    rest_lake.sql("INSERT INTO {t} SELECT id + 40, word, embedding FROM {t} WHERE id < 20")
    return table.refresh()


def test_rows_are_known_again_after_every_rewrite(rest_lake, table):
    before = located(table)
    for step in (
        REWRITE,
        "DELETE FROM {t} WHERE id % 6 = 2",
        TURN + "id % 9 = 0",
        REWRITE,
        "MERGE INTO {t} t USING (SELECT id FROM {t} WHERE id > 50) s ON t.id = s.id "
        "WHEN MATCHED THEN DELETE",
        "INSERT INTO {t} SELECT id + 500, word, embedding FROM {t} WHERE id < 7",
    ):
        rest_lake.sql(step)
        after = located(table.refresh())
        assert not assert_right(before, after), "a row reappeared unknown"
        before = after


def test_an_update_that_is_rolled_back_is_another_row(rest_lake, table):
    start = table.current_snapshot().snapshot_id
    rest_lake.sql(TURN + "id < 10")
    updated = located(table.refresh())
    rest_lake.sql(f"CALL {{c}}.system.rollback_to_snapshot('{{n}}', {start})")
    rest_lake.sql(REWRITE)
    after = located(table.refresh())
    assert not assert_right(updated, after)
    changed = [new for old, new in pairs(updated, after) if old[1][0] < 10]
    assert changed
    assert all(new is None for new in changed)


def test_a_second_update_after_a_rollback_is_told_from_the_first(rest_lake, table):
    """Row ids are the same in both, and both are the first update of the row."""
    start = table.current_snapshot().snapshot_id
    rest_lake.sql(TURN + "id < 10")
    first = located(table.refresh())
    rest_lake.sql(f"CALL {{c}}.system.rollback_to_snapshot('{{n}}', {start})")
    rest_lake.sql(
        "UPDATE {t} SET embedding = transform(embedding, x -> CAST(x + 1 AS FLOAT)) WHERE id < 10"
    )
    second = located(table.refresh())
    assert_right(first, second)
    assert all(new is None for old, new in pairs(first, second) if old[1][0] < 10)
