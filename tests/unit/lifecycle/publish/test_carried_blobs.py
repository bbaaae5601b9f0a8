"""Which blobs belong to others, and which of a file's blobs the table's metadata may list."""

import pytest

from puffin_ann.blobs.describe import OURS
from puffin_ann.lifecycle.publish.carried_blobs import is_foreign, listed_blobs
from puffin_ann.puffin.metadata import BlobMetadata

THETA = "apache-datasketches-theta-v1"


def blob(kind: str, *fields: int, **properties: str) -> BlobMetadata:
    return BlobMetadata(
        type=kind,
        fields=fields,
        snapshot_id=7,
        sequence_number=3,
        offset=4,
        length=10,
        compression_codec=None,
        properties=properties,
    )


@pytest.mark.parametrize("kind", sorted(OURS))
def test_no_blob_of_an_index_is_taken_for_one_of_others(kind):
    assert not is_foreign(blob(kind))


@pytest.mark.parametrize("kind", [THETA, "deletion-vector-v1", "presto-sum-data-size-bytes-v1"])
def test_blobs_of_engines_and_optimizers_are_foreign(kind):
    assert is_foreign(blob(kind))


def test_only_types_that_every_reader_knows_are_listed_in_the_tables_metadata():
    """PyIceberg cannot load a table whose metadata lists a type that it does not know."""
    blobs = [*map(blob, sorted(OURS)), blob("deletion-vector-v1", 1), blob(THETA, 1, ndv="30")]
    (listed,) = listed_blobs(blobs)
    assert (listed.type, listed.fields, listed.properties) == (THETA, [1], {"ndv": "30"})
    assert (listed.snapshot_id, listed.sequence_number) == (7, 3)


def test_a_sketch_of_no_column_is_not_listed():
    assert listed_blobs([blob(THETA)]) == []
