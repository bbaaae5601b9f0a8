"""Index files that lie: every checksum and digest is right, and what the blobs say is not.

A lie changes what a published file says and nothing else. Left out is what no reader could tell
from the truth without reading the table's vectors: another vector, two rows that change places,
bounds that are too narrow.
"""

import io
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from mutation import assemble, sections_of
from pyroaring import BitMap

from puffin_ann.blobs import (
    bitmaps,
    centroid,
    coverage,
    delta,
    graph,
    hnsw,
    ivf,
    partitions,
    routing,
    rows,
    strings,
    tombstones,
)
from puffin_ann.blobs.container import fingerprint
from puffin_ann.errors import BlobFormatError
from puffin_ann.puffin import PuffinReader
from puffin_ann.puffin.metadata import BlobMetadata
from puffin_ann.puffin.writer import PuffinWriter

MODULES = {
    module.TYPE: module
    for module in (
        centroid,
        coverage,
        delta,
        graph,
        hnsw,
        ivf,
        partitions,
        routing,
        rows,
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
                    Blob(one, sections_of(reader.read(one), MODULES[one.type].KIND))
                    for one in reader.metadata.blobs
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


def _set(blob: Blob, section: str, dtype, rng: random.Random, **values) -> None:
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


def _head_of_an_engine(file: IndexFile, rng: random.Random, name: str, value) -> None:
    blob = file.some(rng, *ENGINES)
    module = graph if blob.module is delta else blob.module
    if name not in (module.HEAD.names or ()):
        raise NotApplicable
    _set(blob, "head", module.HEAD, rng, **{name: value})


@lie
def metric_of_a_shard(file, rng):
    _head_of_an_engine(file, rng, "metric", rng.choice((0, 1, 2, 3, 4)))


@lie
def dimension_of_a_shard(file, rng):
    _head_of_an_engine(file, rng, "dimension", rng.choice(COUNTS))


@lie
def rows_of_an_engine(file, rng):
    _head_of_an_engine(file, rng, "rows", rng.choice((lambda n: n - 1, rng.choice(LARGE))))


@lie
def entry_of_a_graph(file, rng):
    _head_of_an_engine(file, rng, "entry", rng.choice(COUNTS))


@lie
def degree_of_a_graph(file, rng):
    _head_of_an_engine(file, rng, "max_degree", rng.choice((0, 1, 4096, 2**32 - 1)))


@lie
def vectors_denied(file, rng):
    blob = file.some(rng, *ENGINES)
    if blob.module in (graph, delta):
        _set(blob, "head", graph.HEAD, rng, flags=0)
    if rng.random() < 0.5:
        del blob.sections["vecs"]


@lie
def metric_of_the_index(file, rng):
    metric = rng.choice((1, 2, 3))
    _set(file.only(routing), "head", routing.HEAD, rng, metric=metric)
    for cells in file.all(partitions):
        _set(cells, "head", partitions.HEAD, rng, metric=metric)


@lie
def dimension_of_the_index(file, rng):
    dimension = rng.choice((1, 7, 9, 65_536))
    values = {"dimension": dimension, "centroid_dimension": dimension}
    _set(file.only(routing), "head", routing.HEAD, rng, **values)


@lie
def algorithm_of_the_index(file, rng):
    other = rng.choice(("vamana", "hnsw", "ivf_pq", "exact", "centroid", "auto", "annoy", "x" * 99))
    file.only(routing).sections["algo"] = strings.encode([other])


@lie
def width_of_searches(file, rng):
    _set(file.only(routing), "head", routing.HEAD, rng, search_width=rng.choice(COUNTS))


@lie
def partitions_to_probe(file, rng):
    blob = file.only(routing)
    section, dtype = ("part", routing.APART) if "part" in blob.sections else ("head", routing.HEAD)
    _set(blob, section, dtype, rng, probe_partitions=rng.choice((0, 1, 3, 2**32 - 1)))


@lie
def norm_bound(file, rng):
    blob = file.only(routing)
    head = blob.records("head", routing.HEAD)
    head["norm_bound"] = rng.choice((0.0, 1e-300, 1e300, -1.0, np.nan, np.inf))
    blob.sections["head"] = head.tobytes()


@lie
def rows_of_a_shard(file, rng):
    change = rng.choice((lambda n: n - 1, lambda n: n + 1, rng.choice(LARGE)))
    _set(file.only(routing), "shrd", routing.SHARD, rng, rows=change)


@lie
def tombstones_of_a_shard(file, rng):
    change = rng.choice((lambda n: n - 1, lambda n: n + 1, rng.choice(LARGE)))
    _set(file.only(routing), "shrd", routing.SHARD, rng, tombstones=change)


@lie
def rows_and_tombstones_of_a_shard(file, rng):
    by = rng.choice((-1, 1, 5, 10**8, 2**32, 2**62))
    by_both = {"rows": lambda n: n + by, "tombstones": lambda n: n + by}
    _set(file.only(routing), "shrd", routing.SHARD, rng, **by_both)


@lie
def rows_from_one_shard_to_another(file, rng):
    blob = file.only(routing)
    records = blob.records("shrd", routing.SHARD)
    if len(records) < 2:
        raise NotApplicable
    one, other = rng.sample(range(len(records)), 2)
    moved = rng.choice((1, int(records["rows"][one])))
    if not moved:
        raise NotApplicable
    records["rows"][one] -= np.uint64(moved)
    records["rows"][other] += np.uint64(moved)
    blob.sections["shrd"] = records.tobytes()


@lie
def id_of_a_shard(file, rng):
    _set(file.only(routing), "shrd", routing.SHARD, rng, shard_id=rng.choice((0, 1, 2, 2**32 - 1)))


@lie
def kind_of_a_shard(file, rng):
    _set(file.only(routing), "shrd", routing.SHARD, rng, kind=rng.choice((0, 1, 2)))


@lie
def a_shard_left_out(file, rng):
    blob = file.only(routing)
    records = blob.records("shrd", routing.SHARD)
    files = strings.decode(blob.sections["file"], "file")
    blob.sections["shrd"] = records[:-1].tobytes()
    blob.sections["file"] = strings.encode(files[:-1])
    _set(blob, "head", routing.HEAD, rng, shards=len(records) - 1)


@lie
def file_of_a_shard(file, rng):
    blob = file.only(routing)
    files = list(strings.decode(blob.sections["file"], "file"))
    if not files:
        raise NotApplicable
    files[rng.randrange(len(files))] = rng.choice(PATHS)
    blob.sections["file"] = strings.encode(files)


@lie
def shard_of_a_blob(file, rng):
    blob = file.some(rng, *ENGINES, rows, tombstones)
    properties = {**blob.metadata.properties, "shard": rng.choice(("0", "1", "2", "-1", "0 ", ""))}
    blob.metadata = replace(blob.metadata, properties=properties)


@lie
def index_of_a_blob(file, rng):
    blob = file.some(rng, *MODULES.values())
    other = rng.choice(("", "other", "../../x", "[/red]", "X", "a" * 1000))
    properties = {**blob.metadata.properties, "index": other}
    blob.metadata = replace(blob.metadata, properties=properties)


@lie
def a_blob_there_twice(file, rng):
    file.blobs.append(file.some(rng, *MODULES.values()))


@lie
def a_blob_that_is_missing(file, rng):
    file.blobs.remove(file.some(rng, *MODULES.values()))


@lie
def blobs_of_two_shards_exchanged(file, rng):
    """Of different lengths, or nobody could tell."""
    module = rng.choice((rows, *ENGINES))
    found = file.all(module)
    if len(found) < 2:
        raise NotApplicable
    one, other = rng.sample(found, 2)
    counts = [int(blob.records("head", _head(module))["rows"][0]) for blob in (one, other)]
    if counts[0] == counts[1]:
        raise NotApplicable
    one.sections, other.sections = other.sections, one.sections


def _head(module):
    return graph.HEAD if module is delta else module.HEAD


@lie
def rows_of_partitions(file, rng):
    blob = file.only(partitions) if file.all(partitions) else file.only(routing)
    counts = blob.records("prow", "<u8")
    if not len(counts):
        raise NotApplicable
    counts[rng.randrange(len(counts))] = rng.choice((0, 1, 2**64 - 1))
    blob.sections["prow"] = counts.tobytes()


@lie
def partition_of_a_row(file, rng):
    blob = file.only(delta)
    found = blob.records("part", "<u4")
    if not len(found):
        raise NotApplicable
    found[rng.randrange(len(found))] = rng.choice((0, 1, 2**32 - 1))
    blob.sections["part"] = found.tobytes()


@lie
def locator_of_a_row(file, rng):
    """Where no covered file is, or no row group of it, or no row of that."""
    value = _rows_of(file, rng)
    blob, found = value
    if not len(found):
        raise NotApplicable
    columns = [column.copy() for column in (found.file_ids, found.row_groups, found.offsets)]
    column, number = rng.choice(
        ((0, 2**32 - 1), (0, 2**31), (0, 1000), (1, 1000), (1, 2**32 - 1), (2, 10_000), (2, 2**31))
    )
    columns[column][rng.randrange(len(found))] = number
    _put_rows(blob, replace_columns(found, columns))


def _rows_of(file, rng):
    blob = file.some(rng, rows)
    return blob, rows.read(io.BytesIO(blob.content()))


def replace_columns(found, columns):
    return replace(found, file_ids=columns[0], row_groups=columns[1], offsets=columns[2])


def _put_rows(blob, found):
    out = io.BytesIO()
    try:
        rows.write(found, out)
    except BlobFormatError:
        raise NotApplicable from None
    blob.sections = sections_of(out.getvalue(), rows.KIND)


@lie
def a_row_too_many_or_too_few(file, rng):
    blob, found = _rows_of(file, rng)
    columns = [column[:-1] for column in (found.file_ids, found.row_groups, found.offsets)]
    identities = None if found.identities is None else found.identities[:-1]
    _put_rows(blob, replace(replace_columns(found, columns), identities=identities))


@lie
def order_of_rows(file, rng):
    """The ordinals are in another order than the permutation says; the head denies that it is."""
    blob, found = _rows_of(file, rng)
    shuffled = rng.sample(range(len(found)), len(found))
    columns = [column[shuffled] for column in (found.file_ids, found.row_groups, found.offsets)]
    _put_rows(blob, replace_columns(found, columns))
    if "perm" not in blob.sections:
        raise NotApplicable
    _set(blob, "head", rows.HEAD, rng, order=rows.SORTED)


@lie
def head_of_rows(file, rng):
    name, value = rng.choice(
        (
            ("rows", rng.choice(LARGE)),
            ("block_rows", rng.choice(COUNTS)),
            ("order", rng.choice((0, 1, 2))),
            ("identity", rng.choice((2, 3))),
        )
    )
    _set(file.some(rng, rows), "head", rows.HEAD, rng, **{name: value})


@lie
def a_tombstone_at_another_row(file, rng):
    blob = file.some(rng, tombstones)
    found = tombstones.decode(blob.content())
    dead = rng.choice(list(found))
    other = rng.choice([one for one in range(max(found) + 5) if one not in found])
    found.discard(dead)
    found.add(other)
    blob.sections = sections_of(tombstones.encode(found), tombstones.KIND)


@lie
def more_tombstones(file, rng):
    blob = file.some(rng, tombstones)
    many = BitMap(range(rng.choice((2, 100_000, 50_000_000))))
    blob.sections = sections_of(tombstones.encode(many), tombstones.KIND)
    if rng.random() < 0.5:
        by = len(many)
        changed = {"rows": lambda n: n + by, "tombstones": by}
        _set(file.only(routing), "shrd", routing.SHARD, rng, **changed)


@lie
def many_rows_in_few_bytes(file, rng):
    blob = file.some(rng, rows)
    count = rng.choice((10**6, 3 * 10**7))
    blob.sections = run_of_rows(count)
    if rng.random() < 0.5:
        _set(file.only(routing), "shrd", routing.SHARD, rng, rows=count, tombstones=count)


def run_of_rows(count: int) -> dict[str, bytes]:
    """Return the sections of a rows blob of one long run of rows: some bytes for a million."""
    import zstandard

    from puffin_ann.blobs.kernels import put_varints

    size = rows.MAX_BLOCK_ROWS
    frames, offsets = [], [0]
    for start in range(0, count, size):
        steps = np.zeros((3, min(size, count - start)), np.int64)
        steps[2, 0] = start
        packed = np.empty(5 * steps.size, np.uint8)
        data = packed[: put_varints(steps.ravel(), packed)].tobytes()
        frames.append(zstandard.ZstdCompressor(write_content_size=True).compress(data))
        offsets.append(offsets[-1] + len(frames[-1]))
    head = np.zeros(1, rows.HEAD)
    head["rows"], head["block_rows"], head["identity"] = count, size, 2
    return {
        "head": head.tobytes(),
        "locs": b"".join(frames),
        "loct": np.array(offsets, "<u8").tobytes(),
    }


@lie
def id_of_a_file(file, rng):
    change = rng.choice((lambda n: n + 1, lambda n: n + 2, 2**32 - 1))
    _set(file.only(coverage), "file", coverage.FILE, rng, file_id=change)


@lie
def rows_of_a_file(file, rng):
    """Of one row group, too: they agree with each other."""
    blob = file.only(coverage)
    records, groups = blob.records("file", coverage.FILE), blob.records("rgrp", "<u4")
    at = rng.randrange(len(records))
    if not records["row_groups"][at]:
        raise NotApplicable
    last = int(records["row_groups"][: at + 1].sum()) - 1
    by = rng.choice((-1, 1, 1000, 2**31))
    groups[last] = (int(groups[last]) + by) % 2**32
    start = last + 1 - int(records["row_groups"][at])
    records["rows"][at] = groups[start : last + 1].sum(dtype=np.uint64)
    blob.sections["file"], blob.sections["rgrp"] = records.tobytes(), groups.tobytes()


@lie
def size_or_number_of_a_file(file, rng):
    name = rng.choice(("size", "sequence_number"))
    change = rng.choice((lambda n: n + 1, lambda n: n - 1, 0, 2**62))
    _set(file.only(coverage), "file", coverage.FILE, rng, **{name: change})


@lie
def path_of_a_file(file, rng):
    blob = file.only(coverage)
    paths = list(strings.decode(blob.sections["path"], "path"))
    paths[rng.randrange(len(paths))] = rng.choice((*PATHS, rng.choice(paths)))
    blob.sections["path"] = strings.encode(paths)


@lie
def paths_of_all_files(file, rng):
    blob = file.only(coverage)
    paths = strings.decode(blob.sections["path"], "path")
    prefix = rng.choice(("s3://evil/", "../", "http://127.0.0.1:9/", "/", "file:"))
    blob.sections["path"] = strings.encode(prefix + path for path in paths)


@lie
def deleted_rows_of_a_file(file, rng):
    """Of an index with shards, which count rows, too."""
    file.some(rng, rows)
    blob = file.only(coverage)
    records = blob.records("file", coverage.FILE)
    at = rng.randrange(len(records))
    lengths = np.stack([records["deleted_length"], records["skipped_length"]], 1).ravel()
    ends = np.cumsum(lengths)
    parts = [
        blob.sections["bits"][int(end) - int(length) : int(end)]
        for end, length in zip(ends, lengths, strict=True)
    ]
    number = 2 * at + rng.randrange(2)
    few = BitMap(rng.sample(range(max(1, int(records["rows"][at]))), 1))
    parts[number] = b"" if parts[number] else bitmaps.encode(few)
    records["deleted_length"] = [len(part) for part in parts[::2]]
    records["skipped_length"] = [len(part) for part in parts[1::2]]
    blob.sections["file"], blob.sections["bits"] = records.tobytes(), b"".join(parts)


@lie
def manifests_of_the_base(file, rng):
    blob = file.only(coverage)
    there = list(strings.decode(blob.sections["mani"], "mani"))
    change = rng.choice(("more", "other", "fewer", "none"))
    if change == "more":
        there.append(rng.choice(PATHS))
    elif change == "other":
        there = [rng.choice(PATHS)]
    else:
        there = there[1:] if change == "fewer" else []
    blob.sections["mani"] = strings.encode(there)


@lie
def base_snapshot(file, rng):
    other = rng.choice((0, 1, 2**63))
    _set(file.only(coverage), "head", coverage.HEAD, rng, base_snapshot_id=other)


@lie
def column_of_the_index(file, rng):
    fields = rng.choice(([], [1], [2], [99], [2**31 - 1], [3, 3]))
    for blob in file.blobs:
        blob.metadata = replace(blob.metadata, fields=fields)


@lie
def file_of_a_centroid(file, rng):
    blob = file.only(centroid)
    other = rng.choice((b"dat//", b"../a/"))
    blob.sections["path"] = blob.sections["path"].replace(b"data/", other)
