"""What index files are, by their names and by what is known of them; nothing is read."""

import pytest

from puffin_ann.lifecycle.versions.inventory import (
    Holding,
    IndexFile,
    Inventory,
    is_index_name,
    live_files,
)
from tests.support.lake.metadata_tables import LOCATION, Snap, statistics, table_of


def file(name: str, *indexes: str, **known: object) -> IndexFile:
    values = {
        "path": f"{LOCATION}/metadata/{name}",
        "bytes": 1000,
        "modified_ms": 0,
        "footer_size": 100,
        "entries": {},
        "named_by": (),
        "former": None,
        "number": 1,
        "order": 1,
        "published_ms": 0,
        "holds": tuple(Holding(index, f"run-of-{index}", 1) for index in indexes),
        "problem": "",
    }
    return IndexFile(**{**values, **known})


def test_the_live_file_of_an_index_is_the_newest_that_holds_it():
    newest, middle, oldest = file("c", "words"), file("b", "words", "images"), file("a", "images")
    assert live_files([newest, middle, oldest]) == {"words": newest, "images": middle}


def test_a_file_that_was_refused_by_the_catalog_is_no_part_of_the_table():
    refused = file("ann-1.puffin", "words")
    table = table_of([Snap(1, 0)])
    assert not refused.is_published
    assert Inventory(table, (refused,), 0).published == ()


@pytest.mark.parametrize(
    "known",
    [
        {"entries": {1: statistics(1, "ann-1.puffin")}},
        {"named_by": (1,)},
        {"former": object()},
    ],
)
def test_a_file_is_published_that_any_metadata_of_the_table_names(known):
    assert file("ann-1.puffin", "words", **known).is_published


@pytest.mark.parametrize("known", [{"bytes": None}, {"holds": ()}, {"problem": "cut short"}])
def test_no_index_is_read_from_a_file_that_is_gone_empty_or_damaged(known):
    named = file("ann-1.puffin", "words", named_by=(1,), **known)
    assert not named.is_usable
    assert Inventory(table_of([Snap(1, 0)]), (named,), 0).published == ()


def test_a_snapshot_has_room_for_one_statistics_file_and_an_expired_one_for_none():
    ours = file("ann-1.puffin", "words", entries={2: statistics(2, "ann-1.puffin")})
    table = table_of([Snap(1, 0), Snap(2, 1)], ours.entries.values())
    inventory = Inventory(table, (ours,), 0)
    assert [inventory.is_free(slot) for slot in (1, 2, 3)] == [True, False, False]
    assert [inventory.ours_in(slot) for slot in (1, 2)] == [None, ours]
    assert inventory.head == 2


@pytest.mark.parametrize(
    ("path", "is_ours"),
    [
        ("s3://b/words/metadata/ann-words-3-ab12.puffin", True),
        ("file:///w/words/metadata/ann-words-n4-3-ab12.puffin", True),
        ("s3://b/words/metadata/ann-.puffin", False),
        ("s3://b/words/metadata/plan-1.stats", False),
        ("s3://b/words/metadata/snap-1.avro", False),
        ("s3://b/words/data/ann-1.puffin", False),
        ("s3://b/words/metadata/ann-1.puffin.tmp", False),
        ("s3://b/words/metadata/other/ann-1.puffin", False),
        ("s3://b/words/metadata/ann-words/deletes.puffin", False),
    ],
)
def test_only_names_that_index_files_have_are_taken_for_theirs(path, is_ours):
    assert is_index_name(path) is is_ours
