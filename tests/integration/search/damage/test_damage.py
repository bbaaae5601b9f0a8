"""Bytes of a published index that are not those written: told, and never a wrong answer."""

import json
import logging
import os
import re
import sys

import numpy as np
import pyarrow.compute as pc
import pytest

from puffin_ann import open_index
from puffin_ann.cli.main import run as command_line
from puffin_ann.errors import DamagedIndexError, DataFileError, FormatError, IndexNotFoundError
from puffin_ann.lifecycle.report.status import status
from puffin_ann.lifecycle.runs import build
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.lifecycle.runs.maintain import maintain
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.search.version.versions import newest_version
from tests.support.falsified.damage import corrupt, forget_cache, report
from tests.support.lake import table_events
from tests.support.lifecycle import builds

QUERIES = np.random.default_rng(3).normal(size=(3, builds.DIMENSION)).astype(np.float32)


def publish(table, run_id: str, **changes) -> str:
    """Build and publish; returns the file's path on the disk."""
    plan = builds.build(builds.declaration(**changes), run_id, {"force": True})
    assert plan.action == "build"
    return table_events.newest(table).removeprefix("file://")


@pytest.fixture
def two_versions(words):
    """An older version of 60 rows, a newer one of 70."""
    older = publish(words, "a")
    words.append(builds.rows(range(60, 70)))
    newer = publish(words, "b")
    forget_cache()
    return words, older, newer


@pytest.mark.parametrize("kind", ["graph", "rows"])
@pytest.mark.parametrize("shard", [0, 1])
def test_an_older_version_answers_for_a_damaged_one_and_the_rest_is_scanned(
    two_versions, caplog, kind, shard
):
    table, older, newer = two_versions
    corrupt(newer, kind, shard)
    index = open_index(table, builds.INDEX)
    assert index.coverage == 1.0  # the damage is not seen yet
    snapshot = table.current_snapshot().snapshot_id
    with caplog.at_level(logging.ERROR, "puffin_ann"):
        builds.assert_answers(index, table, snapshot, QUERIES, 5)
    assert newer in caplog.text
    told = report(index.search(QUERIES, 5))
    assert told["coverage"] == index.coverage == pytest.approx(60 / 70)
    assert told["rows_scanned"] == 10
    (sentence,) = told["damaged"]
    assert newer in sentence
    assert f"shard {shard}" in sentence
    assert older in sentence
    builds.assert_within(index, builds.live(table), QUERIES)


@pytest.mark.parametrize("kind", ["graph", "rows"])
def test_a_version_goes_on_without_a_shard_where_an_older_one_covers_less(words, kind):
    """A hundred rows are new, which the older version would leave to a scan; a shard has fewer."""
    publish(words, "a")
    words.append(builds.rows(range(60, 160)))
    newer = publish(words, "b")
    forget_cache()
    corrupt(newer, kind, shard=1)
    index = open_index(words, builds.INDEX)
    builds.assert_answers(index, words, words.current_snapshot().snapshot_id, QUERIES, 5)
    told = report(index.search(QUERIES, 5))
    assert 0 < told["rows_scanned"] < 100
    (sentence,) = told["damaged"]
    assert f"{told['rows_scanned']} rows are compared in the table instead" in sentence
    builds.assert_within(index, builds.live(words), QUERIES)


def test_thresholds_meet_damage_as_searches_do(two_versions):
    table, _, newer = two_versions
    corrupt(newer)
    builds.assert_within(open_index(table, builds.INDEX), builds.live(table), QUERIES)


def test_what_is_asked_of_the_indexed_rows_alone_is_held_to_those_of_the_version_used(two_versions):
    table, _, newer = two_versions
    index = open_index(table, builds.INDEX)
    corrupt(newer)
    found = index.search(QUERIES[:1], 60, columns=["id"], freshness="indexed")
    assert pc.max(found.column("id")).as_py() == 59
    assert report(found)["damaged"]


def test_a_file_whose_routing_cannot_be_read_is_told_with_the_answer(two_versions):
    table, _, newer = two_versions
    corrupt(newer, "routing")
    index = open_index(table, builds.INDEX)
    builds.assert_answers(index, table, table.current_snapshot().snapshot_id, QUERIES, 5)
    (sentence,) = report(index.search(QUERIES, 5))["damaged"]
    assert newer in sentence


def test_a_file_that_is_removed_under_an_open_index_is_replaced(two_versions):
    table, _, newer = two_versions
    index = open_index(table, builds.INDEX)
    os.remove(newer)
    builds.assert_answers(index, table, table.current_snapshot().snapshot_id, QUERIES, 5)
    assert any("is gone" in message for message in report(index.search(QUERIES, 5))["damaged"])


@pytest.mark.usefixtures("published_on_main")
def test_the_same_version_in_another_file_is_as_good(words):
    publish(words, "a")
    both = publish(words, "b", name="second", metric="ip")
    forget_cache()
    corrupt(both)
    index = open_index(words, builds.INDEX)
    index.search(QUERIES, 5)
    assert index.coverage == 1.0
    assert open_index(words, "second").search(QUERIES, 5).num_rows == 15


@pytest.mark.parametrize("kind", ["graph", "rows"])
def test_a_forced_refresh_of_a_damaged_index_makes_the_shard_again(words, kind):
    path = publish(words, "a")
    declared = builds.declaration()
    assert refresh_in_process(declared, run_id="r", force=True)["action"] == "none"
    corrupt(path, kind, shard=1)
    assert refresh_in_process(declared, run_id="r")["action"] == "none"  # nothing is read for it
    done = refresh_in_process(declared, run_id="r", force=True)
    assert done["action"] == "refresh"
    assert "make shard 1 again" in done["reason"]
    forget_cache()
    index = open_index(words.refresh(), builds.INDEX)
    builds.assert_answers_are(index, builds.live(words), QUERIES, 5)
    assert report(index.search(QUERIES, 5))["damaged"] == []


def test_a_merge_into_a_damaged_shard_makes_it_again(words, caplog):
    declared = [
        builds.declaration(
            name=name,
            algorithm="vamana",
            parameters=builds.PARAMETERS["vamana"],
            recall_target=0.5,
            refresh={"delta_ratio": 0.0, "min_rows": 0},
        )
        for name in (builds.INDEX, "second")
    ]
    for declaration in declared:
        builds.build(declaration, f"build-{declaration.name}")
    path = newest_version(words.refresh(), builds.INDEX).path.removeprefix("file://")
    corrupt(path, "graph", shard=1)
    words.append(builds.rows(range(60, 90)))
    done = maintain(declared, run_id="window", runner=InProcess())
    assert re.search("shard 1 of index 'words_index'.*--fix.*planning it again", caplog.text)
    assert "make shard 1 again" in done["indexes"][builds.INDEX]["reason"]
    forget_cache()
    for name in (builds.INDEX, "second"):
        index = open_index(words.refresh(), name)
        assert index.view.rows_to_scan == 0
        builds.assert_within(index, builds.live(words), QUERIES)
        assert report(index.search(QUERIES, 5))["damaged"] == []


def test_a_version_of_another_metric_never_answers(words):
    publish(words, "a", metric="ip")
    corrupt(publish(words, "b", metric="l2"))
    forget_cache()
    index = open_index(words, builds.INDEX)
    builds.assert_answers_are(index, builds.live(words), QUERIES, 5)
    assert 0 < index.coverage < 1
    assert index.metric == "l2"


def test_without_another_version_rows_are_compared_in_the_table_and_told_which(words):
    path = publish(words, "a")
    forget_cache()
    corrupt(path, shard=1)
    index = open_index(words, builds.INDEX)
    (lost,) = [shard.rows for shard in index.version.routing.shards if shard.shard_id == 1]
    builds.assert_answers_are(index, builds.live(words), QUERIES, 5)
    told = report(index.search(QUERIES, 5))
    assert told["rows_scanned"] == lost
    (said,) = told["damaged"]
    assert f"{lost} rows are compared in the table" in said
    assert path in said
    assert "shard 1" in said
    assert "checksum" in said
    assert "puffin-ann doctor test.demo.words --fix" in said


@pytest.mark.parametrize("kind", ["routing", "coverage"])
def test_an_index_without_a_readable_version_is_damaged_and_not_missing(words, capsys, kind):
    path = publish(words, "a")
    corrupt(path, kind)

    for look in (open_index, lambda table, name: status(table, None)):
        with pytest.raises(DamagedIndexError, match=re.escape(path)) as refused:
            look(words.refresh(), builds.INDEX)
        assert f"puffin-ann build {builds.INDEX} --force" in str(refused.value)
    with pytest.raises(IndexNotFoundError, match=f"it has: {builds.INDEX}"):
        open_index(words, "another")


@pytest.mark.parametrize("harm", [b"", b"PFA1 no more"], ids=["empty", "overwritten"])
def test_the_tables_metadata_tells_of_an_index_whose_file_says_nothing(words, harm):
    path = publish(words, "a")
    with open(path, "wb") as file:
        file.write(harm)

    with pytest.raises(DamagedIndexError, match=re.escape(path)):
        open_index(words.refresh(), builds.INDEX)
    with pytest.raises(IndexNotFoundError):
        open_index(words, "words")


def test_the_gate_never_looks_for_another_version(words):
    """What it measures must be what is published."""
    publish(words, "a")
    plan = build.plan_build(builds.declaration(), run_id="b", overrides={"force": True})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("puffin_ann.lifecycle.build.gate.choose_widths", _damaged)
        with pytest.raises(FormatError, match="corrupted"):
            builds.run_stages(plan)


def _damaged(*_, **__):
    raise FormatError("corrupted")


def test_the_command_line_warns_beside_its_answers(two_versions, monkeypatch, capsys):
    _, _, newer = two_versions
    corrupt(newer)
    arguments = ["search", "test.demo.words", builds.INDEX, "--key", "id=5", "--json"]
    monkeypatch.setattr(sys, "argv", ["puffin-ann", *arguments])
    with pytest.raises(SystemExit) as left:
        command_line()
    said = capsys.readouterr()
    assert not left.value.code
    assert len(json.loads(said.out)["answers"]) == 10
    assert "warning: " in said.err
    assert newer in said.err


def test_a_damaged_data_file_is_not_told_as_damage_of_the_index(two_versions):
    table, _, _ = two_versions
    before = {plan_file.file.file_path for plan_file in table.refresh().scan().plan_files()}
    table.append(builds.rows(range(70, 80)))
    (file,) = [
        plan_file.file
        for plan_file in table.refresh().scan().plan_files()
        if plan_file.file.file_path not in before
    ]
    path = file.file_path.removeprefix("file://")
    os.truncate(path, file.file_size_in_bytes // 2)
    index = open_index(table, builds.INDEX)
    with pytest.raises(DataFileError, match=f"{path} is not a readable Parquet file"):
        index.search(QUERIES, 3)
    assert len(index.search(QUERIES, 3, freshness="indexed")) == 3 * len(QUERIES)
