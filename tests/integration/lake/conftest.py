from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from puffin_ann.lake.commit import commit_index_file
from tests.support.lake import tables
from tests.support.lifecycle.commits import Faulty


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_index_file, "WAIT_SECONDS", 0.0)


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = tables.create(catalog)
    table.append(tables.rows(0, 25))
    table.append(tables.rows(25, 5))
    return table


@pytest.fixture
def faulty(table: Table, tmp_path: Path) -> Table:
    catalog = tables.open_catalog(tmp_path, Faulty)
    catalog.faults = []
    return catalog.load_table(table.name())


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return tables.open_catalog(tmp_path)
