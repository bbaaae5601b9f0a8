import pytest
from pyiceberg.catalog import load_catalog

from puffin_ann.errors import CatalogUnavailableError, TableNotFoundError
from puffin_ann.lake.catalog.listing import catalog_names, table_names
from tests.support.lake.tables import SCHEMA


@pytest.fixture
def catalog(tmp_path, known_catalogs):
    known_catalogs("lake", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
    return load_catalog("lake")


def test_tables_of_all_namespaces_are_named_once_however_deep_they_lie(catalog):
    for namespace in ("shop", "shop.eu", "shop.eu.west", "web"):
        catalog.create_namespace(namespace)
    for table in ("shop.orders", "shop.eu.west.orders", "web.pages"):
        catalog.create_table(table, schema=SCHEMA)
    assert table_names("lake") == [
        "lake.shop.eu.west.orders",
        "lake.shop.orders",
        "lake.web.pages",
    ]
    assert table_names("lake.shop.eu") == ["lake.shop.eu.west.orders"]


def test_a_catalog_without_namespaces_has_no_tables(catalog):
    assert table_names("lake") == []


def test_a_namespace_that_is_not_there_is_told(catalog):
    with pytest.raises(TableNotFoundError, match="catalog 'lake' has no namespace 'nowhere'"):
        table_names("lake.nowhere")


def test_a_catalog_that_is_not_configured_is_told(known_catalogs):
    with pytest.raises(CatalogUnavailableError, match="'absent' is not configured"):
        table_names("absent")


def test_configured_catalogs_are_known_by_name(known_catalogs):
    known_catalogs("one", type="in-memory")
    known_catalogs("other", type="in-memory")
    assert {"one", "other"} <= set(catalog_names())
