"""`puffin-ann history`, and what `status` counts, on the embedded catalog."""

import json
import re

import pytest

from puffin_ann.blobs.version import partitions as partitions_blob
from puffin_ann.lifecycle.report.history import history
from puffin_ann.lifecycle.report.plan import preview
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.search.version.index_files import open_puffin
from tests.support.lifecycle import builds

TABLE = ("test.demo.words", builds.INDEX)


@pytest.mark.usefixtures("published_by_statistics")
def test_of_a_file_that_indexes_share_status_counts_the_bytes_of_each_for_itself(
    cli, indexed, declare
):
    alone = json.loads(cli("status", *TABLE, "--json")[1])[0]
    builds.build(declare("larger", algorithm="exact", parameters={}), "second")
    one, other = json.loads(cli("status", TABLE[0], "--json")[1])
    assert {one["index"], other["index"]} == {builds.INDEX, "larger"}
    found = {each["index"]: each for each in (one, other)}
    assert found[builds.INDEX]["bytes"] == alone["bytes"] < alone["file_bytes"]
    assert one["file_bytes"] == other["file_bytes"] > one["bytes"] + other["bytes"]
    mine = found["larger"]
    text = f"{mine['bytes']:,} of the index, in a file of {mine['file_bytes']:,}"
    assert text in cli("status", TABLE[0], "larger")[1]


def test_history_tells_what_each_run_did_and_what_is_retained(cli, indexed, declare):
    indexed.append(builds.rows(range(60, 80)))
    builds.build(declare(), "manual__2026-01-02")
    code, out, _ = cli("history", *TABLE, "--json")
    found = json.loads(out)
    assert code == 0
    newest, oldest = found["entries"]
    records = [run["record"] for run in (newest, oldest)]
    assert [record["run_id"] for record in records] == ["manual__2026-01-02", "run"]
    assert [record["action"] for record in records] == ["build", "build"]
    assert [record["rows"] for record in records] == [80, 60]
    assert [run["trigger"] for run in (newest, oldest)] == ["manual", "unknown"]
    assert all(record["bytes_written"] > 0 and record["seconds"] > 0 for record in records)
    assert [record["bytes_copied"] for record in records] == [0, 0]
    assert all(0.9 <= record["recall"] <= 1 for record in records)
    assert (newest["coverage"], oldest["coverage"]) == (1.0, 0.75)
    assert found["retained"] == 2
    code, out, _ = cli("history", *TABLE)
    assert code == 0
    assert "2 versions are retained" in out
    assert "manual__2026-01-02" in out
    assert len(re.findall(r"\d\d:\d\d:\d\d UTC", out)) == 2
    columns = ("trigger", "action", "rows", "written", "copied", "seconds", "recall", "coverage")
    assert all(f" {name} " in out for name in columns)


def test_runs_outlive_their_versions_and_snapshots_in_the_history(cli, indexed, declare):
    for number in range(3):
        indexed.append(builds.rows(range(100 + 10 * number, 110 + 10 * number)))
        builds.build(declare(retention={"versions": 1}), f"cli-{number}")
        indexed.refresh()
    assert cli("clean", TABLE[0], "--grace", "0s")[0] == 0
    old = [entry.snapshot_id for entry in indexed.refresh().history()][:-1]
    indexed.maintenance.expire_snapshots().by_ids(old).commit()
    code, out, _ = cli("history", *TABLE, "--json")
    found = json.loads(out)
    assert code == 0
    assert [entry["record"]["run_id"] for entry in found["entries"]] == [
        "cli-2",
        "cli-1",
        "cli-0",
        "run",
    ]
    assert [bool(entry["file"]) for entry in found["entries"]] == [True, False, False, False]
    assert found["retained"] == 1
    assert [entry["record"]["rows"] for entry in found["entries"]] == [90, 80, 70, 60]


def test_a_merge_that_more_new_rows_than_expected_make_due_is_left_to_maintenance_and_told(
    cli, indexed, declare
):
    """As many rows came as went, so that all are expected to have moved; ten did not."""
    declared = declare(refresh={"min_rows": 1, "delta_ratio": 0.05})
    indexed.overwrite(builds.rows([*range(10, 60), *range(100, 110)]))
    expected = json.loads(cli("plan", *TABLE, "--json")[1])["decision"]
    assert (expected["action"], expected["merges"]) == ("refresh", False)
    assert refresh_in_process(declared, run_id="first")["action"] == "refresh"
    found = "deltas would hold 10 live rows, 20.0% of those in shards"
    code, told, _ = cli("refresh", builds.INDEX)
    assert (
        code,
        "nothing changed since" in told,
        f"maintenance merges, since {found}" in " ".join(told.split()),
    ) == (
        0,
        True,
        True,
    )
    due = json.loads(cli("plan", *TABLE, "--maintenance", "--json")[1])["decision"]
    assert (due["action"], due["merges"], found in due["reason"]) == ("refresh", True, True)
    second = refresh_in_process(declared, run_id="second", maintenance=True)
    assert second["action"] == "refresh"
    told = [entry.record for entry in history("test.demo.words", builds.INDEX).entries]
    assert [(run.run_id, run.action, run.rows_added, run.rows_gone) for run in told[:2]] == [
        ("second", "merge", 0, 0),
        ("first", "refresh", 10, 10),
    ]
    assert json.loads(cli("plan", *TABLE, "--json")[1])["decision"]["action"] == "none"


def test_history_tells_refreshes_from_merges_and_copied_from_written_bytes(cli, indexed, declare):
    small = {"min_rows": 1, "delta_ratio": 0.2}
    declared = declare(refresh=small)
    indexed.append(builds.rows(range(60, 65)))
    expected = preview("test.demo.words", declared).decision
    told = [refresh_in_process(declared, run_id="asset_triggered__1")]
    indexed.refresh().append(builds.rows(range(65, 80)))
    told.append(
        refresh_in_process(declare(refresh={**small, "delta_ratio": 1.0}), run_id="scheduled__2")
    )
    _, out, _ = cli("history", *TABLE, "--json")
    found = json.loads(out)["entries"]
    assert [entry["trigger"] for entry in found] == ["schedule", "asset", "unknown"]
    assert [entry["record"]["action"] for entry in found] == ["refresh", "refresh", "build"]
    assert [entry["record"]["rows"] for entry in found] == [80, 65, 60]
    assert [entry["record"]["rows_added"] for entry in found] == [15, 5, 60]
    first = found[1]["record"]
    assert first["reason"] == expected.reason
    with open_puffin(indexed.io, found[1]["file"]) as reader:
        (partitions,) = reader.find(partitions_blob.TYPE)
    # Of shards alone are bytes expected; the partitions go along unchanged.
    assert first["bytes_copied"] == expected.bytes_copied + partitions.length
    # What was expected comes near what it took; so few rows are mostly overhead.
    assert expected.delta is not None
    assert 0.2 < first["bytes_written"] / expected.bytes_written < 5
    for name in ("bytes_written", "bytes_copied"):
        assert [entry["record"][name] for entry in found[1::-1]] == [done[name] for done in told]


def test_a_refresh_tells_what_it_found_to_be_added_and_gone(cli, indexed, declare):
    """The reason tells what was expected, and a row written anew counts as come and gone there."""
    declare(refresh={"min_rows": 1, "delta_ratio": 0.5})
    indexed.append(builds.rows(range(60, 70)))
    indexed.refresh().delete("id < 3")
    code, out, _ = cli("refresh", builds.INDEX)
    assert code == 0, out
    assert "refresh, as planned: 37 rows added and 30 rows removed since" in out
    assert "found: 10 rows added and 3 removed, not counting those that were only relocated" in out
    code, out, _ = cli("refresh", builds.INDEX, "--json")
    told = json.loads(out)
    assert (told["action"], told["rows_added"], told["rows_gone"]) == ("none", None, None)


def test_history_tells_the_rows_of_a_table_that_was_emptied(cli, indexed, declare):
    declare(refresh={"min_rows": 1})
    indexed.delete("id >= 0")
    assert cli("refresh", builds.INDEX)[0] == 0
    code, out, _ = cli("history", *TABLE)
    assert code == 0
    (line,) = (line for line in out.splitlines() if "refresh" in line)
    rows, came, went = (cell.strip() for cell in line.split("│")[5:8])
    assert (rows, came, went) == ("0", "", "60")


def test_the_history_of_an_index_that_is_not_there_says_so(cli, indexed):
    code, _, err = cli("history", "test.demo.words", "other")
    assert code == 3
    assert "'other'" in err


def test_bytes_of_other_indexes_are_copied_not_written(cli, indexed, declare):
    other = declare("other", seed=2)
    builds.build(other, "run")
    _, out, _ = cli("history", "test.demo.words", "other", "--json")
    (entry,) = json.loads(out)["entries"]
    record = entry["record"]
    with open_puffin(indexed.io, entry["file"]) as reader:
        blobs, length = reader.metadata.blobs, reader.length
    mine = [blob for blob in blobs if blob.properties["index"] == "other"]
    shards = [blob for blob in mine if "shard" in blob.properties]
    assert record["bytes_written"] == length - record["bytes_copied"]
    assert record["bytes_written"] > sum(shard.length for shard in shards)
    assert record["bytes_copied"] == sum(blob.length for blob in blobs) - sum(
        blob.length for blob in mine
    )
