"""An index file taken apart, to be changed, sealed and written again, and the table of lies."""

import io
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from puffin_ann.blobs.changes import column_changes, coverage_changes, tombstone_changes
from puffin_ann.blobs.encoding.container import fingerprint
from puffin_ann.blobs.shards import columns, delta, graph, hnsw, identities, ivf, rows
from puffin_ann.blobs.version import centroid, coverage, directory, partitions, routing, tombstones
from puffin_ann.puffin import PuffinReader
from puffin_ann.puffin.metadata import BlobMetadata
from puffin_ann.puffin.writer import PuffinWriter
from tests.support.falsified.mutation import assemble, sections_of

MODULES = {
    module.TYPE: module
    for module in (
        centroid,
        column_changes,
        columns,
        coverage,
        coverage_changes,
        delta,
        directory,
        graph,
        hnsw,
        identities,
        ivf,
        partitions,
        routing,
        rows,
        tombstone_changes,
        tombstones,
    )
}
ENGINES = (delta, graph, hnsw, ivf)
COUNTS = (0, 1, 2, 1000, 2**20, 2**31 - 1, 2**31, 2**32 - 1)
LARGE = (*COUNTS, 2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 1)
PATHS = (
    "../other/data/a.parquet",
    "data/%2e%2e/%2e%2e/other.parquet",
    "/etc/passwd",
    "file:///etc/passwd",
    "file:etc/passwd",
    "http://127.0.0.1:9/a.parquet",
    "hf://datasets/a/b.parquet",
    "s3://evil-bucket/x.parquet",
    "nosuch://x/y",
    "data/\0.parquet",
    "data/" + "x" * 300,
    "",
    "data",
)
"""Where an index file must send nobody."""


class NotApplicable(Exception):
    """There is nothing in the file that this lie could be about."""


@dataclass
class Blob:
    """A blob of a file, its content in sections."""

    metadata: BlobMetadata
    sections: dict[str, bytes]

    @property
    def module(self):
        return MODULES[self.metadata.type]

    def content(self) -> bytes:
        return assemble(self.sections, self.module.KIND)

    def records(self, section, dtype):
        """Return a copy of a section's records, to be put back."""
        return np.frombuffer(self.sections[section], dtype).copy()


@dataclass
class IndexFile:
    """The blobs of a Puffin file, to be changed and written again."""

    blobs: list[Blob] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> "IndexFile":
        with path.open("rb") as stream:
            reader = PuffinReader(stream)
            return cls(
                [
                    Blob(blob, sections_of(reader.read(blob), MODULES[blob.type].KIND))
                    for blob in reader.metadata.blobs
                ]
            )

    def write(self, path: Path) -> None:
        """Write the file; the routing names the partitions blob as it is now."""
        self._seal()
        with path.open("wb") as out, PuffinWriter(out) as writer:
            for blob in self.blobs:
                told = blob.metadata
                writer.add(
                    told.type,
                    blob.content(),
                    fields=told.fields,
                    snapshot_id=told.snapshot_id,
                    sequence_number=told.sequence_number,
                    properties=told.properties,
                    codec=told.compression_codec,
                )
            writer.finish({})

    def _seal(self) -> None:
        for cells in self.all(partitions):
            small = self.only(routing)
            if "part" in small.sections:
                record = small.records("part", routing.APART)
                digest = fingerprint(io.BytesIO(cells.content()))
                record["digest"] = np.void(bytes.fromhex(digest))
                small.sections["part"] = record.tobytes()

    def all(self, *modules) -> list[Blob]:
        types = [module.TYPE for module in modules]
        return [blob for blob in self.blobs if blob.metadata.type in types]

    def only(self, module) -> Blob:
        found = self.all(module)
        if not found:
            raise NotApplicable(module.KIND)
        return found[0]

    def some(self, rng: random.Random, *modules) -> Blob:
        found = self.all(*modules)
        if not found:
            raise NotApplicable
        return rng.choice(found)


Lie = Callable[[IndexFile, random.Random], None]
LIES: dict[str, Lie] = {}


def lie(function: Lie) -> Lie:
    """Enter a lie in the table, under the name of its function."""
    LIES[function.__name__] = function
    return function


def set_record(blob: Blob, section: str, dtype, rng: random.Random, **values) -> None:
    """Put values into one record of a section, chosen at random; a callable gets the old one."""
    records = blob.records(section, dtype)
    if not len(records):
        raise NotApplicable
    at = rng.randrange(len(records))
    for name, value in values.items():
        old = int(records[name][at])
        new = value(old) if callable(value) else value
        if new == old:
            raise NotApplicable
        width = 8 * records.dtype[name].itemsize
        records[name][at] = np.array(new % (1 << width), np.uint64).astype(f"u{width // 8}")
    blob.sections[section] = records.tobytes()
