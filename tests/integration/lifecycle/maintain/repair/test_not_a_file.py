"""What stands where an index's file was, and is no file: named, and other indexes go on."""

import os

import pytest

from puffin_ann import open_index
from puffin_ann.errors import DamagedIndexError
from puffin_ann.lake.store.listing import is_folder
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.maintain.guard import guard
from puffin_ann.lifecycle.runs.doctor import doctor
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.lifecycle.versions.inventory import take_inventory
from tests.support.falsified.damage import damaged, forget_cache, publish, report
from tests.support.lake import table_events
from tests.support.lifecycle import builds

pytestmark = pytest.mark.usefixtures("published_by_statistics")

OTHER = "second"
DECLARED = [builds.declaration(), builds.declaration(name=OTHER)]


def directory(path: str) -> None:
    os.mkdir(path)


def full_directory(path: str) -> None:
    os.mkdir(path)
    with open(f"{path}/kept", "w") as file:
        file.write("somebody's")


def link_to_a_directory(path: str) -> None:
    os.symlink(os.path.dirname(path), path)


def link_to_itself(path: str) -> None:
    os.symlink(path, path)


@pytest.fixture(params=[directory, full_directory, link_to_a_directory, link_to_itself])
def replaced(request, words):
    """Two indexes, one of them in a file of its own besides; the file of both is none any more."""
    publish(words, "a")
    words.refresh().append(builds.rows(range(80, 84)))
    path = publish(words, "b", name=OTHER)
    os.remove(path)
    request.param(path)
    forget_cache()
    return words.refresh(), path


def test_it_is_named_with_what_to_do_and_never_removed(replaced):
    table, path = replaced
    for options in ({}, {"quick": True}, {"fix": True}):
        (finding,) = damaged(doctor(table, DECLARED, **options))
        assert finding.file.endswith(path)
        assert "directory" in finding.what or "symbolic links" in finding.what
        assert finding.remedy.startswith("make it readable, or move it away by hand, and build")
        assert f"'puffin-ann build {OTHER} --force'" in finding.remedy
        assert not finding.repaired
    clean(table, DECLARED)
    assert os.path.lexists(path)


def test_the_other_index_goes_on_and_one_build_and_a_hand_mend_all(replaced):
    table, path = replaced
    answers = open_index(table, builds.INDEX).search(table_events.QUERIES, 3)
    assert any(path in message for message in report(answers)["damaged"])
    table_events.assert_alive(table)
    with pytest.raises(DamagedIndexError, match=r"is damaged.*(directory|symbolic links)"):
        open_index(table, OTHER)
    guard(table, DECLARED)
    table.refresh().append(builds.rows(range(60, 70)))
    done = refresh_in_process(builds.declaration(refresh={"min_rows": 1}), run_id="r")
    assert done["snapshot_id"] is not None
    publish(table, "c", name=OTHER)
    (finding,) = damaged(doctor(table, DECLARED))
    assert finding.remedy == (
        "make it readable, or move it away by hand: other files hold everything known to be in it"
    )
    os.rename(path, f"{path}.moved")
    assert doctor(table, DECLARED, fix=True).problems_left == 0
    table_events.assert_alive(table, builds.INDEX, OTHER)


def test_a_directory_has_no_bytes_and_is_not_taken_for_gone(replaced):
    table, path = replaced
    (file,) = [file for file in take_inventory(table).files if file.path.endswith(path)]
    assert file.bytes is not None
    assert not file.is_usable
    assert path in file.problem


def test_folders_are_told_from_files_and_from_nothing(words, tmp_path):
    there = tmp_path / "file"
    there.write_bytes(b"")
    assert is_folder(words.io, f"file://{tmp_path}")
    assert not is_folder(words.io, f"file://{there}")
    assert not is_folder(words.io, f"file://{tmp_path}/nothing")
