"""What is wrong with PyIceberg's configuration is told with the file, the line and what to do."""

import os
import subprocess
import sys

import pytest
from pyiceberg.utils.config import Config

from puffin_ann.errors import CatalogUnavailableError
from puffin_ann.imports.pyiceberg_configuration import unreadable
from puffin_ann.lake.catalog.listing import catalog_names
from puffin_ann.lake.catalog.tables import load_table, unavailable
from tests.support.paths import ROOT

ENTRANCES = (
    "puffin_ann.open_index('lake.a.b', 'words')",
    *(
        f"app({command!r}.split())"
        for command in (
            "list",
            "init lake.a.b",
            "build index.yaml",
            "plan lake.a.b words",
            "refresh index.yaml",
            "search lake.a.b words --key id=1",
            "warm lake.a.b words",
            "status lake.a.b",
            "history lake.a.b words",
            "gather index.yaml",
            "doctor lake.a.b",
            "clean lake.a.b",
            "drop lake.a.b words",
            "rename index.yaml new.yaml",
            "maintain lake.a.b",
            "evaluate index.yaml",
        )
    ),
)
"""What a process may ask first. An import that failed is tried again by the next."""

ASK = """
import puffin_ann
from puffin_ann.cli.app import app
from puffin_ann.errors import PuffinAnnError
for entrance in {entrances!r}:
    try:
        eval(entrance)
        print("nothing", entrance)
    except PuffinAnnError as error:
        print(type(error).__name__, error)
    except BaseException as error:
        print(entrance, repr(error))
"""

DECLARATION = """
name: words
table: lake.a.b
column: embedding
metric: cosine
algorithm: exact
"""


def test_a_file_that_cannot_be_read_is_named_wherever_it_is_read_first(tmp_path):
    (tmp_path / ".pyiceberg.yaml").write_text("catalog: [\n")
    (tmp_path / "index.yaml").write_text(DECLARATION)
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(entrances=ENTRANCES)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "include"), "PYICEBERG_HOME": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    told = done.stdout.splitlines()
    file = tmp_path / ".pyiceberg.yaml"
    assert len(told) == len(ENTRANCES), done.stderr
    expected = f"CatalogUnavailableError {file}, line 1, cannot be read: "
    assert [line for line in told if not line.startswith(expected)] == []


@pytest.fixture
def wrong_with(tmp_path, monkeypatch):
    """A function that returns what is told of a file's text, by whoever reads it."""

    def tell(text: bytes) -> str:
        (tmp_path / ".pyiceberg.yaml").write_bytes(text)
        monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
        with pytest.raises(Exception) as caught:  # noqa: PT011 - PyIceberg's are of many kinds
            Config()
        told = str(unreadable(caught.value))
        assert told.startswith(str(tmp_path / ".pyiceberg.yaml"))
        return told.removeprefix(str(tmp_path / ".pyiceberg.yaml"))

    return tell


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("catalog: {lake: {type: sql}}\n", ", line 1, cannot be read: PyIceberg takes no settings"),
        ("catalog:\n\tlake:\n", ", line 2, cannot be read: found character '\\t'"),
        ("catalog:\n  a:\n    uri: x\n  a:\n", ", line 4, cannot be read: Duplicate key 'a'"),
        ("catalog:\n  a:\n    uri: 'x\n", ", line 4, cannot be read: found unexpected end"),
        (
            "catalog:\n  a:\n    token: *secret\n",
            ", line 3, cannot be read: a value that begins with *",
        ),
        ("catalog:\n  a:\n    uri: \0x\n", ", line 3, holds a character that is no text"),
        ("- a\n", " holds no settings"),
        ("# later\n", " holds no settings"),
        ("", " holds no settings"),
        ("\xff", " cannot be read: it is not text"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(text, told, wrong_with):
    assert wrong_with(text.encode("latin-1")).startswith(told)


def test_no_value_is_told_of_a_configuration_that_contradicts_itself(
    wrong_with, tmp_path, monkeypatch
):
    assert "secret" not in wrong_with(b"catalog:\n  a:\n    token: *secret\n")
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PYICEBERG_CATALOG__A", "x")
    monkeypatch.setenv("PYICEBERG_CATALOG__A__TOKEN", "secret")
    with pytest.raises(ValueError, match="secret") as caught:
        Config()
    told = str(unreadable(caught.value))
    assert "secret" not in told
    assert "a name has one value in one place, and settings below it in another" in told


def test_what_a_file_may_look_like_is_told(wrong_with):
    assert "write one setting a line, indented by spaces" in wrong_with(b"catalog: [\n")


@pytest.fixture
def describe(tmp_path, monkeypatch):
    """A function that has PyIceberg read a text as its file."""

    def write(text: str) -> None:
        (tmp_path / ".pyiceberg.yaml").write_text(text)
        monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())

    return write


def test_a_file_that_cannot_be_read_any_more_is_told(describe, tmp_path):
    describe("catalog:\n  lake:\n    uri: sqlite:///none.db\n")
    (tmp_path / ".pyiceberg.yaml").write_text("catalog: [\n")
    with pytest.raises(CatalogUnavailableError, match=r"\.pyiceberg\.yaml, line 1, cannot be read"):
        load_table("other.a.b")


@pytest.mark.parametrize("text", ["catalog: lake\n", "catalog:\n- lake\n"])
def test_what_describes_no_catalog_is_told(describe, text):
    describe(text)
    with pytest.raises(CatalogUnavailableError, match=r"\.pyiceberg\.yaml or .*describes no cata"):
        load_table("lake.a.b")
    with pytest.raises(CatalogUnavailableError, match="describes no catalog"):
        catalog_names()


def test_a_catalog_that_has_no_settings_is_told(describe):
    describe("catalog:\n  lake: sqlite\n")
    with pytest.raises(CatalogUnavailableError, match="'lake' has one value in the place of set"):
        load_table("lake.a.b")


def test_a_catalog_of_a_type_that_is_none_is_told_with_those_that_there_are(describe):
    describe("catalog:\n  lake:\n    type: sqll\n    uri: http://127.0.0.1:1\n")
    with pytest.raises(CatalogUnavailableError, match=r"'lake' is configured, but.*types are: r"):
        load_table("lake.a.b")


def test_a_catalog_without_an_address_is_told(describe):
    describe("catalog:\n  lake:\n    type: rest\n")
    with pytest.raises(CatalogUnavailableError, match=r"'lake' is configured, but.*__LAKE__URI"):
        load_table("lake.a.b")


def test_the_catalog_that_was_probably_meant_is_told(describe):
    describe("catalog:\n  lake:\n    uri: sqlite:///x.db\n  other:\n    uri: sqlite:///y.db\n")
    with pytest.raises(CatalogUnavailableError) as caught:
        load_table("lak.a.b")
    assert "'lak' is not configured" in str(caught.value)
    assert caught.value.aside == "configured are: lake, other (did you mean 'lake'?)"


def test_a_class_that_is_not_there_is_told(describe):
    describe("catalog:\n  lake:\n    uri: http://127.0.0.1:1\n    py-io-impl: nowhere.It\n")
    told = str(unavailable("lake", ValueError("Could not initialize FileIO: nowhere.It")))
    assert "py-io-impl is 'nowhere.It', which cannot be imported" in told
    assert "service" not in told


def test_a_file_that_this_user_may_not_read_is_told(describe, tmp_path, monkeypatch):
    (tmp_path / "catalog.db").touch()
    describe(f"catalog:\n  lake:\n    uri: sqlite:///{tmp_path}/catalog.db\n")
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may read all
    with pytest.raises(CatalogUnavailableError, match=r"catalog\.db, which this user may not read"):
        load_table("lake.a.b")
