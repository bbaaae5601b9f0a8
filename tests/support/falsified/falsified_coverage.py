"""Lies of the files that an index covers, by a blob of all or of changes, and of the table."""

from dataclasses import replace

import numpy as np
from pyroaring import BitMap

from puffin_ann.blobs.changes import coverage_changes
from puffin_ann.blobs.encoding import bitmaps, strings
from puffin_ann.blobs.shards import rows
from puffin_ann.blobs.version import centroid, coverage
from tests.support.falsified.index_file import PATHS, NotApplicable, lie, set_record


def covering(file):
    """Return the blob that names covered files: all of them, or those that changed."""
    return file.only(coverage if file.all(coverage) else coverage_changes)


@lie
def id_of_a_file(file, rng):
    change = rng.choice((lambda n: n + 1, lambda n: n + 2, 2**32 - 1))
    set_record(covering(file), "file", coverage.FILE, rng, file_id=change)


@lie
def rows_of_a_file(file, rng):
    """Of one row group, too: they agree with each other."""
    blob = covering(file)
    records, groups = blob.records("file", coverage.FILE), blob.records("rgrp", "<u4")
    if not len(records):
        raise NotApplicable
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
    set_record(covering(file), "file", coverage.FILE, rng, **{name: change})


@lie
def path_of_a_file(file, rng):
    blob = covering(file)
    paths = list(strings.decode(blob.sections["path"], "path"))
    if not paths:
        raise NotApplicable
    paths[rng.randrange(len(paths))] = rng.choice((*PATHS, rng.choice(paths)))
    blob.sections["path"] = strings.encode(paths)


@lie
def paths_of_all_files(file, rng):
    blob = covering(file)
    paths = strings.decode(blob.sections["path"], "path")
    prefix = rng.choice(("s3://evil/", "../", "http://127.0.0.1:9/", "/", "file:"))
    blob.sections["path"] = strings.encode(prefix + path for path in paths)


@lie
def deleted_rows_of_a_file(file, rng):
    """Of an index with shards, which count rows, too."""
    file.some(rng, rows)
    blob = covering(file)
    records = blob.records("file", coverage.FILE)
    if not len(records):
        raise NotApplicable
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
    blob = covering(file)
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
    blob = covering(file)
    set_record(blob, "head", blob.module.HEAD, rng, base_snapshot_id=other)


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
