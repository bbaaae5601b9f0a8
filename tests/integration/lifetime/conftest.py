import builds
import pytest
from pyiceberg.catalog import load_catalog
from registrations import catalog_beside, commit, publish_versions, register


@pytest.fixture
def words(tmp_path, known_catalogs):
    """60 rows in two data files, in an embedded catalog of their own."""
    known_catalogs(
        "test",
        type="sql",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        warehouse=f"file://{tmp_path}/warehouse",
    )
    catalog = load_catalog("test")
    catalog.create_namespace("demo")
    table = catalog.create_table(
        "demo.words",
        schema=builds.rows([]).schema,
        properties={"write.parquet.row-group-limit": "10"},
    )
    table.append(builds.rows(range(30)))
    table.append(builds.rows(range(30, 60)))
    return table


@pytest.fixture
def elsewhere(words, tmp_path, known_catalogs):
    """The table of `words`, with one version published, as a second catalog has it."""
    publish_versions(words, "first")
    catalog = catalog_beside(known_catalogs, tmp_path, "other")
    table = register(catalog, words.refresh().metadata_location)
    commit(table, "ours, too")
    return table
