"""Which mode `publish: auto` takes, by what can be known of a table and its catalog before."""

from types import SimpleNamespace

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV1, TableMetadataV3

from puffin_ann.errors import UnsupportedTableError
from puffin_ann.lake.commit.publish_mode import is_s3_table, mode_on_main, publish_mode
from tests.support.metadata_tables import LOCATION, Snap, table_of

S3_TABLES = "arn:aws:s3tables:eu-central-1:123456789012:bucket/lake"


def metastore() -> SqlCatalog:
    """A catalog that leaves it to PyIceberg to write metadata."""
    return SqlCatalog("metastore", uri="sqlite://")


def table(version: int = 2, *, location: str = LOCATION, catalog=None, **properties) -> Table:
    found = table_of([Snap(1, 0), Snap(2, 0)])
    data = {**found.metadata.model_dump(by_alias=True), "location": location}
    if version == 1:
        fields = [field.model_dump() for field in found.schema().fields]
        for snapshot in data["snapshots"]:
            del snapshot["sequence-number"]
        data |= {"schema": {"type": "struct", "fields": fields}, "partition-spec": []}
        found.metadata = TableMetadataV1.model_validate({**data, "format-version": 1})
    if version == 3:
        data |= {"format-version": 3, "next-row-id": 0}
        found.metadata = TableMetadataV3.model_validate(data)
    found.metadata = found.metadata.model_copy(update={"location": location})
    found.catalog = catalog or SimpleNamespace(name="rest", properties=properties)
    return found


@pytest.mark.parametrize("version", [2, 3])
def test_a_rest_catalog_takes_tags(version):
    found = table(version, uri="https://catalog.example/iceberg", warehouse="lake")
    assert publish_mode(found, "auto") == ("tag", "a tag keeps the file and no branch changes")


def test_other_catalogs_take_tags_up_to_version_2():
    assert publish_mode(table(catalog=metastore()), "auto")[0] == "tag"
    with pytest.raises(UnsupportedTableError, match="use a REST catalog"):
        publish_mode(table(3, catalog=metastore()), "auto")


def test_metadata_of_version_1_has_no_tags():
    mode, why = publish_mode(table(1), "auto")
    assert (mode, why) == ("statistics", "metadata of format version 1 has no tags")


@pytest.mark.parametrize(
    "properties",
    [
        {"uri": "https://s3tables.eu-central-1.amazonaws.com/iceberg"},
        {"uri": "https://proxy.example", "rest.signing-name": "s3tables"},
        {"uri": "https://proxy.example", "warehouse": S3_TABLES},
        {"warehouse": S3_TABLES.replace("aws:", "aws-cn:", 1)},
        {
            "uri": "https://glue.eu-central-1.amazonaws.com/iceberg",
            "warehouse": "123456789012:s3tablescatalog/lake",
        },
        {"location": "s3://63a8e430-6e0b-46f5-k833abtwr6s8tmtsycedn8s4yc3xhuse1b--table-s3"},
    ],
)
def test_a_table_bucket_is_known_by_endpoint_signature_warehouse_and_location(properties):
    found = table(**properties)
    assert is_s3_table(found)
    assert publish_mode(found, "auto")[0] == "statistics"
    assert publish_mode(found, "tag") == ("tag", "declared")


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"uri": "https://catalog.example/s3tables"},
        {"uri": "sqlite:///tmp/s3tables/catalog.db", "warehouse": "file:///tmp/s3tables"},
        {"warehouse": "s3://s3tables/lake", "rest.signing-name": "glue"},
        {"warehouse": "arn:aws:s3:::s3tables"},
    ],
)
def test_what_only_has_the_name_somewhere_is_none(properties):
    assert not is_s3_table(table(**properties))


@pytest.mark.parametrize("mode", ["snapshot", "statistics", "tag"])
def test_what_is_declared_is_taken(mode):
    assert publish_mode(table(), mode) == (mode, "declared")


def test_what_no_tag_holds_is_published_again_on_main_unless_a_branch_continues_from_it():
    assert mode_on_main(table()) == "snapshot"
    assert mode_on_main(table(3)) == "statistics"
    audited = table()
    audited.metadata.refs["audit"] = audited.metadata.refs["main"]
    assert mode_on_main(audited) == "statistics"
