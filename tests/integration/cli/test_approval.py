"""A build that passes a bound of its declaration is asked about at the terminal."""

import io
import sys
from contextlib import nullcontext

import pytest

from puffin_ann.lifecycle.runtime.runners import InProcess
from tests.support.lifecycle import builds

ABOVE = "60 rows, above build.approve_above.rows 50"


@pytest.fixture
def asks(words, declare):
    declare(build={"approve_above": {"rows": 50}})
    return words


def test_nothing_is_built_where_nobody_answers(cli, asks, monkeypatch):
    before = asks.metadata_location
    for command in ("build", "refresh", "maintain"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(""))
        code, _, err = cli(command, builds.INDEX)
        assert (code, ABOVE in err) == (2, True), err
        assert f"nothing was built: index '{builds.INDEX}' would take" in err
        assert "masks and deltas" not in err
    assert asks.refresh().metadata_location == before


def test_maintenance_goes_on_for_others_where_a_first_build_waits(cli, asks, declare, monkeypatch):
    """And a version that is there follows its table, however long what is due waits."""
    monkeypatch.setattr(
        "puffin_ann.cli.commands.runs.maintain.on_spark", lambda *_: nullcontext(InProcess())
    )
    declare(name="other")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    code, out, err = cli("maintain", "test.demo.words")
    assert (code, "other: build: no version" in out) == (2, True), out + err
    assert f"nothing was built: index '{builds.INDEX}' would take {ABOVE}" in err
    assert cli("refresh", builds.INDEX, "--yes")[0] == 0
    declare(build={"approve_above": {"rows": 50}}, metric="ip")
    code, out, err = cli("refresh", builds.INDEX)
    assert (code, "the build waits for approval" in out) == (0, True), out + err


def test_who_answers_yes_or_gives_it_gets_the_build(cli, asks, monkeypatch):
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    code, _, err = cli("build", builds.INDEX)
    assert (code, "give --yes to build it without being asked" in err) == (2, True)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: True)
    code, out, _ = cli("refresh", builds.INDEX)
    assert (code, "published as snapshot" in out) == (0, True)
    asks.delete("id < 55")
    asks.append(builds.rows(range(60, 64)))
    code, out, err = cli("refresh", builds.INDEX, "--force", "--yes")
    assert (code, "published as snapshot" in out, err) == (0, True, "")
