"""Where declarations are looked for: a named folder, or that of a checkout, and nowhere else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from puffin_ann.declaration import declarations_folders, folder_beside, known_declarations
from puffin_ann.declaration import folder as folders
from puffin_ann.errors import EnvironmentProblemError
from puffin_ann.settings import settings
from tests.support.paths import ROOT

PACKAGE = ROOT / "include" / "puffin_ann"
DECLARATION = "table: demo.glove.words\ncolumn: embedding\n"


@pytest.fixture
def named(monkeypatch):
    def name(folder: Path) -> None:
        monkeypatch.setenv("PUFFIN_ANN_DECLARATIONS_DIR", str(folder))
        settings.cache_clear()

    yield name
    settings.cache_clear()


@pytest.fixture
def dag_file(tmp_path, monkeypatch) -> Path:
    """A DAG file, in a process whose settings name no folder, with a declaration beside it."""
    monkeypatch.setattr(folders, "_named", {})
    path = tmp_path / "bundle" / "dags.py"
    (path.parent / "indexes").mkdir(parents=True)
    (path.parent / "indexes" / "words.yaml").write_text(DECLARATION)
    return path


def test_a_checkout_has_its_own_folder():
    assert declarations_folders() == (PACKAGE.parent / "indexes",)


def test_an_installed_library_looks_nowhere_until_it_is_told_where(tmp_path):
    installed = tmp_path / "site-packages"
    shutil.copytree(PACKAGE, installed / "puffin_ann", ignore=shutil.ignore_patterns("*.pyc"))
    (installed / "indexes").mkdir()  # of another package, perhaps
    (installed / "indexes" / "words.yaml").write_text(DECLARATION)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PUFFIN_ANN_")},
        "PYTHONPATH": str(installed),
    }
    command = [sys.executable, "-m", "puffin_ann.cli.main", "plan", "demo.glove.words", "words"]
    left = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert left.returncode == EnvironmentProblemError.exit_code
    assert "PUFFIN_ANN_DECLARATIONS_DIR is not set" in left.stderr
    assert "Traceback" not in left.stderr


def test_a_folder_that_is_not_there_is_named(named, tmp_path):
    named(tmp_path / "absent")
    with pytest.raises(EnvironmentProblemError, match=str(tmp_path / "absent")):
        declarations_folders()
    assert known_declarations() is None


def test_an_empty_folder_says_nothing_of_what_is_declared(named, tmp_path):
    named(tmp_path)
    assert known_declarations() is None
    (tmp_path / "words.yaml").write_text(DECLARATION)
    assert [declaration.name for declaration in known_declarations().on("demo.glove.words")] == [
        "words"
    ]


def test_several_folders_are_read_and_may_not_declare_the_same_name(named, tmp_path):
    for team, name in (("a", "words"), ("b", "others")):
        (tmp_path / team).mkdir()
        (tmp_path / team / f"{name}.yaml").write_text(DECLARATION)
    named(f"{tmp_path / 'a'}:{tmp_path / 'b'}")
    assert declarations_folders() == (tmp_path / "a", tmp_path / "b")
    assert {declaration.name for declaration in known_declarations().valid} == {"words", "others"}
    (tmp_path / "b" / "words.yaml").write_text(DECLARATION)
    assert list(known_declarations().ambiguous) == ["words"]


def test_the_folder_beside_a_dag_file_counts_where_no_other_is_named(dag_file, named):
    assert folder_beside(dag_file) == dag_file.parent / "indexes"
    assert [declaration.name for declaration in known_declarations().valid] == ["words"]
    named(dag_file.parent / "others")
    assert folder_beside(dag_file) is None


def test_a_folder_that_a_dag_file_names_counts_beside_those_of_the_settings(dag_file, named):
    team = dag_file.parent / "team"
    team.mkdir()
    (team / "others.yaml").write_text(DECLARATION)
    named(dag_file.parent / "indexes")
    assert folder_beside(dag_file, "team") == team
    assert {declaration.name for declaration in known_declarations().valid} == {"words", "others"}


def test_a_folder_that_a_dag_file_names_has_to_be_there(dag_file):
    with pytest.raises(EnvironmentProblemError, match=f"absent, which {dag_file} names"):
        folder_beside(dag_file, "absent")


def test_a_folder_that_this_user_may_not_look_into_is_told(named, tmp_path, monkeypatch):
    named(tmp_path / "indexes")

    def refuse(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "is_dir", refuse)  # root may look into all
    with pytest.raises(EnvironmentProblemError, match=f"may not look into {tmp_path}, where decl"):
        known_declarations()
