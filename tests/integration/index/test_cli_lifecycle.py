"""`puffin-ann plan`, `history` and `drop`, on the embedded catalog."""

import json
import sys

import builds
import pytest
import yaml

from puffin_ann.cli.main import run
from puffin_ann.settings import settings


@pytest.fixture
def cli(monkeypatch, capsys):
    """Run the command line in this process; returns exit code, output and errors."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["puffin-ann", *arguments])
        monkeypatch.setattr("puffin_ann.cli.output.console.width", 200, raising=False)
        with pytest.raises(SystemExit) as left:
            run()
        said = capsys.readouterr()
        return left.value.code or 0, said.out, said.err

    return call


@pytest.fixture
def folder(tmp_path, monkeypatch, catalog):
    """A folder of declarations that the library looks in."""
    folder = tmp_path / "indexes"
    folder.mkdir()
    monkeypatch.setenv("PUFFIN_ANN_DECLARATIONS_DIR", str(folder))
    settings.cache_clear()
    return folder


@pytest.fixture
def declare(folder):
    """Write a declaration into the folder; None takes it away."""

    def write(name: str = builds.INDEX, **changes):
        declared = builds.declaration(name=name, **changes)
        data = declared.model_dump(mode="json")
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(data))
        return declared

    return write


@pytest.fixture
def indexed(words, declare):
    builds.build(declare(), "run")
    return words.refresh()


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
    assert "refresh: 5 rows came since snapshot" in out
    assert "5 rows become delta 2" in out
    code, out, _ = cli("plan", *TABLE, "--json")
    decision = json.loads(out)["decision"]
    assert [one["action"] for one in decision["shards"]] == ["none", "none"]
    assert decision["delta"]["rows"] == 5
    assert decision["bytes_written"] == decision["delta"]["bytes_written"] + decision["other_bytes"]


def test_a_plan_for_rows_that_wait_says_how_long(cli, indexed):
    indexed.append(builds.rows(range(100, 105)))
    code, out, _ = cli("plan", *TABLE)
    assert code == 0
    assert "none: 5 changed rows are fewer than refresh.min_rows 1,000" in out


def test_a_plan_after_a_change_of_shape_is_a_build(cli, indexed, declare):
    declare(seed=4)
    code, out, _ = cli("plan", *TABLE)
    assert code == 0
    assert "build: the declaration changed since it was built: seed 0 → 4" in out


def test_a_plan_of_an_index_that_is_not_declared_is_refused(cli, indexed):
    code, _, err = cli("plan", "test.demo.words", "other")
    assert code == 2
    assert "no index named 'other' is declared for table test.demo.words in" in err
    assert builds.INDEX in err


def test_a_plan_changes_nothing(cli, indexed):
    before = indexed.metadata_location
    indexed.append(builds.rows(range(100, 140)))
    after = indexed.metadata_location
    cli("plan", *TABLE, "--maintenance")
    assert indexed.refresh().metadata_location == after != before
