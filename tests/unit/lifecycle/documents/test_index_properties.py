"""What runs noted in an index's properties is free text: whatever it is, nothing trips over it."""

import json

import pytest

from puffin_ann.errors import BlobFormatError
from puffin_ann.lifecycle.documents.index_properties import (
    count_skipped,
    next_file_id,
    stage_seconds,
)
from puffin_ann.lifecycle.policy.decision import Drift, Rates
from puffin_ann.lifecycle.publish.run_records import records_in
from puffin_ann.lifecycle.published.index_state import _recorded
from puffin_ann.moments import LAST_MS, as_time

NOTHING = ["x", "", "[1]", '{"a":"x"}', "[{}]", "null", '"a"', "[" * 100_000, "9" * 5_000, "\ud800"]
NOT_NUMBERS = ['{"a":NaN}', '{"a":1e999}', '{"a":-Infinity}', '{"a":null}', '{"a":{}}']


@pytest.mark.parametrize("text", [*NOTHING, *NOT_NUMBERS], ids=lambda text: text[:12])
def test_what_is_not_as_a_run_notes_it_counts_as_not_noted(text):
    properties = {"stage-seconds": text, "skipped": text, "history": text}
    assert stage_seconds(properties) == {}
    assert count_skipped(properties) == {}
    assert records_in(properties) == ()


def test_what_runs_note_is_read():
    assert stage_seconds({"stage-seconds": '{"train": 1.5}'}) == {"train": 1.5}
    assert count_skipped({"skipped": '{"null": 3}'}) == {"null": 3}
    assert stage_seconds({}) == count_skipped({}) == {}


@pytest.mark.parametrize("at_ms", [-1, LAST_MS + 1, 99999999999999999, 10**30])
def test_a_record_of_a_moment_that_no_calendar_has_is_left_out(at_ms):
    record = {"run_id": "r", "action": "build", "at_ms": at_ms}
    assert records_in({"history": json.dumps([record])}) == ()
    assert as_time(at_ms) == f"{at_ms} ms"


def test_moments_are_written_as_people_do():
    assert as_time(0) == "1970-01-01 00:00:00+00:00"
    assert as_time(LAST_MS, sep="T") == "9999-12-31T23:59:59+00:00"


@pytest.mark.parametrize("value", ["0", "-1", "NaN", "1e999"])
def test_speeds_and_distances_that_cannot_be_are_not_planned_by(value):
    assert _recorded({"rates": f'{{"read": {value}}}'}, "rates", Rates) == Rates()
    if value != "0":
        assert _recorded({"drift": f'{{"built": {value}}}'}, "drift", Drift) == Drift()


@pytest.mark.parametrize("text", ["x", "-1", "4294967296", "٣", "1_000", "", "9" * 5_000])
def test_a_next_file_id_that_is_none_is_damage(text):
    with pytest.raises(BlobFormatError, match=r"s3://b/f\.puffin: .*no file id"):
        next_file_id({"next-file-id": text}, "s3://b/f.puffin")
    assert next_file_id({"next-file-id": "7"}, "") == 7
    assert next_file_id({}, "") == 0
