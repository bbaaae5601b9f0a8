"""Coverage-guided fuzzing of manifest lists and manifests: told as damage, or read right.

    make fuzz PART=avro SECONDS=60

What a manifest is refused for is a typed error. What is read is held against PyIceberg's own
decoder, the one in Python: it reads all fields of every record by the file's schema, where ours
skips most of them. It may refuse what lies in fields that ours skips.

An input is four letters that say what the file is read as, and the file. Most changes are made to
the schema or to what blocks hold, under lengths and compression that are right again.
"""

import contextlib
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import atheris

from tests.support.falsified.guided_fuzzing import MEMORY, fuzz

with atheris.instrument_imports(include=["puffin_ann", "pyiceberg.avro"]):
    from pyiceberg.avro.decoder import StreamingBinaryDecoder
    from pyiceberg.avro.file import AvroFile
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.manifest import (
        DataFile,
        DataFileContent,
        FileFormat,
        ManifestContent,
        ManifestEntry,
        ManifestEntryStatus,
        ManifestFile,
        write_manifest,
        write_manifest_list,
    )
    from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
    from pyiceberg.schema import Schema
    from pyiceberg.typedef import Record
    from pyiceberg.types import LongType, NestedField

    from puffin_ann.errors import PuffinAnnError
    from puffin_ann.lake.read.files.manifests import Manifest, read_manifest, read_manifest_list
    from tests.support.falsified import mutation
    from tests.support.indexes import avro_files

IO = PyArrowFileIO()
NAMED = 4
LIST, DATA, DELETES = b"list", b"data", b"dels"
SNAPSHOT = 7


def read(data: bytes) -> None:
    kind, content = data[:NAMED], data[NAMED:]
    if kind not in (LIST, DATA, DELETES):
        return
    with tempfile.NamedTemporaryFile(dir=MEMORY, suffix=".avro") as file:
        file.write(content)
        file.flush()
        try:
            ours = _ours(kind, file.name)
        except PuffinAnnError:
            return
        theirs = _theirs(kind, file.name)
    assert theirs is None or ours == theirs, f"{ours}\n{theirs}"


def _ours(kind: bytes, path: str) -> list[tuple[object, ...]]:
    if kind == LIST:
        return [
            (manifest.path, manifest.sequence_number) for manifest in read_manifest_list(IO, path)
        ]
    manifest = Manifest(path, kind == DELETES, 5, 0, None)
    return [(entry.path, entry.rows, entry.size) for entry in read_manifest(IO, manifest)]


def _theirs(kind: bytes, path: str) -> list[tuple[object, ...]] | None:
    """The same by PyIceberg's decoder in Python; None where it refuses the file, or a field."""
    with contextlib.suppress(Exception):
        file = AvroFile(IO.new_input(path))
        file.__enter__()
        schema = file.schema
        file.decoder = StreamingBinaryDecoder(Path(path).read_bytes())
        file.header = file._read_header()
        return list(_told(kind, schema, file))
    return None


def _told(kind: bytes, schema: Schema, file: AvroFile) -> Iterator[tuple[object, ...]]:
    for record in file:
        if kind == LIST:
            number = _value(schema, record, 515)
            yield _value(schema, record, 500), 0 if number is None else number
        elif _value(schema, record, 0) != ManifestEntryStatus.DELETED:
            entry = _value(schema, record, 2)
            inner = schema.find_field(2).field_type
            yield tuple(_value(inner, entry, field) for field in (100, 103, 104))


def _value(schema, record, field_id: int) -> object:
    at = [field.field_id for field in schema.fields]
    return record[at.index(field_id)] if field_id in at else None


def mutate(data: bytes, most: int, seed: int) -> bytes:
    """Change schema, counts or records of a file, and make right what is around them."""
    kind, content = data[:NAMED], data[NAMED:]
    rng = random.Random(seed)
    if rng.random() < 0.1:
        return rng.choice((LIST, DATA, DELETES)) + content
    try:
        changed = avro_files.assembled(_mutated(avro_files.parts_of(content), rng))
    except Exception:  # corrupted so far that it has no blocks any more
        changed = mutation.mutate(content, rng)
    return (kind + changed)[:most]


def _mutated(parts: avro_files.Parts, rng: random.Random) -> avro_files.Parts:
    schema, codec, blocks = parts
    if rng.random() < 0.4:
        return avro_files.Parts(_mutated_schema(schema, rng), codec, blocks)
    at = rng.randrange(len(blocks))
    count, records = blocks[at]
    if rng.random() < 0.1:
        count = rng.choice((0, -1, count + 1, 2**31, 2**40, 2**63 - 1))
    elif rng.random() < 0.5:
        records = mutation.mutate(records, rng)
    else:
        records = atheris.Mutate(records, len(records) + 64)
    blocks[at] = (count, records)
    return avro_files.Parts(schema, rng.choice((codec, *avro_files.COMPRESS)), blocks)


EMPTY = {"type": "record", "name": "empty", "fields": []}
TYPES = (
    *("null", "boolean", "int", "long", "float", "double", "bytes", "string"),
    ["null", "long"],
    {"type": "fixed", "name": "f", "size": 0},
    {"type": "fixed", "name": "f", "size": 16, "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    EMPTY,
    {"type": "array", "items": "long", "element-id": 900},
    {"type": "array", "items": EMPTY, "element-id": 901},
    {"type": "map", "values": "null", "key-id": 902, "value-id": 903},
)


def _mutated_schema(schema: bytes, rng: random.Random) -> bytes:
    """Change a field of a schema, at whatever depth, or its text."""
    if rng.random() < 0.2:
        return atheris.Mutate(schema, len(schema) + 64)
    document = json.loads(schema)
    fields = [(found, at) for found in _lists_of_fields(document) for at in range(len(found))]
    found, at = rng.choice(fields)
    way = rng.random()
    if way < 0.15:
        del found[at]
    elif way < 0.3:
        found.insert(rng.randrange(len(found) + 1), found[at] | {"name": "another"})
    elif way < 0.4:
        found[at]["field-id"] = rng.choice((0, 2, 100, 102, 125, 500, 515, 9999))
    elif way < 0.5:
        found[at]["type"] = {"type": "array", "items": found[at]["type"], "element-id": 904}
    else:
        found[at]["type"] = rng.choice(TYPES)
    return json.dumps(document).encode()


def _lists_of_fields(schema: object) -> list[list[dict[str, object]]]:
    if isinstance(schema, list):
        return [found for part in schema for found in _lists_of_fields(part)]
    if not isinstance(schema, dict):
        return []
    here = [schema["fields"]] if isinstance(schema.get("fields"), list) else []
    return here + [found for part in schema.values() for found in _lists_of_fields(part)]


def seeds() -> Iterator[bytes]:
    """A manifest list and manifests as PyIceberg writes them, and as it compresses them."""
    schema = Schema(NestedField(1, "id", LongType(), required=True))
    with tempfile.TemporaryDirectory() as folder:
        for codec in ("null", "deflate", "zstandard"):
            path = str(Path(folder) / f"manifest-{codec}.avro")
            with write_manifest(
                2, UNPARTITIONED_PARTITION_SPEC, schema, IO.new_output(path), SNAPSHOT, codec
            ) as writer:
                for number in range(3):
                    writer.add_entry(_entry(number))
            manifest = writer.to_manifest_file()
            data = Path(path).read_bytes()
            yield DATA + data
            yield DELETES + data
            yield LIST + _list_of(manifest, str(Path(folder) / f"list-{codec}.avro"), codec)


def _entry(number: int) -> ManifestEntry:
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"s3://bucket/data/part-{number}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=100 + number,
        file_size_in_bytes=4000,
        column_sizes={1: 80},
        value_counts={1: 100},
        lower_bounds={1: b"\0" * 8},
        upper_bounds={1: b"\1" * 8},
        split_offsets=[4],
    )
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED, snapshot_id=SNAPSHOT, data_file=file
    )


def _list_of(manifest: ManifestFile, path: str, codec: str) -> bytes:
    assert manifest.content == ManifestContent.DATA
    with write_manifest_list(2, IO.new_output(path), SNAPSHOT, None, 5, codec) as writer:
        writer.add_manifests([manifest, manifest])
    return Path(path).read_bytes()


if __name__ == "__main__":
    fuzz(read, seeds(), mutate)
