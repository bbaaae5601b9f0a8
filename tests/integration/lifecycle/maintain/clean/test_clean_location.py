"""What a dropped table left of ours is removed, where it is proven that no table needs it."""

import json
import os

import pytest

from puffin_ann.errors import BadInputError, StoreUnavailableError
from puffin_ann.lake.metadata import abandoned
from puffin_ann.lake.metadata.files import Unread
from puffin_ann.lifecycle.maintain.clean_location import clean_location
from puffin_ann.moments import now_ms
from tests.support.indexes.tagged_versions import DAY_MS, published
from tests.support.lake import table_events
from tests.support.lifecycle import builds

LATER = now_ms() + 30 * DAY_MS


def files_in(location) -> set[str]:
    root = location.removeprefix("file://")
    return {
        os.path.relpath(os.path.join(folder, name), root)
        for folder, _, names in os.walk(root)
        for name in names
    }


def cleaned(location, **options):
    return clean_location("test", location, **{"at_ms": LATER, **options})


@pytest.fixture
def left(words, catalog):
    """The location of a dropped table, which had an index, and a run that failed."""
    published(words)
    folder = f"{words.location()}/metadata/_ann-staging/{builds.INDEX}/failed"
    os.makedirs(folder.removeprefix("file://"))
    with open(f"{folder}/plan.json".removeprefix("file://"), "w") as plan:
        plan.write("{}")
    location = words.location()
    catalog.drop_table("demo.words")
    return location


def test_index_files_and_staging_go_and_all_else_stays(left):
    before = files_in(left)
    ours = {name for name in before if name.endswith(".puffin") or "_ann-staging" in name}
    assert len(ours) > 1
    planned = cleaned(left, dry_run=True)
    assert files_in(left) == before
    done = cleaned(left)
    assert {os.path.relpath(uri, left) for uri in done.gone} == ours
    assert done.gone == planned.gone
    assert done.bytes > 0
    assert files_in(left) == before - ours
    assert "which no configured catalog has" in done.tables[0]
    assert cleaned(left).gone == ()


@pytest.mark.usefixtures("catalog")
def test_nothing_is_there(tmp_path):
    assert cleaned(f"file://{tmp_path}/nothing/here").gone == ()


@pytest.mark.parametrize("of", ["{}", "{}/", "{}/metadata", "{}/..", "", "words"])
def test_a_location_in_use_is_refused(words, of):
    published(words)
    before = files_in(words.location())
    place = of.format(words.location())
    with pytest.raises(BadInputError, match=r"nothing was removed|is no location"):
        cleaned(place)
    assert files_in(words.location()) == before


def test_a_location_above_a_tables_is_refused(words):
    published(words)
    with pytest.raises(BadInputError, match=r"test\.demo\.words keeps its files in"):
        cleaned(words.location().rpartition("/")[0])


def test_a_table_that_is_registered_again_keeps_its_files(left, catalog):
    newest = max(name for name in files_in(left) if name.endswith("metadata.json"))
    catalog.register_table("demo.back", f"{left}/{newest}")
    before = files_in(left)
    with pytest.raises(BadInputError, match=r"test\.demo\.back keeps its files in"):
        cleaned(left)
    assert files_in(left) == before


def test_files_of_a_table_that_went_elsewhere_are_its_own_by_uuid(left, catalog, tmp_path):
    """Its metadata was copied to another folder, and says that it is there."""
    newest = max(name for name in files_in(left) if name.endswith("metadata.json"))
    with open(f"{left}/{newest}".removeprefix("file://")) as source:
        document = json.load(source)
    elsewhere = f"file://{tmp_path}/elsewhere"
    for key in ("metadata-log", "statistics", "snapshots", "snapshot-log"):
        document[key] = []
    document |= {"location": elsewhere, "refs": {}, "current-snapshot-id": None}
    os.makedirs(f"{tmp_path}/elsewhere/metadata")
    path = f"{tmp_path}/elsewhere/metadata/00009-moved.metadata.json"
    with open(path, "w") as out:
        json.dump(document, out)
    catalog.register_table("demo.moved", f"file://{path}")
    with pytest.raises(BadInputError, match=r"test\.demo\.moved is the one that metadata files"):
        cleaned(left)


def test_what_was_written_lately_keeps_all(left):
    with pytest.raises(BadInputError, match="within the grace period"):
        clean_location("test", left)
    with pytest.raises(BadInputError, match="it must be a number"):
        cleaned(left, grace="soon")
    assert cleaned(left, at_ms=now_ms() + 5000, grace="1s").gone


def test_damaged_and_unreadable_are_two_things(left, monkeypatch):
    (index_file,) = (name for name in files_in(left) if name.endswith(".puffin"))
    path = f"{left}/{index_file}".removeprefix("file://")
    os.truncate(path, 40)
    report = cleaned(left, dry_run=True)
    assert f"{left}/{index_file}" not in report.gone
    assert "is damaged, so that it is not known what it holds" in report.kept[0]
    metadata = next(name for name in files_in(left) if name.endswith("metadata.json"))
    os.truncate(f"{left}/{metadata}".removeprefix("file://"), 40)
    with pytest.raises(BadInputError, match=r"metadata\.json is damaged"):
        cleaned(left)
    unread = {"x": Unread("timed out", is_damaged=False)}
    monkeypatch.setattr(abandoned.MetadataReader, "heads", lambda *_: unread)
    with pytest.raises(StoreUnavailableError, match="timed out"):
        cleaned(left)


def test_the_command_asks_for_the_location(left, cli, monkeypatch):
    before = files_in(left)
    given = ("clean", "test", "--location", left, "--grace", "0s")
    code, out, _ = cli(*given, "--dry-run")
    assert (code, "would go" in out) == (0, True)
    code, _, err = cli(*given, "--json")
    assert (code, "give --force or --dry-run" in err) == (2, True)
    monkeypatch.setattr("typer.prompt", lambda *_, **__: "y")
    code, _, err = cli(*given)
    assert (code, "that is not the location" in err) == (2, True)
    assert files_in(left) == before
    monkeypatch.setattr("typer.prompt", lambda *_, **__: left)
    code, out, _ = cli(*given)
    assert (code, "removed" in out) == (0, True)
    assert files_in(left) < before
    code, out, _ = cli(*given, "--force", "--json")
    assert (code, json.loads(out)["gone"]) == (0, [])


def test_what_each_way_to_drop_a_table_leaves(words, catalog):
    """PyIceberg's purge takes no statistics files; Spark's does, see `test_spark_procedures`."""
    published(words)
    table_events.assert_alive(words)
    location = words.location()
    catalog.purge_table("demo.words")
    left = files_in(location)
    assert not [name for name in left if name.endswith((".parquet", ".metadata.json"))]
    assert [name for name in left if name.endswith(".puffin")]
    assert cleaned(location).gone
    assert not [name for name in files_in(location) if name.endswith(".puffin")]
