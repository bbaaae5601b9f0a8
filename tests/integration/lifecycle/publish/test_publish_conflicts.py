"""A head that moves while an index is being published, on real catalogs, moved by real engines."""

import pytest
from pyiceberg.table.snapshots import Operation

from puffin_ann.lake.metadata.own_tags import own_tags
from tests.support.lifecycle import builds, publications
from tests.support.lifecycle.publications import overtake

pytestmark = pytest.mark.slow

BY_SPARK = {
    "append": "INSERT INTO {t} SELECT id + 100, word, embedding FROM {t} WHERE id < 9",
    "delete": "DELETE FROM {t} WHERE id % 4 = 1",
    "overwrite": "INSERT OVERWRITE {t} SELECT id + 200, word, embedding FROM {t} WHERE id > 7",
    "compaction": "CALL {c}.system.rewrite_data_files(table => '{n}', "
    "options => map('rewrite-all', 'true'))",
}


@pytest.fixture
def words(lake):
    table = lake.create(
        builds.rows(range(30)),
        **{"write.delete.mode": "merge-on-read", "write.parquet.row-group-limit": "10"},
    )
    table.append(builds.rows(range(30, 40)))
    return table


@pytest.mark.parametrize("kind", BY_SPARK)
@pytest.mark.usefixtures("published_by_statistics")
def test_a_head_moved_by_data_is_published_on_top_of(lake, words, monkeypatch, kind):
    plan = publications.staged(lake)
    base = words.refresh().current_snapshot().snapshot_id
    calls = overtake(monkeypatch, lambda: lake.sql(BY_SPARK[kind]))

    publications.publish(plan)

    assert len(calls) == 2, "the first commit was refused, the second was planned anew"
    table = publications.assert_sound(lake)
    assert [entry.snapshot_id for entry in table.metadata.statistics] == [base]
    assert table.current_snapshot().snapshot_id != base
    builds.assert_answers(
        publications.open_index(table, builds.INDEX, base), table, base, publications.QUERIES, 4
    )


@pytest.mark.usefixtures("published_by_statistics")
def test_another_indexs_run_is_carried_along(lake, words, monkeypatch):
    first = publications.staged(lake)
    second = publications.staged(lake, name="second", metric="ip")
    calls = overtake(monkeypatch, lambda: publications.publish(second))
    publications.publish(first)
    assert len(calls) == 3
    table = lake.load()
    current = table.current_snapshot().snapshot_id
    for name in (builds.INDEX, "second"):
        index = publications.open_index(table, name)
        builds.assert_answers(index, table, current, publications.QUERIES, 4)
    (newest,) = {entry.statistics_path for entry in table.metadata.statistics}
    versions = [
        publications.find_versions(table, name).versions[0] for name in (builds.INDEX, "second")
    ]
    assert {version.path for version in versions} == {newest}


@pytest.mark.parametrize("kind", BY_SPARK)
def test_a_head_moved_by_data_does_not_matter_under_a_tag(lake, words, monkeypatch, kind):
    plan = publications.staged(lake)
    base = words.refresh().current_snapshot().snapshot_id
    calls = overtake(monkeypatch, lambda: lake.sql(BY_SPARK[kind]))

    publications.publish(plan)

    assert len(calls) == 1
    table = publications.assert_sound(lake)
    assert [entry.snapshot_id for entry in table.history()][-2] == base
    assert table.current_snapshot().summary.operation != Operation.APPEND or kind == "append"
    index = publications.open_index(table, builds.INDEX, base)
    builds.assert_answers(index, table, base, publications.QUERIES, 4)


def test_another_run_of_the_same_index_is_followed(lake, words, monkeypatch):
    first = publications.staged(lake, run_id="one")
    second = publications.another_run(first, "two")
    overtake(monkeypatch, lambda: publications.publish(second))
    publications.publish(first)
    table = publications.assert_sound(lake)
    assert publications.runs_published(table) == ["two", "one"]


def test_a_twin_of_the_run_publishes_once(lake, words, monkeypatch):
    plan = publications.staged(lake)
    calls = overtake(monkeypatch, lambda: publications.publish(plan))
    published = publications.publish(plan)
    assert len(calls) >= 2
    table = publications.assert_sound(lake)
    assert publications.runs_published(table) == ["run"]
    assert own_tags(table).keys() == {published.snapshot_id}


def test_indexes_of_two_columns_are_published_independently(lake):
    rows = builds.rows(range(40))
    turned = rows.column("embedding").take(list(reversed(range(40))))
    table = lake.create(rows.append_column("other", turned))
    builds.build(builds.declaration(table=lake.named()), "a")
    builds.build(builds.declaration(table=lake.named(), name="mirror", column="other"), "b")
    table.refresh().append(table.scan(row_filter="id < 5").to_arrow())
    builds.build(builds.declaration(table=lake.named(), metric="cosine"), "c")

    table = lake.load()
    mirror = publications.open_index(table, "mirror")
    again = publications.open_index(table, builds.INDEX)
    assert (mirror.metric, again.metric) == ("l2", "cosine")
    assert (mirror.coverage, again.coverage) == (40 / 45, 1.0)
    [nearest] = mirror.search(turned[0].as_py(), 1, columns=["id"], exhaustive=True)["id"]
    assert nearest.as_py() == 0
    assert not lake.leaked(table)
