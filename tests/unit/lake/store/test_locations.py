"""Which locations are believed because an index file names them."""

import pytest

from puffin_ann.errors import PuffinFormatError
from puffin_ann.lake.store.locations import TableFolders, is_within, require_beside

TABLE = TableFolders(
    "s3://lake/db/words",
    data=("s3://lake/db/words", "s3a://cold/words/"),
    metadata=("s3://lake/db/words", "s3://lake/meta/words"),
)


@pytest.mark.parametrize(
    "path",
    [
        "data/a.parquet",
        "data/p=1/ü b.parquet",
        "data/p=a%2Fb/c.parquet",
        "data/a..b.parquet",
        "s3://lake/db/words/data/a.parquet",
        "s3a://lake/db/words/data/a.parquet",
        "s3n://cold/words/a.parquet",
        "s3://lake/db/words/data/p=a%20b/c.parquet",
    ],
)
def test_data_files_in_the_folders_of_the_table_are_believed(path):
    assert TABLE.hold_data_files([path])
    assert TABLE.hold_data_files(["data/x.parquet", path])


@pytest.mark.parametrize(
    "path",
    [
        "../other/data/a.parquet",
        "data/../../other/a.parquet",
        "data/%2e%2e/%2E%2e/other/a.parquet",
        "data/%252e%252e/a.parquet",
        "data\\..\\a.parquet",
        "data/\0.parquet",
        "data/\x1b]0;a.parquet",
        "data/a\nb.parquet",
        "/etc/passwd",
        "file:/etc/passwd",
        "file:etc/passwd",
        "file:///etc/passwd",
        "http://127.0.0.1/a.parquet",
        "hf://datasets/a.parquet",
        "s3://evil/a.parquet",
        "s3://lake/db/words2/a.parquet",
        "s3://lake/db/other/a.parquet",
        "s3://lake/db/words",
        "s3://lake/db/words/../other/a.parquet",
        "s3://lake/db/words/data/%2e%2e/%2e%2e/other/a.parquet",
        "s3://lake@evil/db/words/a.parquet",
        "s3://evil/s3://lake/db/words/a.parquet",
        "gs://lake/db/words/a.parquet",
        "s3://lake/meta/words/a.parquet",
    ],
)
def test_data_files_elsewhere_are_not(path):
    assert not TABLE.hold_data_files([path])
    assert not TABLE.hold_data_files(["data/x.parquet", path, "data/y.parquet"])


def test_manifests_are_believed_where_the_table_writes_them():
    assert TABLE.hold_manifests(["s3a://lake/meta/words/m.avro", "s3://lake/db/words/metadata/m"])
    assert not TABLE.hold_manifests(["s3://lake/db/words/metadata/m", "http://host/m.avro"])


@pytest.mark.parametrize(
    ("folder", "path", "expected"),
    [
        ("/tmp/t", "/tmp/t/a", True),
        ("/tmp/t/", "file:///tmp/t/a", True),
        ("file:/tmp/t", "/tmp/t/a", True),
        ("file:///tmp/t", "file:/tmp/t/a", True),
        ("/tmp/t", "/tmp/t/../a", False),
        ("/tmp/t", "/tmp/ta", False),
        ("/tmp/t", "file://tmp/t/a", False),
        ("/tmp/t", "s3://tmp/t/a", False),
    ],
)
def test_local_places_are_one_however_they_are_spelt(folder, path, expected):
    assert is_within(folder, path) is expected


def test_an_index_file_names_others_only_beside_itself():
    own = "s3://lake/db/words/metadata/ann-x.puffin"

    require_beside(own, "s3a://lake/db/words/metadata/ann-y.puffin")
    for other in ("s3://evil/a", "s3://lake/db/words/data/a", "ann-y.puffin", "http://h/a"):
        with pytest.raises(PuffinFormatError, match="not in the folder of the table's index files"):
            require_beside(own, other)
