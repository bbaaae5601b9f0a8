"""A layered index is renamed without being copied: what the new name needs stays."""

import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from puffin_ann import open_index
from puffin_ann.errors import IndexNotFoundError
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lake.metadata.own_tags import own_tags
from puffin_ann.lake.store.objects import object_exists
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.drop import drop
from puffin_ann.lifecycle.maintain.gather import gather
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.maintain.rename import rename
from puffin_ann.lifecycle.publish import layers
from puffin_ann.lifecycle.retention import tags
from puffin_ann.lifecycle.retention.tags import superseded_tags, tagged_versions
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.moments import now_ms
from puffin_ann.search.version.versions import all_index_names, find_versions
from puffin_ann.settings import settings as library_settings
from tests.support.falsified import damage
from tests.support.indexes.tagged_versions import DAY_MS, later, published, tagged_files
from tests.support.lake import table_events
from tests.support.lake.tables import delete_positions
from tests.support.lifecycle import builds, refreshes

pytestmark = pytest.mark.usefixtures("layered")

DECLARED = refreshes.declared(
    publish="tag", refresh={"min_rows": 0, "max_lag": "0s", "delta_ratio": 1.0}
)
NEW = "renamed"


def named(name):
    return DECLARED.model_copy(update={"name": name})


@pytest.fixture
def first(words):
    """The file of a whole build."""
    return published(words, algorithm="exact", recall_target=0.5)


def follow(table, number, name=builds.INDEX):
    """Append rows, delete one, and refresh."""
    start = 1000 + 100 * number
    table.refresh().append(builds.rows(range(start, start + 4)))
    file = next(iter(table.refresh().scan().plan_files())).file
    delete_positions(table, {file.file_path: [number]})
    refresh_in_process(named(name), run_id=f"refresh-{number}", force=True)
    table.refresh()


def renamed(table, before=builds.INDEX, after=NEW):
    report = rename(before, named(after), [named(after)])
    table.refresh()
    return report


def newest(table, name=NEW):
    return find_versions(table.refresh(), name).versions[0]


def exists(table, path):
    return object_exists(table.io, path)


def assert_right(table, name=NEW):
    """Hold an index to brute force; one that was just opened reads nothing of a cache."""
    damage.forget_cache()
    index = open_index(table.refresh(), name)
    rows = builds.live(table)
    for k in (3, len(rows[0]) + 2):
        builds.assert_answers_are(index, rows, refreshes.QUERIES, k)
    assert (index.coverage, index.damage) == (1.0, ())


def test_no_shard_is_copied(words, first):
    follow(words, 0)
    before = newest(words, builds.INDEX)
    foretold = rename(builds.INDEX, named(NEW), [named(NEW)], dry_run=True)
    assert (foretold.file, foretold.snapshot_id, foretold.dry_run) == ("", None, True)
    assert all_index_names(words.refresh()) == [builds.INDEX]
    report = renamed(words)
    version = newest(words)
    assert version.path == report.file
    assert version.needs == {first, before.path}
    assert report.bytes_copied == foretold.bytes_copied
    shards = {blob.shard for blob in version.directory.blobs}
    assert shards >= {shard.shard_id for shard in version.routing.shards}
    assert all_index_names(words) == [NEW]
    assert_right(words)
    assert guard(words, [named(NEW)]).actions == ()
    assert doctor(words, [named(NEW)]).findings == ()


def test_what_is_large_is_named_alone_and_nothing_is_copied(words, first, monkeypatch):
    monkeypatch.setattr(layers, "SMALL_PARTITIONS", 0)
    report = renamed(words)
    assert report.bytes_copied == 0
    assert newest(words).needs == {first}
    assert_right(words)


def test_a_small_index_is_one_file_under_its_new_name(words, first, monkeypatch):
    monkeypatch.setenv("PUFFIN_ANN_WHOLE_FILE_BYTES", str(1 << 20))
    library_settings.cache_clear()
    report = renamed(words)
    assert newest(words).needs == frozenset()
    assert report.bytes_copied > 0
    clean(words, [named(NEW)], at_ms=later())
    assert tagged_files(words) == {report.file}
    assert_right(words)


def test_files_of_the_old_name_stay_while_the_new_one_needs_them_and_go_then(words, first):
    follow(words, 0)
    follow(words, 1)
    needed = {newest(words, builds.INDEX).path, *newest(words, builds.INDEX).needs}
    renamed(words)
    report = clean(words, [named(NEW)], at_ms=later())
    assert {stays.location for stays in report.needed} == needed == newest(words).needs
    assert tagged_files(words) == {newest(words).path, *needed}
    assert_right(words)
    whole = gather(words, NEW).file
    follow(words, 2, NEW)
    follow(words, 3, NEW)
    clean(words, [named(NEW)], at_ms=later())
    assert not any(exists(words, path) for path in needed)
    assert whole in newest(words).needs
    assert_right(words)


def test_dropping_the_new_name_leaves_nothing_of_either(words, first):
    follow(words, 0)
    renamed(words)
    paths = tagged_files(words)
    told = drop(words, NEW, [], dry_run=True)
    report = drop(words, NEW, [])
    assert [action.replace("would deregister", "deregistered") for action in told.actions] == list(
        report.actions
    )
    assert set(report.deregistered) == paths
    of_before = [action for action in report.actions if "before" in action]
    assert all(f"index '{builds.INDEX}'" in action for action in of_before)
    assert len(of_before) == 2
    assert own_tags(words.refresh()) == {}
    assert all(exists(words, path) for path in paths)
    early = clean(words, [], at_ms=now_ms() + DAY_MS - table_events.HOUR_MS)
    assert not early.gone
    clean(words, [], at_ms=later())
    assert not any(exists(words, path) for path in paths)


def test_what_was_dropped_long_ago_goes_a_grace_after_who_needed_it(words, first, monkeypatch):
    renamed(words)
    monkeypatch.setattr("puffin_ann.lifecycle.versions.inventory.now_ms", later)
    drop(words, NEW, [])
    words.refresh()
    clean(words, [], at_ms=later() + DAY_MS - table_events.HOUR_MS)
    assert exists(words, first)
    clean(words, [], at_ms=later() + DAY_MS + table_events.HOUR_MS)
    assert not exists(words, first)


def test_the_former_name_cannot_be_dropped_once_more(words, first):
    renamed(words)
    with pytest.raises(IndexNotFoundError, match="was dropped before"):
        drop(words, builds.INDEX, [])
    assert_right(words)


def test_an_index_built_under_the_former_name_takes_no_tag_of_the_new_one(
    words, first, monkeypatch
):
    monkeypatch.setattr(tags, "TAGGED_VERSIONS", 1)
    monkeypatch.setattr(layers, "MOST_FILES", 2)
    follow(words, 0)
    renamed(words)
    builds.build(named(builds.INDEX), "again", {"force": True})
    for number in range(1, 5):
        follow(words, number, builds.INDEX)
    assert newest(words).needs <= tagged_files(words)
    (version,) = tagged_versions(words, NEW)
    assert version.needs == {
        own_tags(words)[slot]
        for slot, entry in slots(words).items()
        if entry.statistics_path in newest(words).needs
    }
    assert not superseded_tags(words, builds.INDEX, DECLARED.retention, set(), now_ms()) & {
        slot for slot, tag in own_tags(words).items() if tag in version.needs
    }
    refresh_in_process(named(NEW), run_id="the renamed one", force=True)
    assert_right(words)
    assert_right(words, builds.INDEX)


def test_the_guard_keeps_what_holds_only_versions_of_the_former_name(words, first):
    follow(words, 0)
    renamed(words)
    change = words.manage_snapshots()
    for tag in own_tags(words).values():
        change = change.remove_tag(tag)
    change.commit()
    needed = newest(words).needs
    assert len(guard(words.refresh(), [named(NEW)]).actions) == 3
    assert {newest(words).path, *needed} <= tagged_files(words)
    (slot,) = [slot for slot, entry in slots(words).items() if entry.statistics_path == first]
    table_events.drop_registration(words, slot)
    assert f"registered {first}" in guard(words.refresh(), [named(NEW)]).actions[0]
    table_events.expire_all_but_head(words)
    assert_right(words)
    assert doctor(words, [named(NEW)]).problems_left == 0


def test_an_index_gets_the_name_back_that_it_had(words, first):
    renamed(words)
    renamed(words, NEW, builds.INDEX)
    assert all_index_names(words) == [builds.INDEX]
    assert_right(words, builds.INDEX)
    follow(words, 0)
    clean(words, [DECLARED], at_ms=later())
    assert_right(words, builds.INDEX)
    assert guard(words, [DECLARED]).actions == ()


def test_a_damaged_shard_in_a_file_of_the_former_name_is_made_again(words, first):
    renamed(words)
    damage.corrupt(first.removeprefix("file://"), "graph", 0)
    damage.forget_cache()
    assert damage.damaged(doctor(words, [named(NEW)]))
    assert doctor(words, [named(NEW)], fix=True).problems_left == 0
    assert_right(words)


def test_a_version_lost_after_the_renaming_is_published_again_from_the_one_before(words, first):
    follow(words, 0)
    report = renamed(words)
    words.io.delete(report.file)
    clean(words.refresh(), [named(NEW)])
    again = renamed(words)
    assert again.file != report.file
    assert_right(words)


class Life:
    """An index that changes its name, and one that takes the name which is free then."""

    def __init__(self, table) -> None:
        self.table = table
        self.steps = 0
        self.name, self.other = builds.INDEX, ""
        published(table, algorithm="exact", recall_target=0.5)

    def follow(self):
        follow(self.table, self.steps, self.name)

    def rename(self):
        if not self.other:
            before, self.name = self.name, self._free()
            renamed(self.table, before, self.name)

    def gather(self):
        gather(self.table, self.name)

    def guard(self):
        guard(self.table, [named(self.name)])

    def clean(self):
        clean(self.table, [named(self.name)], at_ms=later(), grace="0s")

    def build_under_the_former_name(self):
        if not self.other:
            self.other = self._free()
            builds.build(named(self.other), f"other-{self.steps}", {"force": True})

    def drop_what_has_the_former_name(self):
        if self.other:
            drop(self.table, self.other, [])
            self.other = ""

    def lose_a_tag(self):
        held = sorted(own_tags(self.table).values())
        self.table.manage_snapshots().remove_tag(held[self.steps % len(held)]).commit()
        guard(self.table.refresh(), [named(self.name)])
        table_events.expire_all_but_head(self.table)

    def check(self):
        version = newest(self.table, self.name)
        assert {version.path, *version.needs} <= tagged_files(self.table)
        for name in filter(None, (self.name, self.other)):
            assert_covered(self.table, name)

    def _free(self) -> str:
        return NEW if self.name == builds.INDEX else builds.INDEX


STEPS = sorted(name for name in vars(Life) if not name.startswith("_") and name != "check")


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(st.sampled_from(STEPS), min_size=4, max_size=9), few=st.booleans())
def test_whatever_comes_between_renamings_the_index_is_right_and_nothing_needed_goes(
    catalog, steps, few
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tags, "TAGGED_VERSIONS", 1 if few else 8)
        patch.setattr(layers, "MOST_FILES", 2 if few else 12)
        life = Life(table_anew(catalog))
        for step in [*steps, "rename", "clean", "follow"]:
            life.steps += 1
            life.table.refresh()
            getattr(life, step)()
            life.check()
        assert guard(life.table.refresh(), [named(life.name)]).actions == ()


def table_anew(catalog):
    """The table as it was before the examples before this one."""
    if catalog.table_exists("demo.words"):
        folder = catalog.load_table("demo.words").location()
        catalog.drop_table("demo.words")
        shutil.rmtree(folder.removeprefix("file://"))
    properties = {"write.parquet.row-group-limit": "10"}
    table = catalog.create_table("demo.words", builds.rows([]).schema, properties=properties)
    table.append(builds.rows(range(30)))
    table.append(builds.rows(range(30, 60)))
    return table


def assert_covered(table, name):
    """Hold an index to brute force at the head, whatever it covers of it."""
    damage.forget_cache()
    index = open_index(table.refresh(), name)
    rows = builds.live(table)
    builds.assert_answers_are(index, rows, refreshes.QUERIES, 3)
    builds.assert_answers_are(index, rows, refreshes.QUERIES[:1], len(rows[0]) + 2)
    assert index.damage == ()
