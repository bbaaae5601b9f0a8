from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

NAMESPACE = "demo"


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return open_catalog(tmp_path)


def open_catalog(folder: Path, kind: type[SqlCatalog] = SqlCatalog) -> SqlCatalog:
    """A catalog handle of its own on the folder's database: another process, as far as PyIceberg
    can tell."""
    catalog = kind(
        "lake",
        uri=f"sqlite:///{folder}/catalog.db",
        warehouse=f"file://{folder}/warehouse",
    )
    catalog.create_namespace_if_not_exists(NAMESPACE)
    return catalog
