"""`puffin-ann plan`, `history` and `status`, on the embedded catalog."""

import json
import re

import pytest
import yaml

from puffin_ann.blobs.version import partitions as partitions_blob
from puffin_ann.declaration import load_declaration, parse_declaration
from puffin_ann.errors import CatalogUnavailableError, EnvironmentProblemError
from puffin_ann.lifecycle.report.history import history
from puffin_ann.lifecycle.report.plan import preview
from puffin_ann.lifecycle.runs.in_process import refresh_in_process
from puffin_ann.lifecycle.runs.maintain import maintain
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.search.version.index_files import open_puffin
from puffin_ann.settings import settings
from tests.support.lifecycle import builds

TABLE = ("test.demo.words", builds.INDEX)


def test_a_plan_of_an_index_that_is_not_published_is_a_build(cli, words, declare):
    declare()
    code, out, _ = cli("plan", *TABLE)
    assert code == 0
    assert "build: no version of the index is published" in out


def test_a_plan_of_an_unchanged_table_says_that_nothing_is_due(cli, indexed):
    code, out, _ = cli("plan", *TABLE, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["decision"]["action"] == "none"
    assert found["decision"]["reason"] == (
        f"nothing changed since snapshot {found['base_snapshot_id']}"
    )
    assert found["decision"]["bytes_written"] == found["decision"]["seconds"] == 0


def test_check_asks_the_tables_whether_declarations_fit_them(cli, indexed, folder, declare):
    code, out, err = cli("check", "--tables")
    assert (code, err) == (0, "")
    assert out == f"{builds.INDEX}: valid, and fits test.demo.words\n"
    indexed.append(builds.rows([*range(5)] * 20))  # in row groups of ten
    declare("doubtful", key="word")
    declare("nowhere", column="embeding")
    declare("elsewhere", table="test.demo.others")
    assert cli("check")[0] == 0
    code, out, err = cli("check", "--tables")
    told = " ".join(err.split())
    assert code == 2
    assert "doubtful: valid" in out
    assert "index 'doubtful': key 'word' does not tell rows apart: of the first 10, 5 have" in told
    assert "index 'nowhere': test.demo.words has no top-level column 'embeding'" in told
    assert "index 'elsewhere':" in told
    assert "nowhere" not in out


def test_check_tells_a_table_that_cannot_be_read_from_one_that_does_not_fit(
    cli, indexed, declare, monkeypatch
):
    def refuse(_: str):
        raise CatalogUnavailableError("catalog 'test' does not answer")

    monkeypatch.setattr("puffin_ann.lake.catalog.tables.load_table", refuse)
    code, out, err = cli("check", "--tables")
    assert (code, out) == (6, "")
    assert "does not answer" in err


def test_a_bad_declaration_is_warned_of_by_commands_about_another_index(cli, indexed, folder):
    (folder / "other.yaml").write_text("metric: [")
    for arguments in (("plan", *TABLE), ("status", *TABLE), ("refresh", builds.INDEX)):
        code, out, err = cli(*arguments)
        assert (code, builds.INDEX in out) == (0, True), arguments
        assert "no declaration here" not in " ".join(out.split())
        assert "warning: " in err
        assert "other.yaml: is not valid YAML" in err


def test_a_bad_declaration_fails_commands_about_all_indexes_at_their_end(cli, indexed, folder):
    (folder / "other.yaml").write_text("metric: [")
    for arguments in (("status", TABLE[0]), ("doctor", TABLE[0], "--quick")):
        code, out, err = cli(*arguments)
        assert (code, "test.demo.words" in out) == (2, True), arguments
        assert "no declaration here" not in " ".join(out.split())
        assert "error: " in err
        assert "other.yaml: is not valid YAML" in err


def test_nothing_is_removed_while_a_declaration_is_bad(cli, indexed, folder):
    (folder / "other.yaml").write_text("metric: [")
    for arguments in (("clean", TABLE[0]), ("drop", *TABLE)):
        code, out, err = cli(*arguments)
        assert (code, out) == (2, "")
        assert "other.yaml: is not valid YAML" in err
    code, out, err = cli("doctor", TABLE[0], "--fix")
    assert code == 2
    assert "nothing is wrong" in out
    assert "removed nothing that may be old" in " ".join(out.split())
    assert "other.yaml: is not valid YAML" in err
    declared = load_declaration(folder / f"{builds.INDEX}.yaml")
    done = maintain([declared], run_id="window", runner=InProcess())
    assert done["indexes"][builds.INDEX]["action"] == "none"
    assert done["actions"][-1].startswith("not cleaned, since it is not known what is to be kept")


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


def test_a_plan_names_each_shard_with_its_reason_and_figures(cli, indexed, declare):
    declare(refresh={"min_rows": 1, "delta_ratio": 0.5})
    indexed.append(builds.rows(range(100, 105)))
    code, out, _ = cli("plan", *TABLE)
    assert code == 0
    for word in ("shard", "action", "reason", "rows", "written", "copied", "seconds"):
        assert word in out
    assert "2 (new delta)" in out
    assert "refresh: 5 rows added since snapshot" in out
    assert "5 rows become delta 2" in out
    code, out, _ = cli("plan", *TABLE, "--json")
    decision = json.loads(out)["decision"]
    assert [shard["action"] for shard in decision["shards"]] == ["none", "none"]
    assert decision["delta"]["rows"] == 5
    assert decision["bytes_written"] == decision["delta"]["bytes_written"] + decision["other_bytes"]


def test_a_plan_in_a_narrow_terminal_has_each_reason_on_a_line_of_its_own(cli, indexed, declare):
    declare(refresh={"min_rows": 1, "delta_ratio": 0.5})
    indexed.append(builds.rows(range(100, 105)))
    lines = cli("plan", *TABLE, width=80)[1].splitlines()
    assert lines[0] == "plan for words_index on test.demo.words"
    assert [line.split(";")[0] for line in lines[1::2][:3]] == [
        "shard 0: nothing to do",
        "shard 1: nothing to do",
        "shard 2 (new delta): add",
    ]
    assert [line for line in lines if line.startswith(" ")] == [
        "    none of its rows was relocated or removed",
        "    none of its rows was relocated or removed",
        "    5 rows added",
    ]
    assert [line.split(";")[:2] for line in lines[7:9]] == [
        ["rows read, routing, coverage", " 5 rows"],
        ["all: refresh", " 5 rows"],
    ]
    assert lines[9].startswith("refresh: 5 rows added since snapshot")


@pytest.mark.parametrize("width", [80, 200])
def test_a_plan_names_no_delta_where_rows_are_expected_to_have_moved(cli, indexed, declare, width):
    declare(refresh={"min_rows": 1})
    indexed.overwrite(indexed.scan().to_arrow())
    code, out, _ = cli("plan", *TABLE, width=width)
    assert code == 0
    assert "remap" in out
    assert "new delta" not in out


def test_a_plan_for_rows_that_wait_says_how_long(cli, indexed):
    indexed.append(builds.rows(range(100, 105)))
    code, out, _ = cli("plan", *TABLE)
    assert code == 0
    assert "nothing to do: 5 changed rows are fewer than refresh.min_rows 1,000" in out


def test_a_plan_after_a_change_of_shape_is_a_build(cli, indexed, declare):
    declare(seed=4)
    code, out, _ = cli("plan", *TABLE)
    assert code == 0
    assert "build: the declaration changed since it was built: seed 0 → 4" in out


def test_a_plan_of_an_index_that_is_not_declared_is_refused(cli, indexed):
    code, _, err = cli("plan", "test.demo.words", "other")
    assert code == 2
    assert "no index named 'other' is declared for table test.demo.words in" in err
    assert "declared are: words_index on test.demo.words; declare it there" in " ".join(err.split())


def test_a_plan_for_a_table_without_declarations_names_those_that_there_are(cli, indexed):
    code, _, err = cli("plan", "demo.words", builds.INDEX)
    assert code == 2
    said = " ".join(err.split())
    assert "declared are: words_index on test.demo.words; the table is to be named as it is" in said


def test_a_plan_changes_nothing(cli, indexed):
    before = indexed.metadata_location
    indexed.append(builds.rows(range(100, 140)))
    after = indexed.metadata_location
    cli("plan", *TABLE, "--maintenance")
    assert indexed.refresh().metadata_location == after != before


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


@pytest.mark.parametrize(
    "command", [("maintain", builds.INDEX), ("refresh", builds.INDEX, "--master", "local[2]")]
)
def test_no_spark_is_started_where_nothing_is_due(cli, indexed, declare, monkeypatch, command):
    def start(*_):
        raise EnvironmentProblemError("Spark would be started")

    monkeypatch.setattr("puffin_ann.cli.spark_session.spark_session", start)
    monkeypatch.setattr(f"puffin_ann.cli.commands.runs.{command[0]}.require_pyspark", lambda: None)
    code, out, _ = cli(*command)
    assert code == 0
    assert f"{builds.INDEX}: nothing to do: " in out
    declare(refresh={"min_rows": 1, "delta_ratio": 0.5})
    indexed.append(builds.rows(range(60, 70)))
    code, _, err = cli(*command)
    assert code == EnvironmentProblemError.exit_code
    assert "Spark would be started" in err


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


def test_commands_about_an_index_that_two_files_declare_name_both(cli, indexed, declare, folder):
    declare("third")
    text = (folder / f"{builds.INDEX}.yaml").read_text()
    (folder / "again.yaml").write_text(text)
    for arguments in (("plan", *TABLE), ("refresh", builds.INDEX), ("drop", *TABLE, "--yes")):
        code, out, err = cli(*arguments)
        assert (code, out) == (2, ""), arguments
        assert "again.yaml and " in err
        assert f"{builds.INDEX}.yaml: field 'name': each declares" in err
        assert "no index named" not in err
    code, out, err = cli("plan", TABLE[0], "third")
    assert (code, "build: " in out, "each declares" in err) == (0, True, True)


def test_status_names_an_orphan(cli, indexed, declare, folder):
    declare("other")
    (folder / f"{builds.INDEX}.yaml").unlink()
    code, out, _ = cli("status", *TABLE)
    assert code == 0
    assert "no declaration here names it" in " ".join(out.split())
    code, out, _ = cli("doctor", "test.demo.words", "--quick")
    told = " ".join(out.split())
    assert code == 8
    assert "undeclared" in told
    assert told.index("declare it") < told.index("puffin-ann drop")


@pytest.mark.parametrize("left", ["no folder", "an empty folder", "no setting"])
def test_without_declarations_a_sound_index_is_sound_and_tells_what_declares_it(
    cli, indexed, folder, monkeypatch, left
):
    declared = load_declaration(folder / f"{builds.INDEX}.yaml")
    (folder / f"{builds.INDEX}.yaml").unlink()
    if left == "no folder":
        folder.rmdir()
    if left == "no setting":
        unset = settings().model_copy(update={"declarations_dir": ()})
        monkeypatch.setattr("puffin_ann.declaration.folder.settings", lambda: unset)
    code, out, err = cli("status", *TABLE)
    told = " ".join(out.split())
    assert (code, err) == (0, "")
    assert "not known here" in told
    assert "it records: column 'embedding'" in told
    assert "drop" not in told
    assert "orphan" not in told
    code, out, _ = cli("doctor", "test.demo.words", "--quick")
    told = " ".join(out.split())
    assert code == 0
    assert "not known here" in told
    assert "drop" not in told
    code, _, err = cli("drop", *TABLE, "--yes")
    assert (code, "not declared here" in err) == (2, True)
    code, out, _ = cli("status", *TABLE, "--declaration")
    again = parse_declaration(yaml.safe_load(out), source="printed")
    assert (code, again) == (0, declared)
    (told,) = json.loads(cli("status", *TABLE, "--json")[1])
    assert told["declaration"]["column"] == "embedding"


@pytest.mark.parametrize("command", ["plan", "history", "drop"])
def test_every_command_has_help_with_an_example(cli, command):
    code, out, _ = cli(command, "--help")
    assert code == 0
    assert f"Example: puffin-ann {command} " in " ".join(out.split())
