"""The folder that the demo and a local Airflow live in."""

import sqlite3
from contextlib import closing
from pathlib import Path

import yaml
from home import CATALOG, environment, write_catalog
from pyiceberg.catalog.sql import SqlCatalog


def catalog_of(folder: Path) -> SqlCatalog:
    described = yaml.safe_load((folder / ".pyiceberg.yaml").read_text())["catalog"][CATALOG]
    return SqlCatalog(CATALOG, **described)


def test_who_reads_the_catalog_keeps_nobody_from_committing(tmp_path):
    write_catalog(tmp_path)
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
    write_catalog(tmp_path)
    with catalog_of(tmp_path).engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # every commit waits


def test_a_database_that_is_there_stays_as_it_is(tmp_path):
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as database:
        database.execute("CREATE TABLE ours (id INTEGER)")
    before = (tmp_path / "catalog.db").read_bytes()
    write_catalog(tmp_path)
    assert (tmp_path / "catalog.db").read_bytes() == before


def test_a_dag_that_the_demo_ran_is_not_paused_when_airflow_is_started(tmp_path):
    """Airflow asks when it first sees a DAG; its own default is to pause it."""
    assert environment(tmp_path)["AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION"] == "False"
