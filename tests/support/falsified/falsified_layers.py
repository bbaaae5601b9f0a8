"""Lies of versions that name blobs of earlier files, and tell changes of what those say."""

import numpy as np

from puffin_ann.blobs.changes import coverage_changes
from puffin_ann.blobs.encoding import strings
from puffin_ann.blobs.version import directory
from tests.support.falsified.index_file import COUNTS, LARGE, PATHS, NotApplicable, lie, set_record

NO_DIGEST = np.void(bytes(32))


@lie
def place_of_a_named_blob(file, rng):
    name = rng.choice(("offset", "length"))
    by = rng.choice((-64, -1, 1, 64, 4096))
    change = rng.choice((lambda n: n + by, rng.choice(LARGE)))
    set_record(file.only(directory), "blob", directory.BLOB, rng, **{name: change})


@lie
def file_of_a_named_blob(file, rng):
    set_record(file.only(directory), "blob", directory.BLOB, rng, file=rng.choice(COUNTS))


@lie
def type_of_a_named_blob(file, rng):
    set_record(file.only(directory), "blob", directory.BLOB, rng, type=rng.choice((0, 1, 2, 3, 99)))


@lie
def codec_of_a_named_blob(file, rng):
    set_record(file.only(directory), "blob", directory.BLOB, rng, codec=rng.choice((0, 1, 2, 3)))


@lie
def shard_of_a_named_blob(file, rng):
    other = rng.choice((0, 1, 2, 3, directory.NO_SHARD))
    set_record(file.only(directory), "blob", directory.BLOB, rng, shard=other)


@lie
def two_named_blobs_exchanged(file, rng):
    """Of one type, with their digests, or without any."""
    blob = file.only(directory)
    records = blob.records("blob", directory.BLOB)
    pairs = [
        (one, other)
        for one in range(len(records))
        for other in range(one)
        if records["type"][one] == records["type"][other]
        and records["length"][one] != records["length"][other]
    ]
    if not pairs:
        raise NotApplicable
    one, other = rng.choice(pairs)
    for name in ("file", "offset", "length", "digest"):
        records[name][[one, other]] = records[name][[other, one]]
    if rng.random() < 0.5:
        records["digest"] = NO_DIGEST
    blob.sections["blob"] = records.tobytes()


@lie
def a_named_blob_left_out(file, rng):
    """With its file, if that has no other."""
    blob = file.only(directory)
    records = blob.records("blob", directory.BLOB)
    kept = np.delete(records, rng.randrange(len(records)))
    names = strings.decode(blob.sections["file"], "file")
    sizes = blob.records("size", "<u8")
    used, kept["file"] = np.unique(kept["file"], return_inverse=True)
    blob.sections["blob"] = kept.tobytes()
    blob.sections["file"] = strings.encode(names[place] for place in used.tolist())
    blob.sections["size"] = sizes[used].tobytes()
    counts = {"files": len(used), "blobs": len(kept)}
    head = blob.records("head", directory.HEAD)
    for name, count in counts.items():
        head[name] = count
    blob.sections["head"] = head.tobytes()


@lie
def name_of_a_named_file(file, rng):
    blob = file.only(directory)
    names = list(strings.decode(blob.sections["file"], "file"))
    others = (*PATHS, "v1.metadata.json", "..", "ann-words-1.puffin", *names)
    names[rng.randrange(len(names))] = rng.choice(others)
    blob.sections["file"] = strings.encode(names)


@lie
def length_of_a_named_file(file, rng):
    blob = file.only(directory)
    sizes = blob.records("size", "<u8")
    at = rng.randrange(len(sizes))
    sizes[at] = rng.choice((int(sizes[at]) + 1, int(sizes[at]) - 1, *LARGE))
    blob.sections["size"] = sizes.tobytes()


@lie
def digest_of_what_changed(file, rng):
    blob = file.only(coverage_changes)
    head = blob.records("head", coverage_changes.HEAD)
    head["digest"] = np.void(rng.choice((bytes(32), rng.randbytes(32))))
    blob.sections["head"] = head.tobytes()


@lie
def files_that_are_not_covered_any_more(file, rng):
    """One more of the earlier coverage, or one that it has not, or none."""
    blob = file.only(coverage_changes)
    gone = set(blob.records("gone", "<u4").tolist())
    gone = rng.choice(({*gone, rng.choice((0, 1, 2, 2**32 - 1))}, set()))
    _put_numbers(blob, "gone", "removed_files", gone)


@lie
def manifests_that_went(file, rng):
    blob = file.only(coverage_changes)
    gone = set(blob.records("gonm", "<u4").tolist())
    gone = rng.choice(({*gone, rng.choice((0, 1, 2, 2**32 - 1))}, set()))
    _put_numbers(blob, "gonm", "removed_manifests", gone)


def _put_numbers(blob, section, count, numbers):
    data = np.array(sorted(numbers), "<u4").tobytes()
    if data == blob.sections[section]:
        raise NotApplicable
    blob.sections[section] = data
    head = blob.records("head", coverage_changes.HEAD)
    head[count] = len(numbers)
    blob.sections["head"] = head.tobytes()


@lie
def nothing_changed(file, rng):
    """The changes are left out: what the earlier coverage says is as it was."""
    file.blobs.remove(file.only(coverage_changes))
