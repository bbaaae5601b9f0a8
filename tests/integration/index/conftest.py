from pathlib import Path

import builds
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.utils.config import Config

from puffin_ann.settings import settings


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch) -> SqlCatalog:
    """A catalog that the library finds by name, as it finds a user's."""
    monkeypatch.setenv("PYICEBERG_CATALOG__TEST__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__TEST__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__TEST__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setenv("PUFFIN_ANN_CACHE_DIR", str(tmp_path / "cache"))
    # PyIceberg and the library read the environment once.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    settings.cache_clear()
    catalog = load_catalog("test")
    catalog.create_namespace("demo")
    yield catalog
    settings.cache_clear()


@pytest.fixture
def words(catalog):
    """60 rows in two data files of several row groups."""
    table = catalog.create_table(
        "demo.words",
        schema=builds.rows([]).schema,
        properties={"write.parquet.row-group-limit": "10"},
    )
    table.append(builds.rows(range(30)))
    table.append(builds.rows(range(30, 60)))
    return table


@pytest.fixture
def build(words):
    """Build an index over the words by a declaration."""

    def make(declaration):
        builds.build(declaration, "build")
        return words.refresh()

    return make
