"""`puffin-ann plan`, on the embedded catalog."""

import json

import pytest

from puffin_ann.errors import EnvironmentProblemError
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
