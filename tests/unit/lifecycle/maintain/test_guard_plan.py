"""What the guard decides: which registrations keep every index through the next expiry."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table import Table

from puffin_ann.declaration import IndexDeclaration, parse_declaration
from puffin_ann.lake.commit.publish_mode import NOT_KEPT
from puffin_ann.lake.commit.statistics_slots import slots
from puffin_ann.lake.metadata.dropped import mark
from puffin_ann.lake.metadata.expiry import Horizon, surviving
from puffin_ann.lifecycle.maintain.guard_plan import LEAD_MS, GuardPlan, plan_guard
from puffin_ann.lifecycle.versions.inventory import Holding, IndexFile, Inventory
from tests.support.lake.metadata_tables import DAY_MS, LOCATION, Snap, statistics, table_of

THEIRS = f"{LOCATION}/metadata/theirs.stats"
OLD, NEW = 0, 100 * DAY_MS
"""Committed long before the age at which snapshots expire, and just now."""


def path(number: int) -> str:
    return f"{LOCATION}/metadata/ann-words-n{number}.puffin"


def held(version: int, index: str = "words", publish: str = "statistics") -> Holding:
    return Holding(index, f"run-{version}", version, f'{{"publish": "{publish}"}}')


def published(index: str = "words") -> dict[str, str]:
    return {f"ann.{index}.run-id": "run"}


def file(table: Table, number: int, *holds: Holding, bytes: int | None = 1000) -> IndexFile:
    """An index file, registered wherever the table's statistics name it."""
    entries = {slot: entry for slot, entry in slots(table).items() if path(number) in str(entry)}
    return IndexFile(
        path=path(number),
        bytes=bytes,
        modified_ms=0,
        footer_size=100,
        entries=entries,
        named_by=(number,) if table.snapshot_by_id(number) else (),
        former=None,
        number=number,
        order=number,
        published_ms=NEW,
        holds=holds,
        problem="",
    )


def planned(table: Table, *files: IndexFile, **options: object) -> GuardPlan:
    """The plan for these files, the newest first."""
    return plan_guard(Inventory(table, files, NEW), **options)


def registered(plan: GuardPlan) -> dict[int, str]:
    return {slot: file.path for slot, (file, _) in plan.register.items()}


def declared(versions: int) -> Sequence[IndexDeclaration]:
    fields = {"name": "words", "table": "catalog.demo.words", "column": "v", "metric": "l2"}
    fields["publish"] = "statistics"
    retention = {"versions": versions, "grace": "1d"}
    return [parse_declaration({**fields, "retention": retention}, source="test")]


def test_an_index_that_is_registered_under_the_head_is_left_alone():
    table = table_of([Snap(1, OLD), Snap(2, NEW)], [statistics(2, path(2))])
    assert planned(table, file(table, 2, held(2))).is_empty


def test_a_head_without_statistics_gets_the_newest_file_and_no_older_one():
    snapshots = [Snap(1, OLD), Snap(2, OLD), Snap(3, NEW)]
    table = table_of(snapshots, [statistics(1, path(1)), statistics(2, path(2))])
    plan = planned(table, file(table, 2, held(2)), file(table, 1, held(1)))
    assert registered(plan) == {3: path(2)}
    assert (plan.again, plan.clear) == ("", {})


@pytest.mark.parametrize("base", [OLD, NEW])
def test_beside_others_statistics_all_is_published_again(base):
    table = table_of([Snap(1, base), Snap(2, NEW)], [statistics(1, path(1)), statistics(2, THEIRS)])
    plan = planned(table, file(table, 1, held(1)))
    assert "another writer" in plan.again
    assert slots(table)[2].statistics_path == THEIRS
    assert 2 not in plan.register, "the statistics of others are never replaced by a registration"


def test_indexes_that_no_file_holds_together_are_published_into_one():
    table = table_of([Snap(1, NEW), Snap(2, NEW)], [statistics(1, path(1)), statistics(2, path(2))])
    plan = planned(table, file(table, 2, held(2)), file(table, 1, held(1, "images")))
    assert plan.again == "no single file holds all indexes"
    assert {index: found.path for index, found in plan.live.items()} == {
        "words": path(2),
        "images": path(1),
    }


def tagged_table(*, is_held: bool) -> Table:
    """A table whose index is under a snapshot that a tag of ours holds, or held."""
    names = {"statistics-file": path(3), "puffin-ann.tag": "puffin_ann_words_1a2b", **published()}
    return table_of(
        [Snap(1, OLD), Snap(2, OLD)],
        [statistics(3, path(3))],
        alone=[Snap(3, OLD, names)],
        tags={"puffin_ann_words_1a2b": 3} if is_held else {},
    )


def test_what_a_tag_of_ours_holds_needs_no_registration_under_the_head():
    table = tagged_table(is_held=True)
    plan = planned(table, file(table, 3, held(3)))
    assert plan.is_empty
    assert plan.live["words"].path == path(3)


def test_a_tag_of_ours_that_was_dropped_is_set_again():
    table = tagged_table(is_held=False)
    plan = planned(table, file(table, 3, held(3)))
    assert {slot: tag for slot, (tag, _) in plan.hold.items()} == {3: "puffin_ann_words_1a2b"}
    assert (registered(plan), plan.again) == ({}, "")


def test_indexes_under_tags_need_no_file_that_holds_them_all():
    table = tagged_table(is_held=True)
    other = table.metadata.model_copy(
        update={"statistics": [*table.metadata.statistics, statistics(2, path(2))]}
    )
    table.metadata = other
    assert planned(table, file(table, 3, held(3)), file(table, 2, held(2, "images"))).is_empty


def test_an_index_that_could_have_a_tag_gets_one_and_one_that_is_to_have_none_does_not():
    table = table_of([Snap(1, OLD), Snap(2, NEW)], [statistics(1, path(1)), statistics(2, THEIRS)])
    both = file(table, 1, held(1, "words", "auto"), held(1, "images"))
    plan = planned(table, both)
    assert (plan.move, plan.again != "") == (("words",), True)
    assert planned(table, both, declarations=declared(versions=2)).move == ()
    former = file(table, 1, held(1, "words", "snapshot"))
    assert (planned(table, former).move, planned(table, former).again) == (("words",), "")


def test_a_catalog_that_kept_no_tag_once_is_not_asked_by_the_guard():
    table = table_of(
        [Snap(1, OLD), Snap(2, NEW)], [statistics(1, path(1))], properties={NOT_KEPT: "1"}
    )
    plan = planned(table, file(table, 1, held(1, "words", "auto")))
    assert (plan.move, registered(plan)) == ((), {2: path(1)})


def test_a_registration_whose_file_is_gone_is_cleared_and_its_head_goes_to_what_is_left():
    table = table_of([Snap(1, NEW), Snap(2, NEW)], [statistics(1, path(1)), statistics(2, path(2))])
    plan = planned(table, file(table, 2, bytes=None), file(table, 1, held(1)))
    assert plan.clear == {2: path(2)}
    assert registered(plan) == {2: path(1)}


def test_a_file_that_cannot_be_read_is_registered_nowhere():
    table = table_of([Snap(1, NEW, published()), Snap(2, NEW)])
    damaged = file(table, 1)
    plan = planned(table, damaged)
    assert (plan.register, plan.again, plan.lost) == ({}, "", ("words",))


def test_an_index_is_lost_that_a_snapshot_names_and_no_file_holds():
    snapshots = [Snap(1, NEW, published()), Snap(2, NEW, published("images")), Snap(3, NEW)]
    table = table_of(snapshots, [statistics(3, path(2))])
    assert planned(table, file(table, 2, held(2))).lost == ("images",)


def test_an_index_that_was_dropped_is_not_lost_until_it_is_published_again():
    before = [Snap(1, NEW, published())]
    marks = mark(table_of(before), "words", ["run"], at_ms=NEW)
    assert planned(table_of(before, properties=marks)).lost == ()
    again = [*before, Snap(2, NEW, published())]
    assert planned(table_of(again, properties=marks)).lost == ("words",)


def test_a_table_without_snapshots_needs_nothing():
    assert planned(table_of([])).is_empty


def test_an_older_version_that_is_kept_moves_from_a_snapshot_about_to_expire_to_one_that_stays():
    snapshots = [Snap(1, OLD), Snap(2, OLD), Snap(3, NEW), Snap(4, NEW)]
    table = table_of(snapshots, [statistics(1, path(1)), statistics(4, path(4))])
    plan = planned(
        table, file(table, 4, held(4)), file(table, 1, held(1)), declarations=declared(versions=2)
    )
    assert registered(plan) == {3: path(1)}


def test_a_version_that_is_not_kept_is_given_no_place():
    snapshots = [Snap(1, OLD), Snap(3, NEW), Snap(4, NEW)]
    table = table_of(snapshots, [statistics(1, path(1)), statistics(4, path(4))])
    files = file(table, 4, held(4)), file(table, 1, held(1))
    assert planned(table, *files, declarations=declared(versions=1)).register == {}


def test_an_older_version_is_placed_nowhere_above_a_newer_one():
    """Readers take the place for the order of versions, of files without a number."""
    snapshots = [Snap(1, OLD), Snap(2, NEW), Snap(3, NEW), Snap(4, NEW)]
    table = table_of(snapshots, [statistics(1, path(1)), statistics(4, path(2))])
    newer = replace(file(table, 2, held(2)), order=2, number=0)
    older = replace(file(table, 1, held(1)), number=0)
    plan = planned(table, newer, older, declarations=declared(versions=2))
    assert plan.is_empty, "snapshots 2 and 3 are free, and above the newer version's own"


def test_an_older_version_whose_number_tells_its_age_may_be_placed_anywhere():
    snapshots = [Snap(1, OLD), Snap(2, NEW), Snap(3, NEW), Snap(4, NEW)]
    table = table_of(snapshots, [statistics(1, path(1)), statistics(4, path(2))])
    newer = replace(file(table, 2, held(2)), order=2)
    plan = planned(table, newer, file(table, 1, held(1)), declarations=declared(versions=2))
    assert registered(plan) == {3: path(1)}


@st.composite
def histories(draw: st.DrawFn):
    """A table, index files of it, the newest first, and how many versions are kept."""
    count = draw(st.integers(1, 8))
    ages = sorted(draw(st.lists(st.sampled_from([OLD, NEW]), min_size=count, max_size=count)))
    snapshots = [Snap(number, at) for number, at in enumerate(ages, start=1)]
    numbers = sorted(draw(st.sets(st.integers(1, count), max_size=4)), reverse=True)
    entries = []
    for slot in range(1, count + 1):
        owner = draw(st.sampled_from(["", "theirs", *map(str, numbers)]))
        # A version is registered under its own snapshot or a later one.
        if owner == "theirs" or (owner and int(owner) <= slot):
            entries.append(statistics(slot, THEIRS if owner == "theirs" else path(int(owner))))
    tags = draw(st.dictionaries(st.just("kept"), st.integers(1, count)))
    table = table_of(snapshots, entries, tags=tags)
    gone = draw(st.sets(st.sampled_from(numbers))) if numbers else set()
    files = [
        file(table, number, bytes=None) if number in gone else file(table, number, held(number))
        for number in numbers
    ]
    if draw(st.booleans()):
        files = [replace(file, number=0) for file in files]
    return table, files, draw(st.integers(1, 4))


@given(histories())
def test_whatever_happened_nothing_of_others_is_touched_and_the_newest_version_stays(history):
    table, files, versions = history
    plan = planned(table, *files, declarations=declared(versions))

    before = {slot: entry.statistics_path for slot, entry in slots(table).items()}
    there = {file.path for file in files if file.is_usable}
    assert all(before[slot] == lost and lost not in there for slot, lost in plan.clear.items())
    for slot, named in registered(plan).items():
        assert slot not in before or slot in plan.clear, "a slot that is taken is not filled"
        assert named in there
    after = {slot: named for slot, named in before.items() if slot not in plan.clear}
    after |= registered(plan)
    if not any(file.is_usable and file.is_published for file in files):
        return
    newest = plan.live["words"].path
    left = surviving(table, Horizon(NEW + LEAD_MS))
    assert (
        plan.again
        or newest in {after.get(slot) for slot in left}
        or (
            # After a rollback an older version may be under the head, and covers it better.
            after.get(table.metadata.current_snapshot_id) in there
        )
    )
    for slot, (moved, _) in plan.register.items():
        newer = [
            other.order
            for other in files
            if other.is_usable and other.order > moved.order and other.number == moved.number
        ]
        if moved.path != newest and newer:
            assert slot < min(newer), "an older version is not placed above a newer one"
