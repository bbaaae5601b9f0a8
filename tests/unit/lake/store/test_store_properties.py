import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from puffin_ann.errors import UnsupportedTableError
from puffin_ann.lake.catalog.tables import reload_table

ELSEWHERE = "http://127.0.0.1:9"


@pytest.fixture
def catalog(tmp_path):
    made = SqlCatalog(
        "steer",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        warehouse=f"file://{tmp_path}",
        **{"s3.endpoint": "http://127.0.0.1:1"},
    )
    made.create_namespace("n")
    return made


def create(catalog, **properties):
    return catalog.create_table("n.t", pa.schema([("id", pa.int64())]), properties=properties)


@pytest.mark.parametrize(
    "key", ["s3.endpoint", "s3.proxy-uri", "s3.signer.uri", "gcs.service.host", "client.role-arn"]
)
def test_a_table_does_not_choose_the_store_its_readers_ask(catalog, key):
    table = create(catalog, **{key: ELSEWHERE})
    with pytest.raises(UnsupportedTableError, match=key):
        reload_table(table)


def test_properties_that_repeat_the_catalog_or_steer_nothing_are_taken(catalog):
    table = create(catalog, **{"s3.endpoint": "http://127.0.0.1:1", "s3.a": "b"})
    assert reload_table(table).name() == ("n", "t")
