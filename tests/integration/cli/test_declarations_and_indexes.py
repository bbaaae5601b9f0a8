"""What commands tell of declarations that do not fit, and of indexes that none declares."""

import json

import pytest
import yaml

from puffin_ann.declaration import load_declaration, parse_declaration
from puffin_ann.errors import CatalogUnavailableError
from puffin_ann.lifecycle.runs.maintain import maintain
from puffin_ann.lifecycle.runtime.runners import InProcess
from puffin_ann.settings import settings
from tests.support.lifecycle import builds

TABLE = ("test.demo.words", builds.INDEX)


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
