"""What a run id tells of what started the run."""

import pytest

from puffin_ann.lifecycle.documents.run_record import RunRecord
from puffin_ann.lifecycle.report.history import History, HistoryEntry, trigger_of


@pytest.mark.parametrize(
    ("run_id", "trigger"),
    [
        ("cli-20261123T040000-ab12", "command line"),
        ("manual__2026-11-23T04-00-00", "manual"),
        ("refresh-asset_triggered__2026-11-23T04-00-00", "asset"),
        ("maintain-scheduled__2026-11-23T04-00-00", "schedule"),
        ("backfill__2026-11-23", "backfill"),
        ("again__manual__2026-11-23", "manual"),
        ("my-manually-named-run", "unknown"),
        ("run-of-cli-tests", "unknown"),
        ("", "unknown"),
    ],
)
def test_the_trigger_is_told_by_the_word_that_airflow_begins_its_run_ids_with(run_id, trigger):
    assert trigger_of(run_id) == trigger


def test_only_versions_whose_file_is_there_count_as_retained():
    record = RunRecord(run_id="run", action="build", at_ms=0)
    kept = HistoryEntry(record=record, trigger="manual", snapshot_id=1, file="s3://b/ann-1.puffin")
    expired = HistoryEntry(record=record, trigger="manual")
    assert History(index="words", table="t", entries=(kept, expired, expired)).retained == 1
