"""Mode `statistics`: registration under the base snapshot, whose one slot others fill, too."""

import json

import pytest

from puffin_ann.errors import UnsupportedTableError
from puffin_ann.lake.commit import commit_index_file
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.runs import build
from puffin_ann.puffin import PuffinReader
from tests.support.lake import table_events
from tests.support.lifecycle import builds, publications

pytestmark = pytest.mark.slow

THETA = "apache-datasketches-theta-v1"
ANALYSE = "CALL {c}.system.compute_table_stats(table => '{n}', columns => array('id'))"
BOOKKEEPING = {"statistics", "metadata-log", "last-updated-ms"}


def document(table) -> dict:
    with table.io.new_input(table.metadata_location).open() as stream:
        return json.loads(stream.read())


def blob_types(table, path) -> set[str]:
    with table.io.new_input(path).open() as stream:
        return {blob.type for blob in PuffinReader(stream, name=path).metadata.blobs}


def slot(table, snapshot_id):
    [entry] = [
        entry for entry in table.refresh().metadata.statistics if entry.snapshot_id == snapshot_id
    ]
    return entry


def test_a_v3_table_gets_its_index_and_loses_nothing(rest_lake):
    lake = rest_lake
    table = lake.create_by_spark(builds.rows(range(40)))
    lake.sql("DELETE FROM {t} WHERE id % 5 = 0")
    before = document(table.refresh())
    base = table.current_snapshot().snapshot_id
    declared = builds.declaration(table=lake.named(), publish="statistics")
    builds.build(declared, "run")

    after = document(table.refresh())
    assert {k: v for k, v in after.items() if k not in BOOKKEEPING} == {
        k: v for k, v in before.items() if k not in BOOKKEEPING
    }
    assert slot(table, base).statistics_path.endswith(".puffin")
    index = publications.open_index(table, builds.INDEX)
    builds.assert_answers_are(index, lake.rows(), publications.QUERIES, 4)
    assert index.coverage == 1.0

    lake.sql("INSERT INTO {t} SELECT id + 100, word, embedding FROM {t} WHERE id < 9")
    lake.sql("DELETE FROM {t} WHERE id % 7 = 0")
    ids = lake.sql("SELECT _row_id AS number FROM {t}")
    assert len({row_id.number for row_id in ids}) == len(ids)
    index = publications.open_index(table.refresh(), builds.INDEX)
    builds.assert_answers_are(index, lake.rows(), publications.QUERIES, 4)
    assert index.coverage < 1
    builds.build(declared, "again")
    index = publications.open_index(table.refresh(), builds.INDEX)
    assert index.coverage == 1.0
    builds.assert_answers_are(index, lake.rows(), publications.QUERIES, 4)
    old = publications.open_index(table, builds.INDEX, base)
    builds.assert_answers_are(old, lake.rows(f"VERSION AS OF {base}"), publications.QUERIES, 4)


def test_a_table_of_version_1_has_no_tag_of_ours(catalog):
    properties = {"format-version": "1"}
    table = catalog.create_table("demo.words", builds.rows([]).schema, properties=properties)
    table.append(builds.rows(range(30)))
    before = table.refresh().metadata.refs, len(table.snapshots())
    first = table_events.publish(table, "a")
    assert (table.metadata.refs, len(table.snapshots())) == before
    assert slot(table, table.current_snapshot().snapshot_id).statistics_path == first
    table.append(builds.rows(range(30, 40)))
    second = table_events.publish(table, "b")
    assert slot(table, table.current_snapshot().snapshot_id).statistics_path == second
    table_events.assert_alive(table)
    assert guard(table).actions == ()
    table.append(builds.rows(range(40, 45)))
    assert len(guard(table).actions) == 1
    table_events.expire_all_but_head(table)
    table_events.assert_alive(table)


def test_what_a_v3_table_cannot_have_is_refused_before_anything_is_built(embedded_lake):
    embedded_lake.create_by_spark(builds.rows(range(20)))
    declared = builds.declaration(table=embedded_lake.named())
    with pytest.raises(UnsupportedTableError, match="use a REST catalog"):
        build.plan_build(declared, run_id="run")


def test_statistics_that_stood_in_the_slot_are_carried_and_listed(lake):
    table = lake.create(builds.rows(range(40)))
    lake.sql(ANALYSE)
    theirs = table.refresh().metadata.statistics[0]
    builds.build(builds.declaration(table=lake.named(), publish="statistics"), "run")
    ours = slot(table, theirs.snapshot_id)
    assert ours.statistics_path != theirs.statistics_path
    assert [(blob.type, blob.fields, blob.properties) for blob in ours.blob_metadata] == [
        (blob.type, blob.fields, blob.properties) for blob in theirs.blob_metadata
    ]
    assert THETA in blob_types(table, ours.statistics_path)
    assert len(table.snapshots()) == 1


def test_several_indexes_share_one_slot(lake):
    table = lake.create(builds.rows(range(40)))
    for name, metric in (("first", "l2"), ("second", "ip")):
        declared = builds.declaration(
            table=lake.named(), name=name, metric=metric, publish="statistics"
        )
        builds.build(declared, f"run-{name}")
    assert len(table.refresh().snapshots()) == 1
    [entry] = table.metadata.statistics
    for name in ("first", "second"):
        index = publications.open_index(table, name)
        builds.assert_answers(index, table, entry.snapshot_id, publications.QUERIES, 4)


def test_statistics_written_between_our_look_and_our_commit_are_not_overwritten(
    rest_lake, proxied_lake, catalog_proxy, monkeypatch
):
    """No requirement of a catalog guards the slot, so this is made good after the fact."""
    monkeypatch.setattr(commit_index_file, "WAIT_SECONDS", 0.01)
    table = rest_lake.create(builds.rows(range(40)))
    base = table.current_snapshot().snapshot_id
    plan = publications.staged(proxied_lake, publish="statistics")

    def analyse_first(exchange):
        rest_lake.sql(ANALYSE)
        return exchange.send()

    catalog_proxy.faults = [analyse_first]
    published = publications.publish(plan)

    entry = slot(table, base)
    assert [blob.type for blob in entry.blob_metadata] == [THETA]
    assert THETA in blob_types(table, entry.statistics_path)
    assert entry.statistics_path == published.path
    for entry in table.metadata.statistics:
        assert table.io.new_input(entry.statistics_path).exists()
    puffins = {file for file in rest_lake.files(table) if file.endswith(".puffin")}
    named = {entry.statistics_path for entry in table.metadata.statistics}
    assert {puffin for puffin in puffins - named if "/_ann-staging/" not in puffin} == set()
    index = publications.open_index(table, builds.INDEX)
    builds.assert_answers(
        index, table, table.current_snapshot().snapshot_id, publications.QUERIES, 4
    )


def test_statistics_written_while_the_file_is_assembled_are_carried(lake, monkeypatch):
    from tests.support.lifecycle.publications import overtake

    table = lake.create(builds.rows(range(40)))
    base = table.current_snapshot().snapshot_id
    plan = publications.staged(lake, publish="statistics")
    calls = overtake(monkeypatch, lambda: lake.sql(ANALYSE))
    publications.publish(plan)
    assert len(calls) == 2
    assert [blob.type for blob in slot(table, base).blob_metadata] == [THETA]
    index = publications.open_index(table, builds.INDEX)
    builds.assert_answers(index, table, base, publications.QUERIES, 4)
    assert len([file for file in lake.files(table) if file.endswith(".puffin")]) == 1


def test_an_index_of_an_old_snapshot_is_registered_there(lake):
    """Backfill: the slot of a snapshot that has long been followed by others."""
    from puffin_ann.lake.commit.attempt import Request
    from puffin_ann.lake.commit.commit_index_file import commit_index_file

    table = lake.create(builds.rows(range(20)))
    old = table.current_snapshot().snapshot_id
    table.append(builds.rows(range(20, 30)))
    path = f"{table.location()}/metadata/ann-words-old.puffin"
    with table.io.new_output(path).create() as out:
        out.write(b"PFA1" + bytes(60))
    published = commit_index_file(
        table,
        Request(
            expected_head=table.current_snapshot().snapshot_id,
            base_snapshot_id=old,
            path=path,
            file_size=64,
            footer_size=28,
            summary={"ann.words.run-id": "backfill"},
            mode="statistics",
        ),
    )
    assert published.snapshot_id == old
    assert slot(table, old).statistics_path == path
    assert len(table.snapshots()) == 2
    assert lake.sql("SELECT count(*) FROM {t}")[0][0] == 30
