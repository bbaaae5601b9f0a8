"""Lies of partitions, of rows and where they lie, and of tombstones."""

import io
from dataclasses import replace

import numpy as np
from pyroaring import BitMap

from puffin_ann.blobs.changes import tombstone_changes
from puffin_ann.blobs.shards import delta, identities, rows
from puffin_ann.blobs.version import partitions, routing, tombstones
from tests.support.falsified.index_file import COUNTS, LARGE, NotApplicable, lie, set_record
from tests.support.falsified.mutation import sections_of


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
    value = rows_of(file, rng)
    blob, found = value
    if not len(found):
        raise NotApplicable
    columns = [column.copy() for column in (found.file_ids, found.row_groups, found.offsets)]
    column, number = rng.choice(
        ((0, 2**32 - 1), (0, 2**31), (0, 1000), (1, 1000), (1, 2**32 - 1), (2, 10_000), (2, 2**31))
    )
    columns[column][rng.randrange(len(found))] = number
    put_rows(blob, replace_columns(found, columns))


def rows_of(file, rng):
    blob = file.some(rng, rows)
    return blob, rows.read(io.BytesIO(blob.content()))


def replace_columns(found, columns):
    return replace(found, file_ids=columns[0], row_groups=columns[1], offsets=columns[2])


def put_rows(blob, found):
    out = io.BytesIO()
    rows.write(found, out)
    blob.sections = sections_of(out.getvalue(), rows.KIND)


@lie
def a_row_too_many_or_too_few(file, rng):
    blob, found = rows_of(file, rng)
    columns = [column[:-1] for column in (found.file_ids, found.row_groups, found.offsets)]
    put_rows(blob, replace(replace_columns(found, columns), cells=None))


@lie
def identities_of_other_rows(file, rng):
    """Of one row less, or of one more; what they are nobody can tell without the table."""
    blob = file.some(rng, identities)
    found = blob.records(identities.SECTION, np.dtype(("<u8", 2)))
    more = np.resize(found, (len(found) + rng.choice((-1, 1)), 2))
    out = io.BytesIO()
    identities.write(more.astype(np.uint64), out)
    blob.sections = sections_of(out.getvalue(), identities.KIND)
    if rng.random() < 0.5:
        head = np.array((len(found),), identities.HEAD)
        blob.sections["head"] = head.tobytes()


@lie
def a_row_twice(file, rng):
    """Two ordinals have one locator, and a row of the table has none."""
    blob, found = rows_of(file, rng)
    if len(found) < 2:
        raise NotApplicable
    one, other = rng.sample(range(len(found)), 2)
    columns = [column.copy() for column in (found.file_ids, found.row_groups, found.offsets)]
    for column in columns:
        column[one] = column[other]
    put_rows(blob, replace_columns(found, columns))


@lie
def head_of_rows(file, rng):
    name, value = rng.choice(
        (
            ("rows", rng.choice(LARGE)),
            ("block_rows", rng.choice(COUNTS)),
            ("identity", rng.choice((2, 3))),
        )
    )
    set_record(file.some(rng, rows), "head", rows.HEAD, rng, **{name: value})


@lie
def a_tombstone_at_another_row(file, rng):
    blob = file.some(rng, tombstones)
    found = tombstones.decode(blob.content())
    deleted = rng.choice(list(found))
    other = rng.choice([number for number in range(max(found) + 5) if number not in found])
    found.discard(deleted)
    found.add(other)
    blob.sections = sections_of(tombstones.encode(found), tombstones.KIND)


@lie
def an_added_tombstone_at_another_row(file, rng):
    blob = file.only(tombstone_changes)
    found = tombstone_changes.decode(blob.content())
    shard = rng.choice(list(found))
    ordinals = found[shard].ordinals
    deleted = rng.choice(list(ordinals))
    ordinals.discard(deleted)
    ordinals.add(rng.choice([number for number in range(deleted + 5) if number != deleted]))
    put_changes(blob, found)


def put_changes(blob, found):
    blob.sections = sections_of(tombstone_changes.encode(found), tombstone_changes.KIND)


@lie
def added_tombstones_of_another_shard(file, rng):
    """Of one that has others, or that is not there at all."""
    blob = file.only(tombstone_changes)
    found = tombstone_changes.decode(blob.content())
    shard = rng.choice(list(found))
    found[rng.choice([number for number in (0, 1, 2, 3, 2**32 - 1) if number not in found])] = (
        found.pop(shard)
    )
    put_changes(blob, found)


@lie
def a_tombstone_told_twice(file, rng):
    """In the shard's own blob and beside those of others."""
    told = tombstone_changes.decode(file.only(tombstone_changes).content())
    own = {int(blob.metadata.properties["shard"]): blob for blob in file.all(tombstones)}
    both = sorted(own.keys() & told.keys())
    if not both:
        raise NotApplicable
    shard = rng.choice(both)
    told[shard].ordinals.add(tombstones.decode(own[shard].content()).min())
    put_changes(file.only(tombstone_changes), told)


@lie
def more_added_tombstones(file, rng):
    blob = file.only(tombstone_changes)
    found = tombstone_changes.decode(blob.content())
    shard = rng.choice(list(found))
    many = BitMap(range(rng.choice((200, 100_000, 50_000_000))))
    found[shard] = tombstone_changes.AddedTombstones(many, 0)
    put_changes(blob, found)
    if rng.random() < 0.5:
        by = len(many)
        changed = {"rows": lambda n: n + by, "tombstones": lambda n: n + by}
        set_record(file.only(routing), "shrd", routing.SHARD, rng, **changed)


@lie
def more_tombstones(file, rng):
    blob = file.some(rng, tombstones)
    many = BitMap(range(rng.choice((2, 100_000, 50_000_000))))
    blob.sections = sections_of(tombstones.encode(many), tombstones.KIND)
    if rng.random() < 0.5:
        by = len(many)
        changed = {"rows": lambda n: n + by, "tombstones": by}
        set_record(file.only(routing), "shrd", routing.SHARD, rng, **changed)


@lie
def many_rows_in_few_bytes(file, rng):
    blob = file.some(rng, rows)
    count = rng.choice((10**6, 3 * 10**7))
    blob.sections = run_of_rows(count)
    if rng.random() < 0.5:
        set_record(file.only(routing), "shrd", routing.SHARD, rng, rows=count, tombstones=count)


def run_of_rows(count: int) -> dict[str, bytes]:
    """Return the sections of a rows blob of one long run of rows: some bytes for a million."""
    import zstandard

    from puffin_ann.blobs.encoding.kernels import put_varints

    size = rows.MAX_BLOCK_ROWS
    frames, offsets = [], [0]
    for start in range(0, count, size):
        steps = np.zeros((3, min(size, count - start)), np.int64)
        steps[2] = 2  # zigzag of a step of 1
        steps[2, 0] = 2 * start
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
