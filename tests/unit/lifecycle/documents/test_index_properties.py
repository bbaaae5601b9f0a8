"""What runs noted in an index's properties is free text: whatever it is, nothing trips over it."""

import json

import pytest

from puffin_ann.errors import BlobFormatError
from puffin_ann.lifecycle.documents.index_properties import IndexProperties, Notes, key_of
from puffin_ann.lifecycle.documents.run import Trial
from puffin_ann.lifecycle.documents.run_record import RunRecord
from puffin_ann.lifecycle.policy.decision import Drift, Rates
from puffin_ann.lifecycle.policy.kept_recall import ShardRecall, ShardRecalls
from puffin_ann.lifecycle.policy.undone import Undone
from puffin_ann.moments import LAST_MS, as_time

NOTHING = ["x", "", "[1]", '{"a":"x"}', "[{}]", "null", '"a"', "[" * 100_000, "9" * 5_000, "\ud800"]
NOT_NUMBERS = ['{"a":NaN}', '{"a":1e999}', '{"a":-Infinity}', '{"a":null}', '{"a":{}}']


@pytest.mark.parametrize("text", [*NOTHING, *NOT_NUMBERS], ids=lambda text: text[:12])
def test_what_is_not_as_a_run_notes_it_counts_as_not_noted(text):
    keys = ("stage-seconds", "skipped", "history", "rates", "drift", "trials")
    keys += ("shard-recalls", "undone")
    noted = IndexProperties(dict.fromkeys(keys, text))
    assert noted.stage_seconds == noted.skipped == {}
    assert noted.history == noted.trials == ()
    assert (noted.rates, noted.drift) == (Rates(), Drift())
    assert (noted.shard_recalls, noted.undone) == (ShardRecalls(), Undone())


def test_what_runs_note_is_read():
    noted = IndexProperties({"stage-seconds": '{"train": 1.5}', "skipped": '{"null": 3}'})
    assert (noted.stage_seconds, noted.skipped) == ({"train": 1.5}, {"null": 3})
    assert IndexProperties().stage_seconds == IndexProperties().skipped == {}
    assert IndexProperties().column_type is None


NOTES: Notes = {
    "fingerprint": "abc",
    "declaration": '{"name": "words"}',
    "run_id": "run-1",
    "drift": Drift(built=1.5, imbalance=2.0),
    "next_file_id": 7,
    "column_type": "float",
    "stage_seconds": {"train": 1.5},
    "vector_bytes_read": 400,
    "skipped": {"null": 3},
    "rates": Rates(read=5.0),
    "shard_recalls": ShardRecalls(k=10, shards={3: ShardRecall(recall=0.9, low=0.8, high=0.95)}),
    "undone": Undone(run_id="run-0", reason="shard 3", target=0.95, refused=(3,), delta_rows=7),
    "trials": (
        Trial(
            algorithm="hnsw",
            rows=9,
            search_width=8,
            recall=0.9,
            queries_per_second=7.0,
            build_seconds=0.5,
        ),
    ),
    "history": (RunRecord(run_id="run-1", action="build", at_ms=1),),
    "renamed_from": {"index": "names", "run-id": "run-0"},
}

WRITTEN_ONLY = ("vector_bytes_read", "renamed_from", "next_file_id")


def test_what_is_noted_is_read_as_it_was():
    noted = IndexProperties().noting(**NOTES)
    assert {name: getattr(noted, name) for name in NOTES if name not in WRITTEN_ONLY} == {
        name: value for name, value in NOTES.items() if name not in WRITTEN_ONLY
    }
    assert noted.next_file_id("") == 7
    assert set(noted.texts) == {key_of(name) for name in NOTES}


def test_keys_and_texts_are_those_that_other_releases_read():
    assert IndexProperties().noting(**NOTES).texts == {
        "fingerprint": "abc",
        "declaration": '{"name": "words"}',
        "run-id": "run-1",
        "drift": '{"built":1.5,"added":0.0,"merged":0,"largest_norm":0.0,"imbalance":2.0}',
        "next-file-id": "7",
        "column-type": "float",
        "stage-seconds": '{"train": 1.5}',
        "vector-bytes-read": "400",
        "skipped": '{"null": 3}',
        "rates": '{"read":5.0,"insert":10000.0,"build":20000.0,"copy_bytes":200000000.0}',
        "shard-recalls": '{"k":10,"shards":{"3":{"recall":0.9,"low":0.8,"high":0.95}}}',
        "undone": '{"run_id":"run-0","reason":"shard 3","target":0.95,"refused":[3],'
        '"delta_rows":7,"live_rows":{}}',
        "trials": '[{"algorithm": "hnsw", "rows": 9, "search_width": 8, "recall": 0.9, '
        '"queries_per_second": 7.0, "build_seconds": 0.5}]',
        "history": '[{"run_id": "run-1", "action": "build", "at_ms": 1}]',
        "renamed-from": '{"index": "names", "run-id": "run-0"}',
    }


def test_what_another_release_noted_or_nobody_can_read_is_kept():
    others = {"colour": "blue", "trials": "[", "skipped": '{"null": 3}'}
    noted = IndexProperties(others).noting(run_id="run-2", skipped={"null": 4})
    assert noted.texts == {**others, "run-id": "run-2", "skipped": '{"null": 4}'}


@pytest.mark.parametrize("at_ms", [-1, LAST_MS + 1, 99999999999999999, 10**30])
def test_a_record_of_a_moment_that_no_calendar_has_is_left_out(at_ms):
    record = {"run_id": "r", "action": "build", "at_ms": at_ms}
    assert IndexProperties({"history": json.dumps([record])}).history == ()
    assert as_time(at_ms) == f"{at_ms} ms"


def test_moments_are_written_as_people_do():
    assert as_time(0) == "1970-01-01 00:00:00+00:00"
    assert as_time(LAST_MS, sep="T") == "9999-12-31T23:59:59+00:00"


@pytest.mark.parametrize("value", ["0", "-1", "NaN", "1e999"])
def test_speeds_and_distances_that_cannot_be_are_not_planned_by(value):
    assert IndexProperties({"rates": f'{{"read": {value}}}'}).rates == Rates()
    if value != "0":
        assert IndexProperties({"drift": f'{{"built": {value}}}'}).drift == Drift()


@pytest.mark.parametrize("text", ["x", "-1", "4294967296", "٣", "1_000", "", "9" * 5_000])
def test_a_next_file_id_that_is_none_is_damage(text):
    with pytest.raises(BlobFormatError, match=r"s3://b/f\.puffin: .*no file id"):
        IndexProperties({"next-file-id": text}).next_file_id("s3://b/f.puffin")
    assert IndexProperties({"next-file-id": "7"}).next_file_id("") == 7
    assert IndexProperties().next_file_id("") == 0
