"""Assembling objects on a real S3 server: what passes through this process, and what is left."""

import io as stdio
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from puffin_ann.errors import EnvironmentProblemError, StoreRefusedError
from puffin_ann.lake.store import s3 as s3_module
from puffin_ann.lake.store.assemble.compose import Assembly, Names
from puffin_ann.lake.store.staging import Staging
from puffin_ann.puffin import PuffinReader, PuffinWriter
from tests.support.servers.object_store import BUCKET, properties

pytestmark = pytest.mark.slow

MB = 1_000_000


@pytest.fixture
def folder(request) -> str:
    return f"warehouse/{request.node.name}/metadata"


def names(folder, run="words-1-abcd"):
    return Names(folder=f"s3://{BUCKET}/{folder}", kind="ann", run=run, number=1)


def staged_shard(number, size):
    """A Puffin file as a build stages it: a large blob and a small one."""
    out = stdio.BytesIO()
    with PuffinWriter(out) as writer:
        for kind, length in (("graph", size - size // 50), ("rows", size // 50)):
            data = random.Random(f"{number} {kind}").randbytes(length)
            writer.add(
                f"puffin-ann-{kind}-v1",
                data,
                fields=[3],
                snapshot_id=1,
                sequence_number=1,
                properties={"index": "words", "shard": str(number)},
            )
        writer.finish({})
    return out.getvalue()


def stage(s3, folder, shards):
    uris = []
    for number, data in enumerate(shards):
        key = f"{folder}/staging/shard-{number}"
        s3.put_object(Bucket=BUCKET, Key=key, Body=data)
        uris.append(f"s3://{BUCKET}/{key}")
    return uris


def assembly_of(io, folder, uris, tail=b"t" * 1000, run="words-1-abcd"):
    """What publishing does, short of a table."""
    assembly = Assembly(io, names(folder, run))
    with PuffinWriter(assembly.object_plan) as writer:
        for uri in uris:
            assembly.object_plan.pin(uri)
            with io.new_input(uri).open() as stream:
                reader = PuffinReader(stream, name=uri)
                for blob in reader.metadata.blobs:
                    writer.copy(reader, blob)
        writer.add("tail", tail, fields=[], snapshot_id=1, sequence_number=1)
        assembly.finished = writer.finish({"created-by": "test"})
    return assembly


def get(s3, uri):
    return s3.get_object(Bucket=BUCKET, Key=uri.removeprefix(f"s3://{BUCKET}/"))["Body"].read()


def uploads(s3, folder):
    found = s3.list_multipart_uploads(Bucket=BUCKET, Prefix=folder).get("Uploads", [])
    return [stored_object["Key"] for stored_object in found]


def check(s3, path, finished, shards):
    """The object is a sound Puffin file with every blob of the shards, byte for byte."""
    data = get(s3, path)
    assert len(data) == finished.length
    reader = PuffinReader(stdio.BytesIO(data))
    assert data[:4] == b"PFA1"
    assert reader.metadata == finished.metadata
    blobs = iter(reader.metadata.blobs)
    for shard in shards:
        source = PuffinReader(stdio.BytesIO(shard))
        for blob in source.metadata.blobs:
            assert reader.read(next(blobs)) == source.read(blob)
    assert next(blobs).type == "tail"


def test_200_mb_of_shards_do_not_pass_through_this_process(s3, proxy, io, folder, capsys):
    shards = [staged_shard(number, 50 * MB) for number in range(4)]
    uris = stage(s3, folder, shards)

    assembly = assembly_of(io, folder, uris, tail=bytes(100_000))
    began = time.monotonic()
    path = assembly.make()
    seconds = time.monotonic() - began

    moved = proxy.bytes
    with capsys.disabled():
        size = assembly.finished.length
        print(f"\nassembled {size:,} bytes on S3 in {seconds:.1f} s, {moved:,} passed here")
    assert assembly.finished.length > 200 * MB
    assert moved < 1 * MB
    check(s3, path, assembly.finished, shards)
    assert not uploads(s3, folder)


def test_small_shards_are_put_into_parts_that_the_store_takes(s3, proxy, io, folder):
    shards = [staged_shard(number, 700_000) for number in range(20)]
    uris = stage(s3, folder, shards)
    assembly = assembly_of(io, folder, uris)
    check(s3, assembly.make(), assembly.finished, shards)


def test_an_attempt_after_one_that_died_makes_only_what_is_missing(
    s3, proxy, io, folder, monkeypatch
):
    monkeypatch.setattr(s3_module, "ATTEMPTS", 1)
    monkeypatch.setattr("puffin_ann.lake.store.assemble.multipart.CONNECTIONS", 1)
    shards = [staged_shard(number, 6 * MB) for number in range(6)]
    uris = stage(s3, folder, shards)
    assembly = assembly_of(io, folder, uris)
    proxy.cut_off_after(4)
    with pytest.raises(EnvironmentProblemError, match="no answer"):
        assembly.make()
    assert len(uploads(s3, folder)) == 1

    proxy.reset()
    again = assembly_of(io, folder, uris)
    path = again.make()

    assert len(proxy.parts()) == 6 + 1 - 4
    check(s3, path, again.finished, shards)
    assert not uploads(s3, folder)

    proxy.reset()
    assert assembly_of(io, folder, uris).make() == path
    assert not proxy.parts(), "a finished object is not made again"


def test_names_that_have_to_be_quoted_are_copied_too(s3, proxy, io, folder):
    folder = f"{folder}/a b+c/ü%20=x"
    shards = [staged_shard(number, 6 * MB) for number in range(2)]
    uris = stage(s3, folder, shards)
    assembly = assembly_of(io, folder, uris)
    path = assembly.make()
    assert proxy.bytes < 1 * MB
    check(s3, path, assembly.finished, shards)


def test_attempts_at_the_same_time_make_the_same_object(s3, io, folder):
    shards = [staged_shard(number, 6 * MB) for number in range(4)]
    uris = stage(s3, folder, shards)
    assemblies = [assembly_of(io, folder, uris) for _ in range(3)]
    begin = threading.Barrier(len(assemblies))

    def attempt(assembly):
        begin.wait()
        return assembly.make()

    with ThreadPoolExecutor(len(assemblies)) as pool:
        paths = list(pool.map(attempt, assemblies))  # raises what an attempt failed with

    assert len(set(paths)) == 1
    check(s3, paths[0], assemblies[0].finished, shards)
    assert not uploads(s3, folder)


@pytest.mark.parametrize("size", [6 * MB, 100_000])
def test_a_source_that_was_changed_is_refused_and_nothing_is_left(s3, io, folder, size):
    shards = [staged_shard(number, size) for number in range(3)]
    uris = stage(s3, folder, shards)
    assembly = assembly_of(io, folder, uris)
    other = staged_shard(99, size)
    s3.put_object(Bucket=BUCKET, Key=f"{folder}/staging/shard-2", Body=other)

    with pytest.raises(StoreRefusedError, match=r"shard-2.*was changed since it was read"):
        assembly.make()

    assert not uploads(s3, folder)
    listed = s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{folder}/ann-")
    assert listed["KeyCount"] == 0


def test_a_source_that_is_gone_is_told_and_nothing_is_left(s3, io, folder):
    uris = stage(s3, folder, [staged_shard(number, 6 * MB) for number in range(2)])
    assembly = assembly_of(io, folder, uris)
    s3.delete_object(Bucket=BUCKET, Key=f"{folder}/staging/shard-1")

    with pytest.raises(StoreRefusedError, match="shard-1"):
        assembly.make()
    assert not uploads(s3, folder)


def test_what_other_attempts_of_the_run_left_is_aborted_and_what_other_runs_do_is_not(
    s3, io, folder
):
    uris = stage(s3, folder, [staged_shard(0, 100_000)])
    for name in ("ann-words-1-abcd-old", "ann-words-2-ffff-busy", "other"):
        s3.create_multipart_upload(Bucket=BUCKET, Key=f"{folder}/{name}.puffin")

    assembly_of(io, folder, uris).make()

    assert sorted(uploads(s3, folder)) == [
        f"{folder}/ann-words-2-ffff-busy.puffin",
        f"{folder}/other.puffin",
    ]


def test_uploads_of_runs_that_died_a_day_ago_are_aborted(s3, io, folder, monkeypatch):
    uris = stage(s3, folder, [staged_shard(0, 100_000)])
    for name in ("ann-words-2-ffff-dead", "other"):
        s3.create_multipart_upload(Bucket=BUCKET, Key=f"{folder}/{name}.puffin")
    monkeypatch.setattr("puffin_ann.lake.store.assemble.multipart.STALE", timedelta(seconds=-60))

    assembly_of(io, folder, uris).make()

    assert uploads(s3, folder) == [f"{folder}/other.puffin"]


def test_credentials_we_cannot_use_leave_it_to_fileio(s3, proxy, folder):
    shards = [staged_shard(0, 6 * MB)]
    uris = stage(s3, folder, shards)
    signed_elsewhere = {"s3.signer": "S3V4RestSigner"}
    io = PyArrowFileIO(properties(proxy.endpoint) | signed_elsewhere)
    assembly = assembly_of(io, folder, uris)
    check(s3, assembly.make(), assembly.finished, shards)
    assert proxy.bytes > 12 * MB


def test_of_many_markers_at_once_the_first_wins(s3, io, folder):
    staging = Staging(io, f"s3://{BUCKET}/{folder}/_ann-staging/words/run")
    for attempt in range(5):
        barrier = threading.Barrier(6)
        won: list[bytes] = []

        def put(data, attempt=attempt, barrier=barrier, won=won):
            barrier.wait()
            if staging.put_new(f"marker-{attempt}", data):
                won.append(data)

        threads = [threading.Thread(target=put, args=(bytes([i]) * 1000,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert won == [staging.read(f"marker-{attempt}")]
    staging.delete_tree()
    assert not staging.exists("marker-0")
