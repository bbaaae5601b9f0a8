"""A table is loaded from a catalog in an SQLite file as PyIceberg's own catalog loads it."""

import pickle
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg import catalog as catalogs
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.utils.config import Config
from sqlalchemy.engine import make_url

from puffin_ann.errors import CatalogUnavailableError
from puffin_ann.lake.catalog import sqlite
from puffin_ann.lake.catalog.sqlite import SqliteCatalog, path_of
from puffin_ann.lake.catalog.tables import load_table
from tests.support.lake import tables

ESCAPED = "sqlite:///{}/a%20b%2525/catalog.db"


@pytest.fixture
def ours(catalog: SqlCatalog) -> SqliteCatalog:
    tables.create(catalog)
    return SqliteCatalog(catalog.name, catalog.properties)


def create_words(catalog: SqlCatalog) -> None:
    catalog.create_namespace("demo")
    tables.create(catalog)


def database_of(catalog: SqliteCatalog) -> str:
    path = path_of(catalog.properties)
    assert path is not None
    return path


@pytest.mark.parametrize("identifier", ["demo.words", ("demo", "words")])
def test_a_table_is_the_one_that_pyiceberg_loads(ours, catalog, identifier):
    found, expected = ours.load_table(identifier), catalog.load_table(identifier)
    assert found.name() == expected.name()
    assert found.metadata == expected.metadata
    assert found.metadata_location == expected.metadata_location
    assert found.io.properties == expected.io.properties
    assert "whole" not in vars(ours)


def test_commits_of_others_are_seen_and_its_own_are_committed(ours, catalog):
    table = ours.load_table("demo.words")
    catalog.load_table("demo.words").append(tables.rows(0, 3))
    table.refresh()
    assert table.scan().to_arrow().num_rows == 3
    table.append(tables.rows(3, 2))
    assert catalog.load_table("demo.words").scan().to_arrow().num_rows == 5
    assert ours.load_table("demo.words").metadata == table.metadata


def test_whatever_else_is_asked_pyiceberg_answers(ours, catalog):
    assert ours.list_tables("demo") == catalog.list_tables("demo")
    assert ours.table_exists("demo.words")
    assert not ours.table_exists("demo.none")
    ours.rename_table("demo.words", "demo.others")
    assert catalog.list_tables("demo") == [("demo", "others")] == ours.list_tables("demo")
    assert str(ours.engine.url) == catalog.properties["uri"]
    ours.drop_table("demo.others")
    assert catalog.list_tables("demo") == []
    ours.close()


def test_a_table_that_is_not_there_is_told_as_pyiceberg_tells_it(ours):
    with pytest.raises(NoSuchTableError, match="Table does not exist"):
        ours.load_table("demo.none")


def test_a_view_is_no_table(ours):
    with sqlite3.connect(database_of(ours)) as connection:
        connection.execute("UPDATE iceberg_tables SET iceberg_type = 'VIEW'")
    with pytest.raises(NoSuchTableError):
        ours.load_table("demo.words")


def test_a_catalog_of_the_older_form_is_read(ours, catalog):
    with sqlite3.connect(database_of(ours)) as connection:
        connection.execute("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type")
    assert ours.load_table("demo.words").name() == ("demo", "words")
    assert "whole" not in vars(ours)


def test_where_the_file_does_not_answer_pyiceberg_is_asked(ours, monkeypatch):
    def failing(*_arguments: object, **_named: object) -> None:
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(sqlite.sqlite3, "connect", failing)
    assert isinstance(ours.whole, SqlCatalog)
    assert ours.load_table("demo.words").catalog is ours.whole


def test_it_is_sent_to_other_processes(ours):
    sent = pickle.loads(pickle.dumps(SqliteCatalog(ours.name, ours.properties)))
    assert sent.load_table("demo.words").name() == ("demo", "words")


@pytest.mark.parametrize(
    ("properties", "path"),
    [
        ({"uri": "sqlite:////a/b.db"}, "/a/b.db"),
        ({"uri": "sqlite:////a b/#1.db"}, "/a b/#1.db"),
        ({"uri": "sqlite:////a%20b.db"}, None),
        ({"uri": "sqlite:///b.db", "type": "SQL", "s3.endpoint": "x"}, "b.db"),
        ({"uri": "sqlite:///b.db?timeout=3"}, None),
        ({"uri": "sqlite:///:memory:"}, None),
        ({"uri": "sqlite:///file:b.db"}, None),
        ({"uri": "sqlite://"}, None),
        ({"uri": "sqlite:///"}, None),
        ({"uri": "postgresql://a/b"}, None),
        ({"uri": "sqlite:///b.db", "type": "rest"}, None),
        ({"uri": "sqlite:///b.db", "py-catalog-impl": "a.B"}, None),
        ({"uri": "sqlite:///b.db", "echo": "true"}, None),
        ({}, None),
    ],
)
def test_only_a_plain_file_is_read(properties, path):
    assert path_of(properties) == path


def test_a_file_whose_path_has_signs_of_an_address_is_found(tmp_path: Path):
    folder = tmp_path / "50 #1 é"
    folder.mkdir()
    made = tables.open_catalog(folder)
    tables.create(made)
    ours = SqliteCatalog(made.name, made.properties)
    assert ours.load_table("demo.words").name() == ("demo", "words")
    assert "whole" not in vars(ours)


def test_of_two_files_the_one_that_sqlalchemy_means_is_read(tmp_path: Path) -> None:
    uri = ESCAPED.format(tmp_path)
    meant, written = Path(make_url(uri).database or ""), Path(uri.removeprefix(sqlite.SCHEME))
    for path in {meant, written}:
        path.parent.mkdir()
    properties = {"uri": uri, "warehouse": f"file://{tmp_path}"}
    catalog = SqlCatalog("test", **properties)
    create_words(catalog)
    ours = SqliteCatalog("test", properties)
    assert ours.load_table("demo.words").name() == ("demo", "words")
    if written != meant:  # as it is since SQLAlchemy 2.1
        shutil.copy(meant, written)
    catalog.drop_table("demo.words")
    with pytest.raises(NoSuchTableError):
        ours.load_table("demo.words")


def test_a_catalog_whose_address_is_escaped_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = ESCAPED.format(tmp_path)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", uri)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}")
    monkeypatch.setattr(catalogs, "_ENV_CONFIG", Config())
    path = Path(make_url(uri).database or "")
    path.parent.mkdir()
    with pytest.raises(CatalogUnavailableError, match="which is not there"):
        load_table("lake.demo.words")
    create_words(SqlCatalog("lake", uri=uri, warehouse=f"file://{tmp_path}"))
    assert load_table("lake.demo.words").name() == ("demo", "words")


LOADED = """
import sys
from puffin_ann.lake.catalog.tables import load_table
print(load_table("lake.demo.words").name(), "sqlalchemy" in sys.modules)
"""


def test_loading_a_table_imports_no_engine(ours, monkeypatch):
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", ours.properties["uri"])
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", ours.properties["warehouse"])
    run = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert run.stdout.split("\n")[0] == "('demo', 'words') False"
