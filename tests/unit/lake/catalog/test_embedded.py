import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog

from puffin_ann.errors import EnvironmentProblemError
from puffin_ann.lake.catalog.embedded import create_embedded

CATALOG = "local"


def catalog_of(folder: Path) -> SqlCatalog:
    described = yaml.safe_load((folder / ".pyiceberg.yaml").read_text())["catalog"][CATALOG]
    return SqlCatalog(CATALOG, **described)


def test_who_reads_the_catalog_keeps_nobody_from_committing(tmp_path):
    create_embedded(tmp_path, CATALOG)
    catalog = catalog_of(tmp_path)
    catalog.create_namespace("before")
    with closing(sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        before = reader.execute("SELECT count(*) FROM iceberg_namespace_properties").fetchone()
        catalog.create_namespace("meanwhile")
        again = reader.execute("SELECT count(*) FROM iceberg_namespace_properties").fetchone()
        assert again == before
    assert sorted(catalog.list_namespaces()) == [("before",), ("meanwhile",)]


def test_commits_outlast_a_machine_that_goes_down(tmp_path):
    create_embedded(tmp_path, CATALOG)
    with catalog_of(tmp_path).engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # every commit waits


def test_a_database_that_is_there_stays_as_it_is(tmp_path):
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as database:
        database.execute("CREATE TABLE ours (id INTEGER)")
    before = (tmp_path / "catalog.db").read_bytes()
    create_embedded(tmp_path, CATALOG)
    assert (tmp_path / "catalog.db").read_bytes() == before


def test_other_catalogs_of_the_folder_stay(tmp_path):
    mine = {"mine": {"type": "rest", "uri": "http://localhost"}}
    described = tmp_path / ".pyiceberg.yaml"
    described.write_text(yaml.safe_dump({"downcast": True, "catalog": mine}))
    create_embedded(tmp_path, CATALOG)
    written = described.read_text()
    found = yaml.safe_load(written)
    assert found["downcast"]
    assert found["catalog"]["mine"] == mine["mine"]
    catalog_of(tmp_path).create_namespace("there")
    described.write_text(f"# ours\n{written}")
    create_embedded(tmp_path, CATALOG)
    assert described.read_text() == f"# ours\n{written}"


@pytest.mark.parametrize("text", ["a: [", "catalog: none", "- catalog"])
def test_a_description_that_is_none_stays_and_is_named(tmp_path, text):
    described = tmp_path / ".pyiceberg.yaml"
    described.write_text(text)
    with pytest.raises(
        EnvironmentProblemError, match=r"(?s)\.pyiceberg\.yaml .* mend or remove it"
    ):
        create_embedded(tmp_path, CATALOG)
    assert described.read_text() == text


def test_a_folder_called_anything_is_found_again(tmp_path):
    folder = tmp_path / "it's: a #folder"
    create_embedded(folder, CATALOG)
    catalog_of(folder).create_namespace("there")
    assert catalog_of(folder).list_namespaces() == [("there",)]
