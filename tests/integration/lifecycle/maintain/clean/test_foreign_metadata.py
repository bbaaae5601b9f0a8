"""Clean-up where the table may be another's, too: by a second catalog, a backup, its location."""

import os
import shutil
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import AssertTableUUID, SetLocationUpdate

from puffin_ann.lake.commit.tagged_snapshot import is_own_manifest_list
from puffin_ann.lifecycle.maintain import clean as cleaning
from puffin_ann.lifecycle.maintain import rename
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.lifecycle.runs.maintain import clean_table
from puffin_ann.lifecycle.runtime import leases
from tests.support.falsified.damage import corrupt
from tests.support.lake import table_events
from tests.support.lifecycle import builds
from tests.support.servers.other_catalogs import (
    NAME,
    assert_whole,
    catalog_beside,
    commit,
    foreign,
    going,
    kept,
    later,
    local,
    publish,
    publish_versions,
    register,
    rewritten,
)


def files_of(table) -> set[str]:
    root = local(table.location())
    return {os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names}


def test_what_a_second_catalog_has_published_stays(words, elsewhere):
    theirs = publish_versions(elsewhere, "b1", "b2", "b3")
    publish_versions(words, "a1", "a2", "a3")

    for hours in (25, 1000):
        clean(words, at_ms=later(hours))
        assert set(theirs) <= table_events.index_files(words)
        assert_whole(elsewhere)
        assert_whole(words)
    clean(elsewhere, at_ms=later(1000))

    assert_whole(elsewhere)
    assert_whole(words)


def test_what_a_second_catalog_still_names_stays_though_it_is_superseded_here(words, elsewhere):
    (first,) = table_events.index_files(words)
    publish_versions(words, "a1", "a2")

    told = clean(words, at_ms=later(), dry_run=True)
    report = clean(words, at_ms=later())

    assert going(report) == going(told) == {}
    assert elsewhere.metadata_location in kept(report)[first]
    assert kept(told) == kept(report)
    assert_whole(elsewhere)


def test_a_registration_by_a_second_catalog_while_we_clean_is_seen(
    words, tmp_path, known_catalogs, monkeypatch
):
    (first,) = publish_versions(words, "a1")
    then = words.metadata_location
    publish_versions(words, "a2", "a3")
    deregister = cleaning._deregister

    def registered_meanwhile(inventory, due):
        theirs = register(catalog_beside(known_catalogs, tmp_path, "other"), then)
        commit(theirs, "ours, too")
        return deregister(inventory, due)

    monkeypatch.setattr(cleaning, "_deregister", registered_meanwhile)
    report = clean(words, at_ms=later())

    assert going(report) == {}
    assert "names it" in kept(report)[first]


def test_a_second_catalog_that_rests_is_kept_however_much_is_committed_here(words, elsewhere):
    (first,) = table_events.index_files(words)
    commit(elsewhere, "and once more")
    publish_versions(words, "a1", "a2")
    for number in range(120):
        commit(words, f"commit {number}")

    report = clean(words, at_ms=later(1000))

    assert first not in going(report)
    assert_whole(elsewhere)


def test_a_catalog_restored_from_a_backup_takes_nothing_of_what_came_after_it(
    words, tmp_path, known_catalogs
):
    publish_versions(words, "a1")
    shutil.copy(tmp_path / "catalog.db", tmp_path / "backup.db")
    late = publish_versions(words, "a2", "a3", "a4")
    newest = words.refresh().metadata_location
    shutil.copy(tmp_path / "backup.db", tmp_path / "catalog.db")
    restored = load_catalog("test").load_table(NAME)
    assert restored.metadata_location != newest

    report = clean(restored, at_ms=later(1000))

    assert going(report) == {}
    assert set(late) <= kept(report).keys()
    assert any("restored from a backup" in note for note in report.notes)
    assert any(is_own_manifest_list(path.rpartition("/")[2]) for path in kept(report))
    catalog = catalog_beside(known_catalogs, tmp_path, "mended")
    assert_whole(register(catalog, newest))


def test_runs_and_records_of_a_second_catalog_stay(words, elsewhere):
    plan = builds.run.plan_build(
        builds.declaration(name="theirs", table="other.demo.words"), run_id="slow"
    )
    leases.begin("other.demo.words", "theirs", "slow", "build")
    leases.end("other.demo.words", "theirs", "slow")
    lease = f"{local(words.location())}/metadata/_ann-staging/theirs/_lease-00000001"
    assert os.path.exists(lease)

    report = clean(words, at_ms=later(100))

    assert going(report) == {}
    assert os.path.exists(local(plan.plan))
    assert os.path.exists(lease)
    gone = going(clean(words, at_ms=later(24 * 8)))
    assert set(gone.values()) == {"staging"}  # idle for a week, it is nobody's any more
    assert os.path.exists(lease)


def test_a_table_made_anew_in_the_same_place_takes_nothing_of_the_former_one(words):
    former = publish_versions(words, "a1")
    metadata = words.refresh().metadata_location
    catalog = words.catalog
    catalog.drop_table(NAME)
    again = catalog.create_table(NAME, schema=builds.rows([]).schema, location=words.location())
    again.append(builds.rows(range(30)))
    publish_versions(again, "b1")

    report = clean(again, at_ms=later(1000))

    assert going(report) == {}
    assert set(former) <= kept(report).keys()
    assert "another table" in kept(report)[former[0]]
    assert not any(finding.is_problem for finding in foreign(doctor(again)))
    catalog.rename_table(NAME, "demo.again")
    assert_whole(register(catalog, metadata))


def test_nothing_goes_where_the_location_is_another_tables(words, tmp_path, known_catalogs):
    publish_versions(words, "a1", "a2", "a3")
    hostile = words.catalog.create_table("demo.hostile", schema=builds.rows([]).schema)
    hostile.append(builds.rows(range(5)))
    document = rewritten(hostile, location=words.location())
    catalog = catalog_beside(known_catalogs, tmp_path, "hostile")
    table = register(catalog, document)
    before = files_of(words)

    report = clean(table, at_ms=later(1000))

    assert files_of(words) == before
    assert going(report) == {}
    assert "may be another table's" in report.notes[0]
    (found,) = foreign(doctor(table))
    assert found.is_problem
    assert doctor(table, fix=True).problems_left > 0
    assert files_of(words) == before
    assert_whole(words)


@pytest.mark.parametrize("part", ["//", "/./", "/link/"])
def test_a_table_that_spells_anothers_location_differently_removes_nothing_of_it(words, part):
    publish_versions(words, "a1")
    folder, _, name = words.location().rpartition("/")
    os.symlink(local(folder), f"{local(folder)}/link")
    hostile = words.catalog.create_table(
        "demo.hostile", schema=builds.rows([]).schema, location=f"{folder}{part}{name}"
    )
    hostile.append(builds.rows(range(5)))
    before = files_of(words)

    report = clean(hostile, at_ms=later(1000))

    assert going(report) == {}
    assert files_of(words) == before
    assert len(report.kept) > 1
    assert_whole(words)


@pytest.mark.parametrize("part", ["//", "/./", "/link/"])
def test_what_a_second_catalog_names_stays_however_it_spells_the_location(words, elsewhere, part):
    folder, _, name = words.location().rpartition("/")
    os.symlink(local(folder), f"{local(folder)}/link")
    respell(elsewhere, f"{folder}{part}{name}")
    theirs = publish_versions(elsewhere, "b1", "b2")
    publish_versions(words, "a1", "a2")

    for hours in (25, 1000):
        report = clean(words, at_ms=later(hours))
        assert not {path.rpartition("/")[2] for path in theirs} & {
            path.rpartition("/")[2] for path in going(report)
        }
    clean(elsewhere, at_ms=later(1000))

    assert_whole(elsewhere)
    assert_whole(words)


def test_a_table_whose_own_location_is_spelt_anew_keeps_what_it_names(words):
    published = publish_versions(words, "a1", "a2")
    folder, _, name = words.location().rpartition("/")
    os.symlink(local(folder), f"{local(folder)}/link")
    respell(words, f"{folder}/link/{name}")

    report = clean(words, at_ms=later(1000))

    assert os.path.exists(local(published[-1]))
    assert not any("-70756666-696e-" in path for path in going(report))
    assert_whole(words)


def respell(table, location: str) -> None:
    """Let a table's metadata name its folder by another spelling."""
    table._do_commit(
        (SetLocationUpdate(location=location),),
        (AssertTableUUID(uuid=table.metadata.table_uuid),),
    )
    table.refresh()


def test_a_file_of_another_table_is_not_removed_by_being_registered(words):
    theirs, *_ = publish_versions(words, "a1")
    hostile = words.catalog.create_table("demo.hostile", schema=builds.rows([]).schema)
    hostile.append(builds.rows(range(30)))
    first = hostile.current_snapshot().snapshot_id
    (entry, *_) = words.refresh().metadata.statistics
    entry = StatisticsFile.model_validate({**entry.model_dump(), "snapshot-id": first})
    hostile.update_statistics().set_statistics(entry).commit()
    for run in ("b1", "b2", "b3"):
        hostile.refresh().append(builds.rows(range(30)))
        publish(hostile, run)

    report = clean(hostile, at_ms=later(1000))

    assert "outside" in kept(report)[theirs]
    assert_whole(words)


def test_what_is_kept_is_told_where_the_maintenance_is_logged(words, elsewhere):
    (first,) = table_events.index_files(words)
    publish_versions(words, "a1", "a2", retention={"versions": 1, "grace": "0s"})
    told = clean_table("test.demo.words", owner="test")
    assert any(message.startswith(f"kept superseded version {first}") for message in told)
    assert any(
        "commit lost a race, or the table is registered a second time" in message
        for message in told
    )


def test_a_damaged_file_that_a_second_catalog_names_is_not_removed(words, elsewhere):
    (first,) = table_events.index_files(words)
    publish_versions(words, "a1")
    corrupt(local(first))

    found = doctor(words, [builds.declaration()], fix=True)

    assert any(
        action.startswith(f"left damaged file {first} as it is: ") for action in found.actions
    )
    assert os.path.exists(local(first))
    assert [finding.repaired for finding in found.findings if finding.kind == "damaged"] == [False]


def test_a_renamed_index_leaves_its_records_to_a_second_catalog(words, elsewhere):
    folder = leases.index_folder(words, builds.INDEX)
    record = f"{local(folder)}/_evaluation-0000000000001-00000000.json"
    Path(record).write_text("{}")
    beside = set(os.listdir(local(folder)))

    rename._carry_records(words, builds.INDEX, "new_name")

    assert set(os.listdir(local(folder))) == beside
    assert os.path.exists(record.replace(builds.INDEX, "new_name"))


def test_metadata_in_a_folder_of_its_own_is_found_by_its_property(words):
    folder = f"{words.location()}/elsewhere"
    with words.transaction() as transaction:
        transaction.set_properties({"write.metadata.path": folder})
    assert words.refresh().metadata_location.startswith(folder)
    first, *_ = publish_versions(words, "a1", "a2", "a3")
    assert first in going(clean(words, at_ms=later()))
    assert_whole(words)
