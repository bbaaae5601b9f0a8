"""By which names tables and indexes are told to OpenLineage: those of its specification."""

from types import SimpleNamespace

import pytest

from puffin_ann.lifecycle.report.lineage import DatasetName, lineage_of, name_of_location
from tests.support.lifecycle.figures import FIGURES


@pytest.mark.parametrize(
    ("location", "namespace", "name"),
    [
        ("s3://lake/warehouse/glove/words", "s3://lake", "warehouse/glove/words"),
        ("s3a://lake/warehouse/glove/words/", "s3://lake", "warehouse/glove/words"),
        ("gs://lake/words", "gs://lake", "words"),
        ("abfss://box@account.dfs.core.windows.net/words", None, "words"),
        ("hdfs://name:8020/lake/words", None, "/lake/words"),
        ("file:///lake/words", "file", "/lake/words"),
        ("file:/lake/words", "file", "/lake/words"),
        ("/lake/words", "file", "/lake/words"),
    ],
)
def test_a_table_is_called_by_its_location(location, namespace, name):
    found = name_of_location(location)
    assert found.name == name
    assert namespace is None or found.namespace == namespace


def table(**properties: str) -> SimpleNamespace:
    return SimpleNamespace(
        location=lambda: "s3://lake/glove/words",
        catalog=SimpleNamespace(properties=properties),
        name=lambda: ("glove", "words"),
    )


@pytest.mark.parametrize(
    ("uri", "namespace"),
    [
        ("http://catalog:8181", "http://catalog:8181"),
        ("https://user:secret@catalog/api?token=secret", "https://***@catalog/api"),
        ("thrift://metastore:9083", "hive://metastore:9083"),
    ],
)
def test_in_a_catalog_with_an_address_it_has_a_second_name_without_secrets(uri, namespace):
    found = lineage_of(table(uri=uri), FIGURES)
    assert found.alias == DatasetName(namespace=namespace, name="glove.words")


@pytest.mark.parametrize("properties", [{}, {"uri": "sqlite:////catalog.db"}])
def test_in_another_it_has_none(properties):
    assert lineage_of(table(**properties), FIGURES).alias is None


def test_an_index_keeps_its_name_from_version_to_version():
    found = lineage_of(table(), FIGURES)
    assert found.index == DatasetName(namespace="s3://lake", name="glove/words#words")
    assert (found.table_version, found.index_version) == (11, 12)
    assert (found.rows, found.bytes) == (20_000, 9_000_000)
