"""`puffin-ann drop`: what it asks, and what it does where nobody is there to answer."""

import io
import json
import sys

import pytest

from tests.support.lifecycle import builds

TABLE = ("test.demo.words", builds.INDEX)


def test_drop_asks_first_and_tells_what_it_did(cli, indexed, declare, folder, monkeypatch):
    before = indexed.metadata_location
    code, _, err = cli("drop", *TABLE, "--yes")
    assert (code, "is declared" in err) == (2, True)
    (folder / f"{builds.INDEX}.yaml").unlink()
    code, out, _ = cli("drop", *TABLE, "--dry-run")
    assert (code, "would be dropped, 1 version" in out) == (0, True)
    for given in ("--yes", "--json"):
        code, out, err = cli("drop", *TABLE, given)
        assert (code, out) == (2, "")
        assert "not declared here" in err
        assert "give --force" in err
    monkeypatch.setattr("typer.prompt", lambda *_, **__: "y")
    code, out, err = cli("drop", *TABLE)
    assert (code, "nothing was dropped" in err) == (2, True)
    assert "it records: column 'embedding'" in out
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    code, _, err = cli("drop", *TABLE, "--force")
    assert (code, "nothing was dropped" in err) == (2, True)
    assert indexed.refresh().metadata_location == before
    monkeypatch.setattr("typer.prompt", lambda *_, **__: f" {builds.INDEX} ")
    code, out, _ = cli("drop", *TABLE)
    assert (code, "was dropped, 1 version" in out) == (0, True)
    assert "deregistered" in out
    code, _, err = cli("drop", *TABLE, "--yes")
    assert (code, "was dropped before" in err) == (3, True)


def test_what_would_be_dropped_is_told_beside_a_bad_declaration(cli, indexed, folder):
    (folder / f"{builds.INDEX}.yaml").rename(folder / "kept.yaml.orig")
    (folder / "other.yaml").write_text("metric: [")
    code, out, err = cli("drop", *TABLE, "--dry-run")
    assert (code, "would be dropped, 1 version" in out) == (0, True)
    assert "other.yaml: is not valid YAML" in err
    code, out, err = cli("drop", *TABLE, "--yes")
    assert (code, out) == (2, "")
    assert f"it cannot be known whether index '{builds.INDEX}' is declared" in err
    code, out, err = cli("drop", *TABLE, "--yes", "--force")
    assert (code, "was dropped, 1 version" in out) == (0, True)


def test_drop_by_force_is_for_machines_as_well(cli, indexed):
    code, out, _ = cli("drop", *TABLE, "--yes", "--force", "--json")
    report = json.loads(out)
    assert code == 0
    assert (report["dry_run"], report["versions"], report["others"]) == (False, ["run"], [])


class Interrupted(io.StringIO):
    """An input at which an interrupt comes."""

    def readline(self, size: int = -1) -> str:
        raise KeyboardInterrupt


NOBODY = {
    "end of input": io.StringIO,
    "closed input": lambda: None,
    "bytes of no text": lambda: io.TextIOWrapper(io.BytesIO(b"\xff\xfe\n"), "utf-8"),
}


@pytest.mark.parametrize("given", NOBODY.values(), ids=NOBODY)
@pytest.mark.parametrize(
    ("options", "advice"), [((), "--force and --yes"), (("--force",), "give --yes, too")]
)
def test_where_nobody_answers_it_says_how_to_do_without(
    cli, indexed, folder, monkeypatch, given, options, advice
):
    (folder / f"{builds.INDEX}.yaml").unlink()
    before = indexed.metadata_location
    monkeypatch.setattr(sys, "stdin", given())
    code, _, err = cli("drop", *TABLE, *options)
    assert code == 2
    assert err.startswith("error: nothing was dropped")
    assert advice in err
    assert "Aborted" not in err
    assert indexed.refresh().metadata_location == before


def test_an_interrupt_at_the_question_is_one(cli, indexed, folder, monkeypatch):
    (folder / f"{builds.INDEX}.yaml").unlink()
    before = indexed.metadata_location
    monkeypatch.setattr(sys, "stdin", Interrupted())
    code, _, err = cli("drop", *TABLE)
    assert (code, "nobody typed" in err) == (1, False)
    assert indexed.refresh().metadata_location == before
