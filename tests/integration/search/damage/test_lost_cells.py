"""An index whose cells cannot be read answers from every shard, rightly, and tells so."""

import logging
import os

import numpy as np
import pytest

from puffin_ann import open_index
from puffin_ann.blobs.version import partitions as partitions_blob
from puffin_ann.errors import StoreUnavailableError
from puffin_ann.lifecycle.publish import layers
from puffin_ann.lifecycle.report.history import history
from puffin_ann.lifecycle.report.status import status
from puffin_ann.search.version import index_version
from puffin_ann.search.version.index_files import StoredBlob
from tests.support.falsified.damage import corrupt, forget_cache, report
from tests.support.lifecycle import builds, refreshes

QUERIES = np.random.default_rng(3).normal(size=(3, builds.DIMENSION)).astype(np.float32)
SHARDED = {"shards": 4, "partitions_per_shard": 2}
DECLARED = refreshes.declared(publish="tag", refresh={"delta_ratio": 1.0}, **SHARDED)


@pytest.fixture
def named_cells(layered, monkeypatch):
    """Cells are read alone, and every version names those in the file of the build."""
    monkeypatch.setattr(layers, "SMALL_PARTITIONS", 0)
    monkeypatch.setattr(index_version, "SMALL_CELLS", 0)


@pytest.fixture
def layers_of_one(named_cells, words):
    """A table whose index has a build and a version that names its cells; and the build's file."""
    builds.build(DECLARED, "build")
    built = refreshes.newest(words.refresh()).path
    words.append(builds.rows(range(60, 66)))
    refreshes.refresh(words, DECLARED, "append")
    forget_cache()
    return words, built.removeprefix("file://")


def assert_right(table, sentences=1):
    """Every answer is that of brute force, and tells why it was slow."""
    index = open_index(table, builds.INDEX)
    snapshot = table.current_snapshot().snapshot_id
    builds.assert_answers(index, table, snapshot, QUERIES, 5)
    builds.assert_within(index, builds.live(table), QUERIES)
    found = report(index.search(QUERIES, 5))
    assert len(found["damaged"]) == sentences
    return index, found


def test_cells_are_read_by_the_first_search_alone(layers_of_one, monkeypatch):
    table, _ = layers_of_one
    reads = count_reads_of_cells(monkeypatch)
    index = open_index(table, builds.INDEX)
    assert index.version.routing.cells.count == 8
    index.search(QUERIES, 5, exhaustive=True)
    status(table, None)
    history(table, builds.INDEX)
    assert not reads
    for _ in range(2):
        index.search(QUERIES, 5)
        index.within(QUERIES, 1.0)
    assert len(reads) == 1


def count_reads_of_cells(monkeypatch):
    reads, read = [], StoredBlob.read

    def counted(blob):
        if blob.metadata.type == partitions_blob.TYPE:
            reads.append(blob.reader.name)
        return read(blob)

    monkeypatch.setattr(StoredBlob, "read", counted)
    return reads


def test_damaged_cells_are_damage_of_no_version(layers_of_one, caplog):
    table, built = layers_of_one
    corrupt(built, "partitions")
    with caplog.at_level(logging.ERROR, "puffin_ann"):
        index, found = assert_right(table)
    assert index.coverage == 1.0
    assert found["rows_scanned"] == 0
    assert found["shards_probed"] == len(index.version.routing.shards)
    (said,) = found["damaged"]
    assert built in said
    assert "every shard is searched instead" in said
    assert "puffin-ann doctor test.demo.words --fix" in said
    assert caplog.text.count("cells of index") == 1, "once for each opened index"


def test_an_exhaustive_search_does_not_miss_them(layers_of_one):
    table, built = layers_of_one
    corrupt(built, "partitions")
    found = open_index(table, builds.INDEX).search(QUERIES, 5, exhaustive=True)
    assert report(found)["damaged"] == []


def test_an_index_in_one_file_answers_without_them_too(words):
    builds.build(DECLARED, "build")
    path = refreshes.newest(words.refresh()).path.removeprefix("file://")
    corrupt(path, "partitions")
    forget_cache()
    _, found = assert_right(words)
    assert path in found["damaged"][0]


def test_one_shard_is_searched_without_cells(words):
    builds.build(builds.declaration(shards=1), "build")
    corrupt(refreshes.newest(words.refresh()).path.removeprefix("file://"), "partitions")
    index = open_index(words, builds.INDEX)
    assert report(index.search(QUERIES, 5))["damaged"] == []
    builds.assert_within(index, builds.live(words), QUERIES)
    assert len(report(index.within(QUERIES, 1.0))["damaged"]) == 1


def test_a_shard_may_be_damaged_besides(layers_of_one):
    table, built = layers_of_one
    corrupt(built, "partitions")
    corrupt(built, "rows", shard=1)
    _, found = assert_right(table, sentences=3)  # the shard is of both versions
    assert found["rows_scanned"] > 0


def test_where_all_is_gone_with_them_the_table_is_searched(layers_of_one):
    table, built = layers_of_one
    index = open_index(table, builds.INDEX)
    os.remove(built)
    builds.assert_answers(index, table, table.current_snapshot().snapshot_id, QUERIES, 5)
    builds.assert_within(index, builds.live(table), QUERIES)


def test_a_store_that_does_not_answer_damaged_nothing(layers_of_one, monkeypatch):
    table, _ = layers_of_one
    index = open_index(table, builds.INDEX)
    read = StoredBlob.read

    def silent(blob):
        if blob.metadata.type == partitions_blob.TYPE:
            raise StoreUnavailableError("no answer")
        return read(blob)

    with monkeypatch.context() as patch:
        patch.setattr(StoredBlob, "read", silent)
        with pytest.raises(StoreUnavailableError, match="no answer"):
            index.search(QUERIES, 5)
    assert report(index.search(QUERIES, 5))["damaged"] == []
