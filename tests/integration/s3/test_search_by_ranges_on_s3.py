"""A search of a table on S3 whose shards are nowhere else: few round trips, few bytes."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from pyiceberg.catalog import load_catalog

from puffin_ann import open_index
from puffin_ann.errors import StoreUnavailableError
from puffin_ann.lake.catalog.tables import load_table
from puffin_ann.lake.read.data.column_chunks import KEPT
from puffin_ann.lake.store import ranges, signed_once
from puffin_ann.lake.store.ranges import Range, read_ranges
from puffin_ann.lake.store.s3 import S3
from puffin_ann.puffin.reader import PuffinReader
from puffin_ann.search.shards.opening import together
from puffin_ann.search.version import index_files, index_version
from puffin_ann.settings import settings
from tests.support.falsified.damage import forget_cache, report
from tests.support.lifecycle import builds, refreshes
from tests.support.params import long_but_first
from tests.support.servers.object_store import BUCKET, client, properties

ROWS = 3_000
INDEX_FILES = r"/ann-words_index-[^/]*\.puffin"
QUERIES = np.random.default_rng(5).normal(size=(6, builds.DIMENSION)).astype(np.float32)
DECLARED = refreshes.declared(
    "vamana", shards=4, partitions_per_shard=16, gate={"queries": 200, "k": 5}
)


LEAN = builds.declaration(
    algorithm="ivf_pq",
    vectors="none",
    shards=2,
    parameters={"lists": 24},
    recall_target=0.5,
    gate={"queries": 200, "k": 5},
)


@pytest.fixture
def words_on_s3(proxy, known_catalogs, tmp_path):
    """A table on S3, behind the proxy."""
    known_catalogs(
        "test",
        type="sql",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        warehouse=f"s3://{BUCKET}/{tmp_path.name}",
        **properties(proxy.endpoint),
    )
    catalog = load_catalog("test")
    catalog.create_namespace("demo")
    table = catalog.create_table("demo.words", schema=builds.rows([]).schema)
    table.append(builds.rows(range(ROWS)))
    return table


@pytest.fixture
def lake(words_on_s3, proxy, monkeypatch):
    """An index of it, of which all shards are searched by ranges."""
    builds.build(DECLARED, "first")
    monkeypatch.setenv("PUFFIN_ANN_STORE_SECONDS", "0")
    monkeypatch.setenv("PUFFIN_ANN_RANGES_MIN_BYTES", "0")
    settings.cache_clear()
    forget_cache()
    return proxy


def opened(lake):
    table = load_table(DECLARED.table)
    lake.reset()
    return open_index(table, DECLARED.name, cache="none")


def test_an_answer_takes_three_round_trips(lake):
    lake.delay = 0.2
    index = opened(lake)
    told = report(index.search(QUERIES[:1], 5))
    assert lake.rounds() == 3
    assert not [line for line in lake.requests if line.startswith("HEAD")]
    assert told["bytes_by_ranges"] > 0
    lake.reset()
    index.search(QUERIES[:1], 5)
    assert lake.rounds() == 1


def test_answers_are_as_good_as_the_gate_said(lake):
    index = opened(lake)
    assert 0 < index.version.routing.scan_partitions < index.version.routing.cells.count
    hits = 0
    ids, vectors = builds.live(load_table(DECLARED.table))
    some = vectors[:: len(vectors) // 100][:100]
    found = index.search(some, 5, columns=["id"])
    assert not index._shards._opened.kept
    answered = found.column("id").to_numpy().reshape(len(some), 5)
    for query, mine in zip(some, answered, strict=True):
        best = ids[np.argsort(builds.distances("l2", query, vectors))[:5]]
        hits += len({*mine.tolist()} & {*best.tolist()})
    assert hits / (5 * len(some)) >= DECLARED.recall_target


@pytest.mark.parametrize("fault", ["503", "reset", "cut"])
def test_a_store_that_fails_midway_is_no_damage(lake, fault):
    index = opened(lake)
    lake.fail(fault, f"GET .*{INDEX_FILES}")
    with pytest.raises(StoreUnavailableError, match=INDEX_FILES):
        index.search(QUERIES, 5)
    lake.reset()
    assert report(index.search(QUERIES, 5))["damaged"] == []


def test_ranges_come_as_they_were_asked_for(io, s3, monkeypatch):
    data = np.random.default_rng(1).bytes(300_000)
    for key in ("one", "two"):
        s3.put_object(Bucket=BUCKET, Key=key, Body=data + key.encode())
    monkeypatch.setattr(ranges, "NEAR", 1000)
    wanted = [
        Range(f"s3://{BUCKET}/{key}", start, stop)
        for key, start, stop in [
            ("two", 200_000, 200_010),
            ("one", 5, 7),
            ("one", 0, 6),
            ("one", 900, 50_000),
            ("two", 299_999, 300_003),
            ("one", 60_000, 60_000),
        ]
    ]
    found = read_ranges(io, wanted)
    for part, content in zip(wanted, found, strict=True):
        whole = data + part.uri[-3:].encode()
        assert bytes(content) == whole[part.start : part.stop]


def test_many_ranges_take_one_round_trip(io, s3, proxy, monkeypatch):
    """As many cells as an index of a million rows has read for one query."""
    s3.put_object(Bucket=BUCKET, Key="many", Body=bytes(100_000))
    monkeypatch.setattr(ranges, "NEAR", 10)
    wanted = [Range(f"s3://{BUCKET}/many", start, start + 100) for start in range(0, 90_000, 1000)]
    read_ranges(io, wanted[:1])
    proxy.reset()
    proxy.held_until = len(wanted)  # however long a machine with much to do takes to begin them
    read_ranges(io, wanted)
    assert len(proxy.requests) == 90
    assert proxy.rounds() == 1


KEY = "folder one/ü+c=1 & %20 (é).bin"


@pytest.fixture
def far_apart(s3, proxy):
    """Ranges of an object with nothing near each other, and what they have."""
    data = np.random.default_rng(2).bytes(500_000)
    s3.put_object(Bucket=BUCKET, Key=KEY, Body=data)
    wanted = [Range(f"s3://{BUCKET}/{KEY}", at, at + 1000) for at in range(0, 500_000, 100_000)]
    proxy.reset()
    return wanted, [data[part.start : part.stop] for part in wanted]


def test_ranges_of_an_object_are_asked_for_by_one_signature(io, far_apart, proxy):
    wanted, expected = far_apart
    assert list(map(bytes, read_ranges(io, wanted))) == expected
    signatures = {re.search("X-Amz-Signature=([0-9a-f]+)", asked)[1] for asked in proxy.requests}
    assert len(proxy.requests) == len(wanted)
    assert len(signatures) == 1


@pytest.mark.parametrize(
    "fault", ["200 OK", "403 Forbidden", "400 Bad Request", "500 Broken", "cut", "reset"]
)
def test_ranges_that_do_not_come_by_one_signature_are_asked_for_as_ever(
    fault, io, far_apart, proxy, monkeypatch
):
    wanted, expected = far_apart
    monkeypatch.setattr(signed_once, "_refused_until", {})
    proxy.fail(fault, "X-Amz-Signature")
    assert list(map(bytes, read_ranges(io, wanted))) == expected
    assert len(proxy.requests) == 2 * len(wanted)
    proxy.reset()
    assert list(map(bytes, read_ranges(io, wanted))) == expected
    signed = [asked for asked in proxy.requests if "X-Amz-Signature" in asked]
    assert len(proxy.requests) == len(wanted)
    assert len(signed) == (0 if fault.startswith(("2", "4")) else len(wanted))


@pytest.mark.parametrize("problem", ["no session", "no signature"])
def test_where_botocore_gives_no_signed_address_ranges_are_asked_for_as_ever(
    problem, io, far_apart, proxy, monkeypatch
):
    known = SimpleNamespace(endpoint_url=proxy.endpoint)

    def no_client(_store):
        if problem == "no session":
            return SimpleNamespace(meta=known)
        session = SimpleNamespace(http_session=object())
        return SimpleNamespace(meta=known, _endpoint=session)  # it cannot sign

    monkeypatch.setattr(S3, "botocore_client", property(no_client))
    monkeypatch.setattr(S3, "client", client(proxy.endpoint))
    wanted, expected = far_apart
    assert list(map(bytes, read_ranges(io, wanted))) == expected


def test_several_ranges_of_an_object_that_is_gone_or_cut_short_are_told(io, s3):
    s3.put_object(Bucket=BUCKET, Key="short", Body=bytes(100_010))
    beyond = [Range(f"s3://{BUCKET}/short", at, at + 20) for at in (0, 50_000, 100_000)]
    with pytest.raises(ranges.PuffinFormatError, match="10 bytes too early"):
        read_ranges(io, beyond)
    with pytest.raises(FileNotFoundError):
        read_ranges(io, [Range(f"s3://{BUCKET}/gone", at, at + 4) for at in (0, 100_000)])


def test_cells_that_are_too_many_to_come_with_the_footer_take_one_request(lake, monkeypatch):
    monkeypatch.setattr(index_version, "SMALL_CELLS", 0)
    monkeypatch.setattr(PuffinReader, "came_along", lambda *_: False)
    lake.delay = 0.2
    index = opened(lake)
    index.search(QUERIES[:1], 5)
    assert lake.rounds() == 4


def test_what_is_not_beside_the_footer_is_read_by_itself(lake, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(index_files, "END_BYTES", 64)
        answers = opened(lake).search(QUERIES, 5, columns=["id"])
    requests = len(lake.requests)
    assert opened(lake).search(QUERIES, 5, columns=["id"]).equals(answers)
    assert len(lake.requests) < requests


def with_a_delta(words, monkeypatch, least_bytes):
    """Add rows to the index that become a delta; from now on nothing is on local disk."""
    words.refresh().append(builds.rows(range(ROWS, ROWS + 40)))
    refreshes.refresh(words, DECLARED, "delta")
    monkeypatch.setenv("PUFFIN_ANN_RANGES_MIN_BYTES", str(least_bytes))
    settings.cache_clear()
    forget_cache()


@pytest.mark.parametrize("least_bytes", long_but_first([0, 8 << 20]))
def test_deltas_and_small_shards_are_brought_while_ranges_are_read(
    lake, words_on_s3, monkeypatch, least_bytes
):
    with_a_delta(words_on_s3, monkeypatch, least_bytes)
    lake.delay = 0.2
    index = opened(lake)
    kinds = {shard.kind for shard in index.version.routing.shards}
    added = builds.rows(range(ROWS, ROWS + 1)).column("embedding")[0].as_py()
    found = index.search(np.array([added], np.float32), 5)
    assert kinds == {"graph", "delta"}
    assert found.column("distance")[0].as_py() == 0.0
    assert (report(found)["bytes_by_ranges"] > 0) == (least_bytes == 0)
    assert lake.rounds() <= 3


@pytest.mark.parametrize("least_bytes", long_but_first([0, 8 << 20]))
def test_what_is_brought_is_what_shards_brought_one_by_one_answer(
    lake, words_on_s3, monkeypatch, least_bytes
):
    with_a_delta(words_on_s3, monkeypatch, least_bytes)
    answers = opened(lake).search(QUERIES, 5, columns=["id"])
    forget_cache()
    monkeypatch.setattr(together, "MOST_BYTES", -1)
    lake.delay = 0.02
    again = opened(lake).search(QUERIES, 5, columns=["id"])
    assert again.equals(answers)
    assert lake.rounds() > 4, "so many it took before"


@pytest.mark.parametrize("problem", ["503", "damage"])
def test_what_is_wrong_with_shards_brought_together_is_told(
    lake, words_on_s3, monkeypatch, s3, problem
):
    with_a_delta(words_on_s3, monkeypatch, 8 << 20)
    index = opened(lake)
    if problem == "503":
        lake.fail(problem, f"GET .*{INDEX_FILES}")
        with pytest.raises(StoreUnavailableError, match=INDEX_FILES):
            index.search(QUERIES, 5)
        lake.reset()
        assert report(index.search(QUERIES, 5))["damaged"] == []
        return
    key = index.version.path.removeprefix(f"s3://{BUCKET}/")
    data = bytearray(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read())
    for blob in index.version.own_blobs:
        if blob.type == "puffin-ann-graph-v1":
            data[blob.offset + blob.length // 2] ^= 1
    s3.put_object(Bucket=BUCKET, Key=key, Body=bytes(data))
    found = index.search(QUERIES[:1], 5)
    (told,) = report(found)["damaged"]
    assert "grph blob: checksum" in told
    assert len(found) == 5


@pytest.mark.parametrize("least_bytes", long_but_first([0, 8 << 20]))
def test_an_answer_of_codes_alone_takes_four_round_trips(
    words_on_s3, proxy, monkeypatch, least_bytes
):
    monkeypatch.setattr("puffin_ann.ann.ivf.lists.LEAST_ROWS", 4)
    builds.build(LEAN, "first")
    monkeypatch.setenv("PUFFIN_ANN_RANGES_MIN_BYTES", str(least_bytes))
    settings.cache_clear()
    forget_cache()
    KEPT.clear()
    proxy.delay = 0.2
    table = load_table(LEAN.table)
    proxy.reset()
    found = open_index(table, LEAN.name, cache="none").search(QUERIES[:1], 5)
    assert (report(found)["bytes_by_ranges"] > 0) == (least_bytes == 0)
    assert proxy.rounds() <= 4


def test_an_object_that_is_gone_or_cut_short_is_told(io, s3):
    s3.put_object(Bucket=BUCKET, Key="short", Body=b"0123456789")
    for start in (5, 30):
        with pytest.raises(ranges.PuffinFormatError, match="bytes too early"):
            read_ranges(io, [Range(f"s3://{BUCKET}/short", start, 40)])
    with pytest.raises(FileNotFoundError):
        read_ranges(io, [Range(f"s3://{BUCKET}/gone", 0, 4)])
