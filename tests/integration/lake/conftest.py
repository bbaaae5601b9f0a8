from pathlib import Path

import lake_tables as tables
import pytest
from pyiceberg.catalog.sql import SqlCatalog


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return tables.open_catalog(tmp_path)
