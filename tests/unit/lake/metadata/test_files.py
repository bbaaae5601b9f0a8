"""What metadata files tell of themselves, packed or not, in whatever order, sound or not."""

import gzip
import json
import tracemalloc
import uuid

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.errors import DataFileError, StoreDeniedError
from puffin_ann.lake.metadata import files
from puffin_ann.lake.metadata.files import (
    Head,
    MetadataReader,
    Unread,
    Version,
    is_metadata_name,
    read_metadata,
)

IO = PyArrowFileIO()
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
DOCUMENT = {
    "format-version": 2,
    "table-uuid": UUID.upper(),
    "location": "s3://b/t",
    "last-updated-ms": 1700000000123,
    "properties": {"table-uuid": "not this one", "last-updated-ms": "nor this"},
    "snapshots": [
        {"snapshot-id": 1, "manifest-list": "s3a://b/t/metadata/snap-1.avro", "summary": {}},
        {
            "snapshot-id": 2,
            "manifest-list": "s3://b/t/metadata/snap-2.avro",
            "summary": {
                "operation": "replace",
                "statistics-file": "s3://b/t/metadata/ann-2.puffin",
            },
        },
        {"snapshot-id": 3, "manifests": ["s3://b/t/metadata/m.avro"]},
    ],
    "statistics": [{"snapshot-id": 1, "statistics-path": "s3://b/t/metadata/ann-1.puffin"}],
    "partition-statistics": [{"snapshot-id": 1, "statistics-path": "s3://b/t/metadata/p.parquet"}],
    "metadata-log": [
        {"timestamp-ms": 5, "metadata-file": "s3a://b/t/metadata/v1.metadata.json"},
        {"timestamp-ms": 6, "metadata-file": "s3://b/t/metadata/v2.metadata.json"},
    ],
}


def stored(folder, document, name: str = "v3.metadata.json") -> str:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    (folder / name).write_bytes(gzip.compress(data) if ".gz" in name else data)
    return f"file://{folder / name}"


def whole(uri: str) -> Version | Unread | None:
    return MetadataReader().whole(IO, [uri]).get(uri)


def head(uri: str) -> Head | Unread | None:
    return MetadataReader().heads(IO, [uri]).get(uri)


@pytest.mark.parametrize(
    "name", ["v3.metadata.json", "00003-a.gz.metadata.json", "v3.metadata.json.gz"]
)
def test_a_metadata_file_tells_its_table_its_time_and_what_it_names(tmp_path, name):
    uri = stored(tmp_path, DOCUMENT, name)
    found = whole(uri)
    assert is_metadata_name(uri)
    assert found == Version(
        head=Head(UUID, 1700000000123),
        earlier=(
            (5, "s3://b/t/metadata/v1.metadata.json"),
            (6, "s3://b/t/metadata/v2.metadata.json"),
        ),
        names=frozenset(
            f"s3://b/t/metadata/{name}"
            for name in ("snap-1.avro", "snap-2.avro", "ann-1.puffin", "ann-2.puffin", "p.parquet")
        ),
    )
    assert head(uri) == found.head


@pytest.mark.parametrize("name", ["a.metadata.json", "a.gz.metadata.json"])
def test_of_a_large_file_only_the_start_is_read(tmp_path, monkeypatch, name):
    large = {**DOCUMENT, "properties": {str(uuid.uuid4()): "x" for _ in range(5000)}}
    uri = stored(tmp_path, large, name)
    monkeypatch.setattr(files, "read_metadata", None)  # which would read it whole
    assert head(uri) == Head(UUID, 1700000000123)


def test_a_file_whose_start_does_not_tell_is_read_whole(tmp_path):
    first = {"properties": {str(number): "x" * 100 for number in range(1000)}}
    uri = stored(tmp_path, {**first, **{k: v for k, v in DOCUMENT.items() if k != "properties"}})
    assert head(uri) == Head(UUID, 1700000000123)


def test_a_number_that_is_cut_off_is_not_taken_for_another(tmp_path, monkeypatch):
    text = json.dumps({"table-uuid": UUID, "last-updated-ms": 1700000000123, "snapshots": []})
    uri = stored(tmp_path, text.encode())
    for length in range(1, len(text)):
        monkeypatch.setattr(files, "HEAD_BYTES", length)
        assert head(uri) == Head(UUID, 1700000000123)


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"\0" * 100,
        b"[]",
        b'{"table-uuid": ',
        b"[" * 100_000,
        json.dumps({**DOCUMENT, "table-uuid": "x"}).encode(),
        json.dumps({**DOCUMENT, "last-updated-ms": "x"}).encode(),
        json.dumps({**DOCUMENT, "statistics": [{}]}).encode(),
        json.dumps({**DOCUMENT, "statistics": 7}).encode(),
        json.dumps({**DOCUMENT, "snapshots": [{"manifest-list": None}]}).encode(),
        json.dumps({**DOCUMENT, "snapshots": [7]}).encode(),
        json.dumps({**DOCUMENT, "snapshots": [{}]}).encode(),
        json.dumps({**DOCUMENT, "snapshots": "abc"}).encode(),
        json.dumps({**DOCUMENT, "snapshots": [{"snapshot-id": 1, "summary": [1]}]}).encode(),
        json.dumps({**DOCUMENT, "last-updated-ms": 10**300}).encode(),
        json.dumps({**DOCUMENT, "statistics": [{"snapshot-id": 1, "statistics-path": 1}]}).encode(),
        json.dumps(DOCUMENT).encode().replace(b'"timestamp-ms": 5', b'"timestamp-ms": Infinity'),
        json.dumps(DOCUMENT).encode().replace(b'"timestamp-ms": 5', b'"timestamp-ms": 1e999'),
        json.dumps(DOCUMENT).encode().replace(b"{", b'{"snapshots": [],', 1),
        json.dumps({**DOCUMENT, "metadata-log": [{"timestamp-ms": 1}]}).encode(),
    ],
)
def test_what_is_no_metadata_is_damaged(tmp_path, broken):
    found = whole(stored(tmp_path, broken))
    assert isinstance(found, Unread)
    assert found.is_damaged
    assert "v3.metadata.json is no metadata file" in found.problem


@pytest.mark.parametrize("path", ["/tmp/\0x/y", "/tmp/\ud800x/y"])
def test_what_no_store_can_have_is_damage_of_one_file_and_ends_no_search(tmp_path, path):
    uri = stored(tmp_path, DOCUMENT)
    found = MetadataReader().whole(IO, [f"file://{path}", uri])
    assert found[f"file://{path}"].is_damaged
    assert isinstance(found[uri], Version)


def test_packed_bytes_that_are_not_are_damaged(tmp_path):
    (tmp_path / "a.gz.metadata.json").write_bytes(b"{}")
    uri = f"file://{tmp_path}/a.gz.metadata.json"
    assert head(uri) == whole(uri)
    assert head(uri).is_damaged


def test_what_unpacks_to_more_than_any_metadata_has_is_damaged(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", 1000)
    uri = stored(tmp_path, {**DOCUMENT, "properties": {"a": "x" * 5000}}, "a.gz.metadata.json")
    with pytest.raises(DataFileError, match="more than 1000 bytes"):
        read_metadata(IO, uri)


def test_what_unpacks_to_more_than_a_file_of_its_size_has_is_damaged_and_takes_little(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(files, "MOST_OF_SMALL_BYTES", 1 << 20)
    bomb = {**DOCUMENT, "properties": {"a": "x" * (24 << 20)}}
    uri = stored(tmp_path, bomb, "a.gz.metadata.json")
    tracemalloc.start()
    try:
        assert "more than" in whole(uri).problem
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert whole(stored(tmp_path, bomb, "b.metadata.json")).head == head(uri)


def test_a_packed_file_of_kilobytes_takes_no_gigabytes(tmp_path):
    uri = stored(tmp_path, b'{"x":[' + b"{}," * (6 << 20) + b"{}]}", "a.gz.metadata.json")
    found = whole(uri)
    assert found.is_damaged
    assert "more than" in found.problem


def test_of_large_files_one_is_in_memory_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LARGE_BYTES", 1000)

    def watched(data, read=files.parse):
        assert files._large_turn.locked()
        return read(data)

    monkeypatch.setattr(files, "parse", watched)
    large = {**DOCUMENT, "properties": {"a": "x" * 2000}}
    names = [f"{number}.{kind}metadata.json" for number in range(4) for kind in ("", "gz.")]
    uris = [stored(tmp_path, large, name) for name in names]
    found = MetadataReader().whole(IO, uris)
    assert {found[uri].head for uri in uris} == {Head(UUID, 1700000000123)}


def test_versions_whose_schemas_are_much_alike_are_read(tmp_path):
    schemas = [{"schema-id": at, "fields": [{"id": 1, "type": "string"}]} for at in range(50_000)]
    uri = stored(tmp_path, {**DOCUMENT, "schemas": schemas}, "a.gz.metadata.json")
    assert whole(uri).head == head(uri)


def test_gone_and_unreadable_and_no_file_are_three_things(tmp_path, monkeypatch):
    (tmp_path / "folder.metadata.json").mkdir()
    assert whole(f"file://{tmp_path}/gone.metadata.json") is None
    assert whole(f"file://{tmp_path}/folder.metadata.json").is_damaged

    def refuse(_, uri):
        raise StoreDeniedError(f"the store refuses access to {uri}")

    uri = stored(tmp_path, DOCUMENT)
    monkeypatch.setattr(files, "open_object", refuse)
    for found in (head(uri), whole(uri)):
        assert isinstance(found, Unread)
        assert not found.is_damaged
    with pytest.raises(StoreDeniedError, match=r"v3\.metadata\.json"):
        read_metadata(IO, uri)


def test_a_file_is_read_once(tmp_path):
    reader = MetadataReader()
    uri = stored(tmp_path, DOCUMENT)
    reader.whole(IO, [uri])
    (tmp_path / "v3.metadata.json").unlink()
    assert reader.heads(IO, [uri]) == {uri: Head(UUID, 1700000000123)}
    assert reader.whole(IO, [uri])
