"""Damage to published files, and what searches tell of it."""

import json
import shutil

from puffin_ann.blobs.describe import sections_of
from puffin_ann.puffin import PuffinReader
from puffin_ann.settings import settings
from tests.support.lake import table_events
from tests.support.lifecycle import builds


def corrupt(path: str, kind: str = "rows", shard: int = 0, index: str = builds.INDEX) -> None:
    """Change a byte in the middle of a blob of a published file, or of its longest section."""
    with open(path, "r+b") as file:
        reader = PuffinReader(file)
        (blob,) = [
            blob
            for blob in reader.metadata.blobs
            if kind in blob.type
            and blob.properties["index"] == index
            and blob.properties.get("shard", str(shard)) == str(shard)
        ]
        middle = blob.length // 2
        if blob.compression_codec is None:  # between sections are bytes that do not matter
            container = sections_of(blob.type, reader.open(blob))
            section = max(container.sections.values(), key=lambda section: section.length)
            middle = section.offset + section.length // 2
        file.seek(blob.offset + middle)
        byte = file.read(1)
        file.seek(blob.offset + middle)
        file.write(bytes([byte[0] ^ 0x10]))


def forget_cache() -> None:
    shutil.rmtree(settings().cache_dir / "shards", ignore_errors=True)


def report(answers) -> dict:
    return json.loads(answers.schema.metadata[b"puffin_ann"])


def damaged(found) -> list:
    return [finding for finding in found.findings if finding.kind == "damaged"]


def publish(table, run: str, **declared) -> str:
    return table_events.publish(table, run, **declared).removeprefix("file://")
