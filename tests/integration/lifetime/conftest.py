import builds
import pytest
from pyiceberg.catalog import load_catalog


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
