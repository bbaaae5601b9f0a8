"""A build that passes a bound of its declaration is asked about at the terminal."""

import io
import sys

import pytest

from tests.support import builds

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
        assert (code, ABOVE in err) == (2 if command == "build" else 0, True), err
    assert asks.refresh().metadata_location == before


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
