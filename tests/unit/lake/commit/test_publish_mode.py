"""Which mode `publish: auto` takes, by what can be known of a table and its catalog before."""

from types import SimpleNamespace

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV1, TableMetadataV3

from puffin_ann.errors import ConflictError, TagNotKeptError, UnsupportedTableError
from puffin_ann.lake.commit.publish_mode import NOT_KEPT, ModeChoice, is_s3_table, publish_mode
from puffin_ann.moments import now_ms
from tests.support.lake.metadata_tables import LOCATION, Snap, table_of

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


@pytest.mark.parametrize("mode", ["statistics", "tag"])
def test_what_is_declared_is_taken(mode):
    assert publish_mode(table(), mode) == (mode, "declared")


DAY_MS = 86_400_000


def forgetful(days_ago: float, **told: str) -> Table:
    """A table whose catalog did not keep a tag some days ago."""
    at_ms = int(now_ms() - days_ago * DAY_MS)
    found = table()
    found.metadata.properties.update({NOT_KEPT: str(at_ms), **told})
    return found


def test_a_catalog_that_kept_no_tag_is_asked_again_after_a_week_and_by_a_build():
    mode, why = publish_mode(forgetful(6.9), "auto")
    assert (mode, why.startswith("its catalog did not keep a tag on 20")) == ("statistics", True)
    assert publish_mode(forgetful(7.1), "auto")[0] == "tag"
    assert publish_mode(forgetful(0.1), "auto", ask_again_ms=0)[0] == "tag"
    assert publish_mode(forgetful(0.1), "tag")[0] == "tag"


def test_what_the_note_says_does_not_count_once_a_tag_was_kept():
    found = forgetful(1)
    name = "puffin_ann_words_1a2b"
    names = {"puffin-ann.tag": name}
    tagged = table_of([Snap(1, 0)], alone=[Snap(3, 0, names)], tags={name: 3})
    found.metadata = tagged.metadata.model_copy(update={"properties": found.metadata.properties})
    assert publish_mode(found, "auto")[0] == "tag"


@pytest.mark.parametrize("text", ["", "soon", "9" * 30, "-1", "9" * 5000])
def test_a_note_that_cannot_be_read_says_nothing(text):
    assert publish_mode(forgetful(0, **{NOT_KEPT: text}), "auto")[0] == "tag"


def test_what_the_catalog_said_is_noted_and_nothing_else_is():
    choice = ModeChoice("auto").after(TagNotKeptError("it forgets"))
    assert choice is not None
    assert (choice.of(table())[0], choice.properties.keys()) == ("statistics", {NOT_KEPT})
    again = ModeChoice("auto").after(ConflictError("moved"))
    assert again == ModeChoice("auto")
    assert ModeChoice("tag").after(TagNotKeptError("it forgets")) is None
    assert ModeChoice("auto").after(ValueError("else")) is None
