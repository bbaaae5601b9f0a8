"""What is told of metadata files that are not of a table's history."""

from types import SimpleNamespace

import pytest

from puffin_ann.lake.metadata.foreign import Foreign, Reach
from puffin_ann.lifecycle.retention.foreign_history import SHOWN, blocking, describe

ROOT = "s3://lake/db/words"


def reach(*foreign: Foreign, **fields) -> Reach:
    table = SimpleNamespace(
        location=lambda: ROOT,
        properties={},
        catalog=SimpleNamespace(name="lake"),
        name=lambda: ("db", "words"),
    )
    return Reach(table, foreign=foreign, **fields)


def file(name: str, kind: str, **fields) -> Foreign:
    return Foreign(f"{ROOT}/metadata/{name}.metadata.json", kind, **fields)


def test_where_nothing_is_foreign_nothing_is_told():
    assert describe(reach()) == []


def test_a_location_that_may_be_anothers_blocks_all_removal():
    (note,) = blocking(reach(elsewhere="its metadata lies in s3://lake/other"))
    assert note.is_problem
    assert "its files may be another table's" in note.what
    assert "until then nothing is removed" in note.remedy


def test_a_damaged_file_blocks_removal_until_it_is_declared_of_no_account():
    (note,) = blocking(reach(file("00001-a b", "damaged", problem="it is no JSON")))
    assert "it is no JSON" in note.what
    assert note.remedy.endswith(
        "run: puffin-ann clean lake.db.words --forget-metadata '00001-a b.metadata.json'"
    )


def test_what_the_store_does_not_give_now_is_to_be_tried_again_and_never_forgotten():
    (note,) = blocking(reach(file("00001-a", "unreadable", problem="the store does not answer")))
    assert "the store does not answer" in note.what
    assert "--forget-metadata" not in note.remedy


def test_more_than_can_be_read_blocks_removal():
    (note,) = blocking(reach(uncounted=1234))
    assert "1,234 more foreign metadata files" in note.what


@pytest.mark.parametrize("kind", ["other table", "other history", "single commit"])
def test_what_can_be_read_blocks_nothing(kind):
    assert blocking(reach(file("00001-a", kind))) == []


def test_files_of_one_other_table_are_told_once_by_the_newest_with_a_command_for_all():
    notes = describe(
        reach(
            file("00002-b", "other table", table_uuid="u", updated_ms=2),
            file("00003-c", "other table", table_uuid="u", updated_ms=3),
            file("00001-a", "other table", table_uuid="v", updated_ms=1),
        )
    )
    assert [note.what.split(",")[0] for note in notes] == [
        "2 metadata files of another table",
        "1 metadata files of another table",
    ]
    first = notes[0]
    assert first.file.endswith("00003-c.metadata.json")
    assert first.remedy.endswith(
        "--forget-metadata 00002-b.metadata.json --forget-metadata 00003-c.metadata.json"
    )
    assert not first.is_problem


def test_a_second_registration_is_a_problem_and_one_catalog_is_to_write():
    (note,) = describe(reach(file("00001-a", "other history")))
    assert note.is_problem
    assert note.remedy.startswith("let one catalog alone write the table")


def test_of_stray_commits_the_newest_are_told_and_need_nothing():
    strays = [file(f"0000{at}", "single commit", updated_ms=at) for at in range(SHOWN + 2)]
    notes = describe(reach(*strays))
    assert [note.file for note in notes] == [stray.location for stray in strays[:1:-1]]
    assert all(note.remedy.startswith("none needed") for note in notes)


def test_a_file_whose_name_another_has_too_is_named_by_its_location():
    here = file("00001-a", "single commit")
    there = Foreign("s3://lake/copy/metadata/00001-a.metadata.json", "single commit")
    notes = describe(reach(here, there))
    assert [note.remedy.rpartition(" ")[2] for note in notes] == [here.location, there.location]
