"""Foreign metadata that is stray, damaged or unreadable: told, and forgotten where it is named."""

import json
import shlex
import uuid
from pathlib import Path

import pytest

from puffin_ann.cli.main import run as command_line
from puffin_ann.errors import BadInputError, StoreUnavailableError, UnclearCommitError
from puffin_ann.lake.store.objects import open_object
from puffin_ann.lifecycle.maintain.clean import clean
from puffin_ann.lifecycle.runs.doctor import doctor
from tests.support.lake import table_events
from tests.support.lifecycle import builds
from tests.support.servers.other_catalogs import (
    assert_whole,
    catalog_beside,
    commit,
    foreign,
    going,
    kept,
    later,
    local,
    lose_a_race,
    publish_versions,
    register,
)


def test_after_many_commits_and_lost_races_clean_up_goes_on(words):
    first, second = publish_versions(words, "a1", "a2")
    strays = []
    for number in range(150):
        if number in (10, 40, 120):
            strays.append(lose_a_race(words, f"lost {number}"))
        if number == 100:
            third, fourth = publish_versions(words, "a3", "a4")
        commit(words, f"commit {number}")
    fifth, sixth = publish_versions(words, "a5", "a6")
    assert not {*strays} & {entry.metadata_file for entry in words.refresh().metadata.metadata_log}

    report = clean(words, at_ms=later())

    # The first two strays are older than the log; the third names what was registered then.
    assert going(report).keys() == {first, second} - kept(report).keys()
    assert all(strays[2] in why for why in kept(report).values())
    assert {third, fourth, fifth, sixth} <= table_events.index_files(words)
    told = foreign(doctor(words, at_ms=later()))
    assert [(message.file, message.is_problem) for message in told] == [(strays[2], False)]

    clean(words, at_ms=later(), forget=[strays[2]])

    assert table_events.index_files(words) == {fifth, sixth}
    assert foreign(doctor(words, at_ms=later())) == []
    assert_whole(words)


def test_a_foreign_metadata_file_has_to_be_named_and_old_to_be_forgotten(
    words, elsewhere, monkeypatch
):
    (first,) = table_events.index_files(words)
    publish_versions(words, "a1", "a2")
    stray = elsewhere.metadata_location
    with pytest.raises(BadInputError, match="younger than 24h"):
        clean(words, forget=[stray])
    with pytest.raises(BadInputError, match="no foreign metadata file"):
        clean(words, at_ms=later(), forget=[words.metadata_location])

    tried = clean(words, at_ms=later(), forget=[stray.rpartition("/")[2]], dry_run=True)
    assert tried.forgotten == (stray,)
    assert first in going(tried)
    assert first in kept(clean(words, at_ms=later()))
    with monkeypatch.context() as patch:
        patch.setattr(type(words.catalog), "commit_table", _no_answer)
        with pytest.raises(UnclearCommitError):
            clean(words, at_ms=later(), forget=[stray])
    assert first in table_events.index_files(words)
    assert first in going(clean(words, at_ms=later(), forget=[stray]))
    assert clean(words, at_ms=later(), forget=[stray]).forgotten == ()  # it is already

    commit(elsewhere, "still alive")
    assert len(foreign(doctor(words))) == 1


def test_to_forget_the_newest_forgets_no_registration_at_a_file_before_it(
    words, elsewhere, tmp_path, known_catalogs
):
    (theirs,) = publish_versions(elsewhere, "b1")
    third = register(catalog_beside(known_catalogs, tmp_path, "third"), elsewhere.metadata_location)
    publish_versions(third, "c1")
    newest = third.metadata_location.rpartition("/")[2]

    (note,) = clean(words, at_ms=later(), dry_run=True).notes
    report = clean(words, at_ms=later(), forget=[newest])

    named = shlex.split(note.partition("run: ")[2])[4::2]
    assert named[-1] == newest
    assert elsewhere.metadata_location.rpartition("/")[2] in named
    assert [location.rpartition("/")[2] for location in report.forgotten] == [newest]
    assert theirs in kept(report)
    assert_whole(elsewhere)
    assert theirs in going(clean(words, at_ms=later(), forget=named[:-1]))


def _no_answer(*_, **__):
    raise ConnectionError("timed out")


def test_the_command_line_tells_what_is_kept_and_forgets_what_it_is_told(
    words, elsewhere, monkeypatch, capsys
):
    (first,) = table_events.index_files(words)
    publish_versions(words, "a1", "a2", retention={"versions": 1, "grace": "0s"})
    name = elsewhere.metadata_location.rpartition("/")[2]

    code, out, _ = run_clean(monkeypatch, capsys)
    assert code == 0
    assert f"kept superseded version {first}: {elsewhere.metadata_location} names it" in out
    assert f"--forget-metadata {name}" in out
    code, _, err = run_clean(monkeypatch, capsys, "--forget-metadata", name)
    assert code == 2
    assert "younger than 24h" in err
    code, out, _ = run_clean(monkeypatch, capsys, "--json")
    assert json.loads(out)["kept"][0]["location"] == first


def run_clean(monkeypatch, capsys, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["puffin-ann", "clean", "test.demo.words", *arguments])
    with pytest.raises(SystemExit) as left:
        command_line()
    said = capsys.readouterr()
    return int(left.value.code or 0), said.out, said.err


def test_nothing_goes_while_a_metadata_file_is_damaged(words):
    first, *_ = publish_versions(words, "a1", "a2", "a3")
    folder = local(words.location()) + "/metadata"
    broken = f"{folder}/00007-{uuid.uuid4()}.metadata.json"
    Path(broken).write_text('{"format-version": 2, "table-uuid": ')

    report = clean(words, at_ms=later())

    assert going(report) == {}
    assert broken in kept(report)[first]
    assert f"--forget-metadata {broken.rpartition('/')[2]}" in report.notes[0]
    assert [finding.is_problem for finding in foreign(doctor(words))] == [True]
    assert first in going(clean(words, at_ms=later(), forget=[f"file://{broken}"]))


def refuse(monkeypatch, *refused: Path) -> None:
    """Let the store refuse access to metadata files."""

    def ask(io, uri):
        if Path(local(uri)) in refused:
            raise StoreUnavailableError(f"the store gives no answer for {uri}")
        return open_object(io, uri)

    monkeypatch.setattr("puffin_ann.lake.metadata.files.open_object", ask)


def test_nothing_goes_while_a_metadata_file_cannot_be_read(words, monkeypatch):
    publish_versions(words, "a1", "a2", "a3")
    silent = Path(local(words.location())) / "metadata" / f"00007-{uuid.uuid4()}.metadata.json"
    silent.write_text("{}")
    refuse(monkeypatch, silent)
    before = table_events.index_files(words)

    with pytest.raises(StoreUnavailableError, match=silent.name):
        clean(words, at_ms=later())

    assert table_events.index_files(words) == before
    assert [finding.is_problem for finding in foreign(doctor(words))] == [True]
    assert any(
        "removed nothing" in action for action in doctor(words, fix=True, at_ms=later()).actions
    )
    assert table_events.index_files(words) == before


def test_a_lost_registration_is_no_orphan_while_earlier_metadata_cannot_be_read(words, monkeypatch):
    (path,) = publish_versions(words, "a1")
    for slot in {entry.snapshot_id for entry in words.refresh().metadata.statistics}:
        table_events.drop_registration(words, slot)
    head = words.current_snapshot().snapshot_id
    words.refresh().append(builds.rows(range(3)))
    words.maintenance.expire_snapshots().by_id(head).commit()
    refuse(
        monkeypatch, *(Path(local(entry.metadata_file)) for entry in words.metadata.metadata_log)
    )

    with pytest.raises(StoreUnavailableError):
        clean(words, at_ms=later(1000))

    assert path in table_events.index_files(words)
