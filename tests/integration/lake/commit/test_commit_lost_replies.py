"""Answers that are lost, late or wrong."""

from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from puffin_ann.errors import (
    CatalogUnavailableError,
    UnclearCommitError,
)
from puffin_ann.lake.commit import commit_index_file
from tests.support.lake import tables
from tests.support.lifecycle.commits import (
    head,
    is_published,
    lost_reply,
    lost_request,
    manifest_lists,
    other_handle,
    send,
    unreachable,
)


def test_a_lost_reply_is_found_to_have_published(faulty: Table) -> None:
    faulty.catalog.faults = [lost_reply]
    published = send(faulty)
    assert not published.already
    assert is_published(faulty, published)
    assert len(faulty.snapshots()) == 3


def test_a_lost_request_is_sent_again(faulty: Table) -> None:
    faulty.catalog.faults = [lost_request, lost_request]
    published = send(faulty)
    assert is_published(faulty, published)
    assert len(faulty.snapshots()) == 3


def test_when_every_request_is_lost_the_outcome_is_unclear(faulty: Table, tmp_path: Path) -> None:
    faulty.catalog.faults = [lost_request] * 10
    before = len(manifest_lists(tmp_path))
    with pytest.raises(UnclearCommitError, match="kept"):
        send(faulty)
    assert len(faulty.refresh().snapshots()) == 2
    # A lost request may still land, so what it names must stay.
    assert len(manifest_lists(tmp_path)) == before + commit_index_file.ATTEMPTS
    assert faulty.io.new_input(
        faulty.location_provider().new_metadata_location("run-1.puffin")
    ).exists()


def test_a_request_that_lands_late_is_published_once(faulty: Table) -> None:
    """The first request is delayed; it lands after we looked, before we send the second."""
    held = []

    def hold(commit):
        held.append(commit)
        raise ConnectionError("timed out")

    def release_first(commit):
        held[0]()
        return commit()

    faulty.catalog.faults = [hold, release_first]
    published = send(faulty)
    assert is_published(faulty, published)
    runs = [
        snapshot.summary.additional_properties.get("ann.words.run-id")
        for snapshot in faulty.snapshots()
    ]
    assert runs.count("run-1") == 1


def test_a_request_that_lands_after_the_second_changes_nothing(faulty: Table) -> None:
    held = []

    def hold(commit):
        held.append(commit)
        raise ConnectionError("timed out")

    faulty.catalog.faults = [hold]
    published = send(faulty)
    with pytest.raises(CommitFailedException):
        held[0]()
    assert is_published(faulty, published)


def test_an_unclear_run_learns_its_outcome_when_it_is_run_again(faulty: Table) -> None:
    held = []

    def hold(commit):
        held.append(commit)
        raise ConnectionError("timed out")

    planned = head(faulty)
    faulty.catalog.faults = [hold] * commit_index_file.ATTEMPTS
    with pytest.raises(UnclearCommitError):
        send(faulty, expected=planned)
    held[0]()
    again = send(faulty, expected=planned)
    assert again.already
    assert is_published(faulty, again)


def test_a_moved_head_after_a_lost_request_is_not_called_a_conflict(
    faulty: Table, tmp_path: Path
) -> None:
    # "Conflict" would allow to delete the file, which a late request could still register.
    def lose_and_move(commit):
        other_handle(faulty, tmp_path).append(tables.rows(30, 1))
        raise ConnectionError("timed out")

    faulty.catalog.faults = [lose_and_move]
    with pytest.raises(UnclearCommitError):
        send(faulty, mode="statistics")


def test_a_file_removed_during_the_commit_is_told(faulty: Table) -> None:
    def remove(commit):
        faulty.io.delete(faulty.location_provider().new_metadata_location("run-1.puffin"))
        return commit()

    faulty.catalog.faults = [remove]
    with pytest.raises(UnclearCommitError, match="removed while"):
        send(faulty)


def test_a_refusal_nobody_could_verify_is_unclear(
    faulty: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transport that repeats requests reports a refusal although its first one landed."""

    def land_refuse_and_go_away(commit):
        commit()
        monkeypatch.setattr(faulty.catalog, "load_table", unreachable)
        raise CommitFailedException("head has moved")

    faulty.catalog.faults = [land_refuse_and_go_away]
    with pytest.raises(UnclearCommitError):
        send(faulty)


def test_a_refusal_of_a_repeated_request_is_seen_through(faulty: Table) -> None:
    def land_and_refuse(commit):
        commit()
        raise CommitFailedException("head has moved")

    faulty.catalog.faults = [land_and_refuse]
    published = send(faulty)
    assert not published.already
    assert is_published(faulty, published)
    assert tables.live_ids(faulty) == list(range(30))


def test_a_catalog_that_does_not_answer_at_first_is_told_apart(
    faulty: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = head(faulty)
    monkeypatch.setattr(faulty.catalog, "load_table", unreachable)
    with pytest.raises(CatalogUnavailableError, match="refused"):
        send(faulty, expected=planned)
