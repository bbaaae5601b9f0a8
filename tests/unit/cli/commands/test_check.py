import json

import pytest
from typer.testing import CliRunner

from puffin_ann.cli.app import app
from puffin_ann.declaration.json_schema import declaration_schema
from puffin_ann.errors import DeclarationError
from puffin_ann.settings import settings

VALID = "table: c.n.t\ncolumn: v\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PUFFIN_ANN_DECLARATIONS_DIR", str(tmp_path))
    settings.cache_clear()
    yield tmp_path
    settings.cache_clear()


def check(*arguments: str):
    return CliRunner().invoke(app, ["check", *arguments])


def test_valid_declarations_are_named(folder):
    (folder / "one.yaml").write_text(VALID)
    (folder / "other.yaml").write_text(VALID)
    done = check()
    assert done.exit_code == 0
    assert done.stdout.splitlines() == ["one: valid", "other: valid"]


def test_every_file_that_is_not_valid_is_told_and_fails(folder):
    (folder / "one.yaml").write_text(VALID)
    (folder / "two.yaml").write_text("metric: dot\n")
    (folder / "three.yaml").write_text("[")
    done = check("--json")
    assert isinstance(done.exception, DeclarationError)
    found = json.loads(done.stdout)
    assert found["valid"] == ["one"]
    assert len(found["problems"]) == 2
    for name in ("two.yaml", "three.yaml"):
        assert name in str(done.exception)


def test_a_folder_without_declarations_is_a_mistake(folder):
    done = check(str(folder))
    assert isinstance(done.exception, DeclarationError)
    assert "has no declaration" in str(done.exception)


def test_one_file_is_checked_wherever_it_lies(tmp_path):
    (tmp_path / "one.yaml").write_text(VALID)
    assert check(str(tmp_path / "one.yaml")).stdout == "one: valid\n"
    done = check(str(tmp_path / "absent.yaml"))
    assert isinstance(done.exception, DeclarationError)


def test_the_schema_is_printed_for_editors():
    assert json.loads(check("--schema").stdout) == declaration_schema()


def test_a_misspelt_field_is_asked_about(folder):
    (folder / "one.yaml").write_text(VALID + "recal_target: 0.9\n")
    assert "did you mean 'recall_target'?" in str(check().exception)
